package engine

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/policy"
)

// A policy of one limit is decided in a short way. It is only shorter: an engine that
// has to ask who calls, and so goes the long way, says the same of every request.
func TestShortWaySaysWhatTheLongWaySays(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	refused := 0
	for range 40 {
		text := fmt.Sprintf("weir: 1\napplication:\n  limits:\n    - {name: l, by: ip, limit: %s%s}\n",
			pick("2/s", "3/s burst 5", "sliding 4/m", "quota 6/hour"), pick("", ", cost: 2", ", on_store_error: deny"))
		now := int64(1_700_000_000_000_000_000)
		clock := func() int64 { return now }
		made := func(identify func(context.Context, *policy.Attributes) (policy.Identity, error)) *Engine {
			e, err := New(Options{Policy: load(t, text), Store: memstore.New(memstore.Options{Now: clock}),
				Now: clock, Identify: identify, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.Close() })
			return e
		}
		short, long := made(nil), made(func(context.Context, *policy.Attributes) (policy.Identity, error) { return policy.Identity{}, nil })
		for range 100 {
			now += int64(r.IntN(int(time.Second)))
			a := policy.Attributes{Method: pick("GET", "post", "OPTIONS", "TRACE"), Path: pick("/", "/a", "/a%2f", "/%", "a"), Header: http.Header{},
				Peer: netip.MustParseAddr(pick("192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "2001:db8::2"))}
			var x, y Outcome
			short.Decide(t.Context(), &a, &x)
			long.Decide(t.Context(), &a, &y)
			if got, want := saidOf(&x), saidOf(&y); got != want {
				t.Fatalf("%s\n%s %s of %v:\n%s, want\n%s", text, a.Method, a.Path, a.Peer, got, want)
			}
			if x.Limited() {
				refused++
			}
		}
	}
	if refused < 100 {
		t.Errorf("only %d of 4,000 requests were refused", refused)
	}
}

func saidOf(o *Outcome) string {
	s := fmt.Sprint(o.Status, o.Err, o.Exempt, o.Client, o.Degraded, o.Repeated, o.Served(), o.Limited(), o.MustSettle(), len(o.DenialID()))
	for i := range o.Verdicts {
		v := &o.Verdicts[i]
		s += fmt.Sprint(" | ", v.Rule.Name, v.Key, v.Shadow, v.Excess(), v.Decision, v == o.Speaks())
	}
	return s
}
