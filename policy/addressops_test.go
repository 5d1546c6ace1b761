package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// What a policy asks of a request by its address alone is known when it is loaded.
// It is what the general way finds for the same request.
func TestAddressOpsAreThoseOfTheGeneralWay(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	short := 0
	for range 400 {
		var b strings.Builder
		b.WriteString("weir: 1\ncallers: {account: jwt.sub, ip: client_ip}\napplication:\n  limits:\n")
		for i := range 1 + r.IntN(4) {
			fmt.Fprintf(&b, "    - {name: l%d, match: %s, by: %s, limit: %s%s%s}\n", i,
				pick("/", "/a", "GET /a", `"/{x}"`), pick("ip", "ip", "ip", "account", "[account, ip]", "[ip, account]", "everyone"),
				pick("9/s", "[9/s, quota 5/day]", "sliding 7/h"), pick("", "", ", cost: 3", ", cost: header.Units"), pick("", "", ", mode: shadow", ", on_store_error: deny"))
		}
		p := load(t, b.String())
		a := get("GET", pick("/", "/a", "/b"))
		m, err := p.Match(a)
		if err != nil {
			t.Fatal(err)
		}
		if m.found.app.n == 0 || !m.found.addressOnly() {
			continue
		}
		short++
		got, err := p.Ops(&m, a, Identity{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range m.found.app.n {
			h := m.found.app.at(i)
			general := *h.rule
			general.ofAddress = nil
			h.rule = &general
		}
		want, err := p.Ops(&m, a, Identity{})
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%s\nasks %+v, want %+v (%v)", b.String(), got, want, err)
		}
	}
	if short < 20 { // a fifth of them
		t.Errorf("only %d of 400 policies ask by the address alone", short)
	}
}
