package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// What is known at once of a request is what the general way finds for it.
func TestSoleOpIsThatOfTheGeneralWay(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	sole := 0
	for range 2000 {
		text := fmt.Sprintf("weir: 1\n%scallers: {account: jwt.sub, ip: client_ip}\n%sapplication:\n  limits:\n    - {name: l%s, by: %s, limit: %s%s}\n",
			pick("", "", "", "header_styles: [github]\n", "header_styles: [ietf, x]\n", "mode: shadow\n"),
			pick("", "", "", "edge:\n  - {name: e, limit: 5/s}\n"),
			pick("", "", "", `, match: "/{rest...}"`, ", match: GET /a"), pick("ip", "ip", "[ip, account]", "account", "[account, ip]", "everyone", "ip+path.x"),
			pick("9/s", "9/s burst 20", "[9/s, quota 5/day]", "sliding 7/h", "quota 5/day"),
			pick("", "", "", ", cost: 3", ", cost: header.Units", ", mode: shadow", ", on_store_error: deny", ", count: on_success", ", notify_at: [80%]", ", over: charge", ", once: header.Idempotency-Key"))
		p, err := loadText(text)
		if err != nil {
			continue // it says what cannot be
		}
		for range 20 {
			a := get(pick("GET", "POST", "get", "OPTIONS", "TRACE", "connect", "HEAD"), pick("/", "/a", "/b/c", "", "a", "*", "/A", "/a%2f", "/a//b", "/a/./b", "/a;b", "/é"))
			a.Header["Idempotency-Key"] = []string{"a"}
			a.Peer = netip.MustParseAddr(pick("192.0.2.1", "2001:db8::1", "::ffff:192.0.2.9", "fe80::1%eth0"))
			if r.IntN(9) == 0 {
				a.Header["Idempotency-Key"] = []string{"a"}
				a.Peer = netip.Addr{}
			}
			op, client, key := p.Sole(a)
			if op == nil {
				continue
			}
			sole++
			m, err := p.Match(a)
			if err != nil || m.Exempt != "" || m.found.edge.n > 0 || m.NeedsKey || m.Client != client {
				t.Fatalf("%s\n%s %s: %+v, %v, of the client %v", text, a.Method, a.Path, m, err, client)
			}
			ops, err := p.Ops(&m, a, Identity{})
			if err != nil || len(ops) != 1 || m.Once() != nil {
				t.Fatalf("%s\n%s %s asks %+v, %v", text, a.Method, a.Path, ops, err)
			}
			got, want := *op, ops[0]
			got.Key, want.rank = key, 0
			if got != want || got.Shadow || got.Rule.Settled() || got.Limit.IsMetered() || len(got.Rule.NotifyAt) > 0 || slices.Contains(got.Rule.Headers, StyleGitHub) {
				t.Fatalf("%s\n%s %s asks %+v, want %+v", text, a.Method, a.Path, got, want)
			}
		}
	}
	if sole < 50 {
		t.Errorf("only %d requests were known at once", sole)
	}
}
