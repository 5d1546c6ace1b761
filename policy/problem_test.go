package policy

import (
	"strings"
	"testing"
	"testing/fstest"
)

const oneLimit = "\napplication: {limits: [{name: a, match: GET /a, by: ip, limit: 1/s}]}\n"

func mistakesOf(t *testing.T, text string) string {
	t.Helper()
	_, err := Load(fstest.MapFS{"weir.yaml": {Data: []byte(text)}}, "weir.yaml", Options{})
	if err == nil {
		t.Fatalf("%q is loaded", text)
	}
	return err.Error()
}

// The whole kind: however a store is written, and whatever is wrong with its line,
// what may be a password is not shown.
func TestNoMistakeShowsASecret(t *testing.T) {
	for _, line := range []string{
		"store : REDIS://ADMIN:SECRET@h", "store : redis://u:SECRET@h", `"store" : redis://u:SECRET@h`, `"store":"SECRET@h:6379"`, "'store'   :   SECRET@h",
		"strore: REDIS://ADMIN:SECRET@h", "Store: REDIS://ADMIN:SECRET@h", "STORE: SECRET@h:6379", "strore: SECRET@h:6379", "shared: Redis+Cluster://u:SECRET@h",
		"store: redis://u:SECRET", "store: redis://u:12SECRET", "store: redis://:SECRET", "store: 'redis://u:SECRET'", "store: redis://u:1234567SECRET", "storre: rediss://u:SECRET",
		"strore: REDIS://ADMIN:SECRET", "store: redis://u:99999999", "store: redis:u:SECRET", "store: foo://u:SECRET",
		"store: memory:?password=SECRET", "Strore: BOLT:w.db?password=SECRET", "shared: dynamodb:t?password=SECRET", "shared: memory:?password=SECRET", "shared: redis://h:6379?password=SECRET",
		"upgrade_url: HTTPS://u:SECRET@h", "edge_store: redis://u:SECRET@h", "edge_store: redis://u:SECRET", "name: redis://u:SECRET@h", "name: REDIS://ADMIN:SECRET@h",
		"name: redis://u:" + strings.Repeat("SECRET", 20) + "@h", "mode: https://u:SECRET@h", "redis://u:SECRET@h: 1", "{weir: 1, store : SECRET@h}: 1",
	} {
		// The version is wrong, too, so that the file has a mistake in any case.
		text := "weir: 7\n" + line + oneLimit
		if _, inner, flow := strings.Cut(line, "{weir: 1, "); flow {
			text = "{weir: 7, " + strings.TrimSuffix(inner, "}: 1") + "}\n"
		}
		if said := mistakesOf(t, text); strings.Contains(said, "SECRET") || strings.Contains(said, "9999") {
			t.Errorf("%s shows the secret:\n%s", line, said)
		}
		if shown := excerptOf(line, 1, 1, 1); strings.Contains(shown, "SECRET") || strings.Contains(shown, "9999") {
			t.Errorf("%s shows the secret:\n%s", line, shown)
		}
	}
}

// A line that holds no store and no password is shown whole.
func TestAnExcerptShowsWhatIsNoSecret(t *testing.T) {
	for _, line := range []string{
		`gold: {upgrade_url: "https://shop/billing?plan=pro", colour: red}`, `{name: a, when: 'query("a:b") == "?"', colour: red}`,
		`{name: restore, match: POST /restore, when: 'query("a") == "?", colour: red}`, `{match: GET /store:batch, when: 'query("store:a") == "?"', colour: red}`, `{from: 'header("x:y") != "a@b"', colour: red}`,
		`{"a":"https://shop","b":true}`, `{a: https://shop,b: c}`, "jwks_url: https://shop:8443/keys",
		"store: redis://h:6379", "store : rediss://h:6379/2", "store: 'redis://h:6379' # here", "store: redis://[::1]:6379", "{store: redis://h:6379, colour: red}",
		"store: foo:bar", "store: bolt:w.db", "store: memory:", "edge_store: shared", `stores: {match: GET /stores, by: account}`, "name: a memory: of what?",
	} {
		if shown := excerptOf(line, 1, 1, 1); !strings.Contains(shown, line) {
			t.Errorf("%s is shown as\n%s", line, shown)
		}
	}
}
