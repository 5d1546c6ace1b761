package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/golang-jwt/jwt/v5"
)

// served makes a call that must be served.
func served(t *testing.T, url, who string) {
	t.Helper()
	if r, body := do(t, "POST", url, "Authorization", token(t, jwt.MapClaims{"sub": who})); r.StatusCode != 200 {
		t.Fatalf("%s: %d %s", url, r.StatusCode, body)
	}
}

// Every command of docs/accounts.md does, as it is written there and in that
// order, what the page says: on a store in which the page's account has called
// under the page's policy.
func TestTheCommandsOfTheAccountsPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/accounts.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(application:.*?)```").FindSubmatch(page)
	if block == nil {
		t.Fatal("no policy on the page")
	}
	policyText := "weir: 1\nauth: {jwt: {hs256_secret_env: TEST_SECRET}}\ncallers: {account: jwt.sub, ip: client_ip}\n" + string(block[1]) +
		"  operations: {render: {match: POST /render}}\n  limits: [{name: orders, match: POST /orders, by: account, limit: quota 50/hour}]\n"
	dir := t.TempDir()
	store := "bolt:" + filepath.Join(dir, "weir.db")
	up := newRecorder(t, nil)
	t.Setenv("TEST_SECRET", testSecret)
	file := writeFile(t, filepath.Join(dir, "weir.yaml"), policyText)
	url, stop, err := inProcess("proxy", "-q", "--to", up.URL, "-c", file, "--listen", "127.0.0.1:0", "--store", store)
	if err != nil {
		t.Fatal(err)
	}
	for _, who := range []string{"customer-42", "somebody-else"} {
		for _, path := range []string{"/render", "/orders"} {
			served(t, url+path, who)
		}
	}
	stop() // the file is the commands' now
	t.Setenv("WEIR_CONFIG", file)
	t.Setenv("WEIR_STORE", store)

	outcome := map[string]string{ // of commands that have something to show, what that is
		"weir accounts get customer-42":    "keeps free@1",
		"weir usage --account customer-42": "render  free@1  ",
		"weir keys override 'account#customer-42' orders 'quota 500/hour' --expires 14d --reason 'launch'": "limit orders = quota 500/hour until ",
		"weir keys ban 'account#customer-42' --expires 1d --reason 'card testing'":                         "banned until ",
		"weir accounts set customer-42 --plan advanced":                                                    "plan advanced\n",
		"weir accounts set customer-42 --plan advanced --expires 14d --reason trial":                       "plan advanced until ",
		"weir accounts migrate --from free@1 --to free@2 --dry-run":                                        "account#customer-42\naccount#somebody-else\n",
		"weir accounts set customer-42 --plan free@2":                                                      "keeps free@2",
		"weir accounts set customer-42 --billing-anchor 2026-01-31":                                        "billing anchor 2026-01-31T00:00:00Z",
		"weir keys erase 'account#customer-42'":                                                            "record\taccount#customer-42\nitem\taccount#customer-42\n",
		"weir accounts list":                                                                               "account#somebody-else",
	}
	found := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^    (weir .*)$|`(weir (?:accounts|keys|usage)[^`]*)`").FindAllStringSubmatch(string(page), -1) {
		command := m[1] + m[2]
		if strings.Contains(command, " CALLER") || strings.HasSuffix(command, " ID") {
			continue // a form, and no command
		}
		words, err := exec.Command("sh", "-c", `weir() { for a in "$@"; do printf '%s\0' "$a"; done; }; `+command).Output()
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		var out, errs bytes.Buffer
		code := run(context.Background(), strings.Split(strings.TrimSuffix(string(words), "\x00"), "\x00"), &out, &errs)
		want, known := outcome[command]
		if found[command] = true; !known {
			t.Errorf("%s: what it shows is not checked; add it here: exit %d\n%s%s", command, code, out.String(), errs.String())
		}
		if code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit %d, want 0 and %q:\n%s%s", command, code, want, out.String(), errs.String())
		}
	}
	for command := range outcome {
		if !found[command] {
			t.Errorf("the page does not name %s any more", command)
		}
	}
}
