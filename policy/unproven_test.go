package policy

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
)

// A caller of whom nobody can be one is counted as somebody else, and nothing
// else would say so.
func TestCallersWhomNothingProvesAreFound(t *testing.T) {
	const rest = "callers: {account: jwt.sub, team: jwt.team, partner: api_key.owner, ip: client_ip}\n"
	limit := func(by string) string {
		return rest + "application: {limits: [{name: a, match: POST /a, by: " + by + ", limit: 1/s}, {name: b, match: POST /b, by: [" + by + ", ip], limit: 1/s}]}\n"
	}
	const plans = rest + "application:\n  plans: {from: jwt.plans, order: [free], free: {a: quota 5/day}}\n  operations: {a: {match: POST /a}}\n"
	const gateway = rest + "gateway: {plans: {basic: 1/s, big: 2/s}}\n"
	const tokens, keys = "auth: {jwt: {hs256_secret_env: SECRET}}\n", "auth: {api_keys: {header: x-api-key, file: keys.txt}}\n"
	for _, c := range []struct {
		name, auth, text string
		other            bool // an edge of another kind than weir proxy
		want             []string
	}{
		{"no auth", "", limit("account"), false, []string{"nobody can be `account`: it is taken from jwt.sub, and auth: verifies no tokens"}},
		{"no auth, both together", "", limit("account+team"), false, []string{"nobody can be `account`", "nobody can be `team`: it is taken from jwt.team"}},
		{"no auth, a partner", "", limit("partner"), false, []string{"nobody can be `partner`: it is taken from api_key.owner, and auth: verifies no API keys"}},
		{"no auth, plans", "", plans, false, []string{"nobody can have a plan but the first: plans come from jwt.plans", "nobody can be `account`"}},
		{"no auth, a gateway", "", gateway, false, []string{"nobody can have the gateway plan `basic`"}},
		{"no auth, addresses", "", limit("ip"), false, nil},
		{"no auth, everyone", "", limit("everyone"), false, nil},
		{"tokens", tokens, limit("account"), false, nil},
		{"tokens, plans", tokens, plans, false, nil},
		{"tokens, a partner", tokens, limit("partner"), false, []string{"nobody can be `partner`"}},
		{"tokens, a gateway", tokens, gateway, false, []string{"nobody can have the gateway plan `basic`"}},
		{"keys", keys, limit("partner"), false, nil},
		{"keys, a gateway", keys, gateway, false, nil},
		{"keys, an account", keys, limit("account"), false, []string{"nobody can be `account`"}},
		{"an edge that knows its callers", "", limit("account"), true, nil},
		{"an edge that knows its callers, with plans", "", plans, true, nil},
		{"an edge with a policy that verifies tokens", tokens, limit("partner"), true, []string{"nobody can be `partner`"}},
		{"a limit that is off", "", rest + "application: {limits: [{name: a, match: POST /a, by: account, limit: 1/s, mode: off}, {name: b, match: POST /b, by: everyone, limit: 1/s}]}\n", false, nil},
	} {
		fsys := fstest.MapFS{"weir.yaml": {Data: []byte("weir: 1\n" + c.auth + c.text)}, "keys.txt": {}}
		p, err := Load(fsys, "weir.yaml", Options{OnlyAuth: !c.other})
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		var found []string
		for _, w := range p.Warnings() {
			if strings.HasPrefix(w.Message, "nobody ") {
				if w.Line < 2 || w.Excerpt == "" || w.Hint == "" {
					t.Errorf("%s: %+v", c.name, w)
				}
				found = append(found, w.Message)
			}
		}
		ok := len(found) == len(c.want)
		for i := range min(len(found), len(c.want)) {
			ok = ok && strings.HasPrefix(found[i], c.want[i])
		}
		if !ok {
			t.Errorf("%s: %s\nwant %s", c.name, fmt.Sprintf("%q", found), fmt.Sprintf("%q", c.want))
		}
	}
}
