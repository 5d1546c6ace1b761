package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir/memstore"
)

// R10: a reload in an outage gives no share anew, tries a store that is left
// alone no sooner, and forgets nothing of what is to be charged afterwards.
func TestR10_ReloadInAnOutageRenewsNoShare(t *testing.T) {
	for _, limit := range []string{"quota 40/h", "quota 40/day calendar", "sliding 40/h", "1/h burst 40"} {
		synctest.Test(t, func(t *testing.T) {
			text := "weir: 1\ncallers: {account: jwt.sub}\napplication:\n  limits:\n    - {name: things, match: /, by: account, limit: " +
				limit + ", on_store_error: local, share: 1/4}\n"
			store := &remote{s: memstore.New(memstore.Options{}), fails: errors.New("no route to host")}
			r := newRig(t, text, func(o *Options) { o.Store = store })
			allowed, trips := 0, store.trips.Load()
			for n := range 10 {
				for range 20 {
					if r.ask("/", "a").Served() {
						allowed++
					}
				}
				next := text
				if n%2 == 1 { // another limit beside it
					next += "    - {name: more, match: GET /more, by: account, limit: quota 5/h}\n"
				}
				if err := r.Reload(load(t, next)); err != nil {
					t.Fatal(err)
				}
			}
			if trips = store.trips.Load() - trips; trips > 5 || allowed > 10 {
				t.Errorf("%s: a share of 10 let %d through; %d trips", limit, allowed, trips)
			}
			store.fails = nil
			<-time.After(2 * time.Second)
			o := r.ask("/", "a")
			if v := o.Speaks(); v.Degraded || v.Used != int64(allowed)+1 {
				t.Errorf("%s: %d were let through, and %d are charged: %+v", limit, allowed, v.Used-1, v)
			}
		})
	}
}

// What this process remembers of an item are its counters, not verdicts: after a
// reload the same counters are judged by the new limits, at once.
func TestReloadJudgesWhatIsRememberedAnew(t *testing.T) {
	for _, c := range []struct{ before, after string }{
		{"quota 3/h", "quota 5/h"},
		{"sliding 3/h", "sliding 5/h"},
		{"3/h burst 3", "5/h burst 5"},
		{"quota 3/day calendar", "quota 5/day calendar"},
	} {
		synctest.Test(t, func(t *testing.T) {
			text := "weir: 1\nrevision: %d\ncallers: {account: jwt.sub}\napplication:\n  limits:\n    - {name: things, match: /, by: account, limit: %s}\n"
			store := &remote{s: memstore.New(memstore.Options{})}
			r := newRig(t, fmt.Sprintf(text, 1, c.before), func(o *Options) { o.Store = store })
			ask := func(n, served int, what string) {
				t.Helper()
				for range n {
					if r.ask("/", "a").Served() {
						served--
					}
				}
				if served != 0 {
					t.Errorf("%s, %s: %d served too few", c.before, what, served)
				}
			}
			ask(9, 3, "before") // and six refusals, which are remembered
			if err := r.Reload(load(t, fmt.Sprintf(text, 2, c.after))); err != nil {
				t.Fatal(err)
			}
			ask(9, 2, "with two more")
			if err := r.Reload(load(t, fmt.Sprintf(strings.Replace(text, "name: things", "name: others", 1), 3, c.after))); err != nil {
				t.Fatal(err)
			}
			ask(9, 5, "by another name")
		})
	}
}
