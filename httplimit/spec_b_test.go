package httplimit_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine"
	"github.com/weirlabs/weir/internal/everystore"
)

const plans = `
weir: 1
callers: {account: jwt.sub, ip: client_ip}
application:
  plans:
    from: jwt.plans
    order: [free, advanced]
    free: {analyze: quota 2/day, generate: quota 1/hour}
    advanced: {analyze: quota 4/day}
  operations:
    analyze: {match: POST /analyze}
    generate: {match: POST /generate}
`

// Operations are limited by plan, two processes share the counts, and what is no
// operation asks no store.
func TestSpec_B01_B02_B03_PlansOnEveryStore(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open opener) {
		two := twoGates(t, open, plans, status(200))
		send := func(n int, path string, fields ...string) int {
			return two[n%2].send("POST", path, append([]string{"Test-Sub", "a"}, fields...)...).StatusCode
		}
		for i, want := range []int{200, 200, 429, 429} {
			if got := send(i, "/analyze"); got != want {
				t.Errorf("free, call %d: %d, want %d", i, got, want)
			}
		}
		// What was used stays used under a higher plan, which allows more.
		for i, want := range []int{200, 200, 429} {
			if got := send(i, "/analyze", "Test-Plans", "advanced"); got != want {
				t.Errorf("advanced, call %d: %d, want %d", i, got, want)
			}
		}
		// advanced does not list generate, and has free's limit of it.
		for i, want := range []int{200, 429} {
			if got := send(i, "/generate", "Test-Plans", "advanced"); got != want {
				t.Errorf("generate, call %d: %d, want %d", i, got, want)
			}
		}
		for _, g := range two {
			g.mu.Lock()
			before := g.asked
			g.mu.Unlock()
			if got := g.count(20, "POST", "/other", "Test-Sub", "a"); got[200] != 20 || g.asked != before {
				t.Errorf("what is no operation: %v, and %d decisions", got, g.asked-before)
			}
		}
	})
}

// The pitfalls of a quota whose counter and expiry are two things: the reset is an
// instant, no later call moves it, and two first calls at once count two.
func TestSpec_B04_B13_TheWindowOfTheFirstCall(t *testing.T) {
	onEveryStore(t, func(t *testing.T, open opener) {
		two := twoGates(t, open, plans, status(200))
		for round := range 20 {
			sub := string(rune('a' + round))
			began := time.Now()
			var first sync.WaitGroup
			for _, g := range two {
				first.Go(func() { g.send("POST", "/analyze", "Test-Sub", sub, "Test-Plans", "advanced") })
			}
			first.Wait()
			counted := time.Now()
			if n := usedOf(t, two[0], sub, "analyze").Used; n != 2 {
				t.Fatalf("two first calls count %d", n)
			}
			ends := func() (least, most time.Time) {
				asked := time.Now()
				d := usedOf(t, two[1], sub, "analyze")
				return asked.Add(d.ResetAfter), time.Now().Add(d.ResetAfter)
			}
			for range 3 { // looking, counting and refusing move nothing
				least, most := ends()
				// The store's clock is this machine's, to the microsecond.
				if least.After(counted.Add(24*time.Hour+time.Millisecond)) || most.Before(began.Add(24*time.Hour-time.Millisecond)) {
					t.Fatalf("the window ends between %v and %v, and began between %v and %v", least, most, began, counted)
				}
				two[round%2].send("POST", "/analyze", "Test-Sub", sub, "Test-Plans", "advanced")
			}
		}
	})
}

// usedOf looks at one limit of a caller, under the highest plan.
func usedOf(t *testing.T, g *gate, sub, name string) weir.Decision {
	t.Helper()
	p := g.engine.Policy()
	lim := weir.NewLimiter(g.store, weir.Options{Limits: p.Limits(), Deadline: time.Minute})
	var ops []weir.Op
	for _, l := range p.Limits() {
		if l.Name() == name {
			ops = []weir.Op{{Limit: l, Key: weir.NewKey("account", sub)}}
		}
	}
	d, err := lim.Peek(context.Background(), ops...)
	if err != nil {
		t.Fatal(err)
	}
	return d[0]
}

// A plan's operation is refused while the store does not answer; a limit of its
// own is not. Memory can't be lost: there the store is one that always fails.
func TestSpec_B06_PlansFailClosed(t *testing.T) {
	const text = plans + "  limits:\n    - {name: seats, match: POST /seats, by: account, limit: quota 2/day}\n"
	everystore.Run(t, everystore.Options{}, func(t *testing.T, s *everystore.Stores) {
		var two [2]*gate
		for i := range two {
			two[i] = newGate(t, text, status(200), on(s.Open(t)), patient)
			for _, path := range []string{"/analyze", "/seats"} {
				if r := two[i].send("POST", path, "Test-Sub", "a"); r.StatusCode != 200 {
					t.Fatalf("%s with a store: %d", path, r.StatusCode)
				}
			}
		}
		s.Lose()
		for _, g := range two {
			if !s.Remote {
				g = newGate(t, text, status(200), onBrokenStore)
			}
			r := g.send("POST", "/analyze", "Test-Sub", "b")
			if m := object(t, r); r.StatusCode != http.StatusServiceUnavailable || m["error"] != "temporary_reduced_capacity" {
				t.Errorf("%d %v", r.StatusCode, m)
			}
			if r := g.send("POST", "/seats", "Test-Sub", "b"); r.StatusCode != 200 {
				t.Errorf("a limit: %d", r.StatusCode)
			}
		}
	})
}

// A limit whose period the store can't keep is no limit of any process: none
// starts with it, and none takes it over while it runs.
func TestSpec_B11_APeriodThatTheStoreCannotKeep(t *testing.T) {
	long := strings.ReplaceAll(plans, "/day", "/week")
	everystore.Run(t, everystore.Options{MaxKeep: 48 * time.Hour}, func(t *testing.T, s *everystore.Stores) {
		for range 2 {
			_, err := engine.New(engine.Options{Policy: load(t, long), Store: s.Open(t)})
			if err == nil || !strings.Contains(err.Error(), `limit "analyze" needs an item to be kept for 168h0m0s, but the store keeps items for 48h0m0s at most`) {
				t.Errorf("a week: %v", err)
			}
			g := newGate(t, plans, status(200), on(s.Open(t)), patient)
			if err := g.engine.Reload(load(t, long)); err == nil || !strings.Contains(err.Error(), "analyze") {
				t.Errorf("a week, while it runs: %v", err)
			}
			if r := g.send("POST", "/analyze", "Test-Sub", "a"); r.StatusCode != 200 {
				t.Errorf("a day: %d", r.StatusCode)
			}
		}
	})
}
