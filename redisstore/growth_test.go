package redisstore_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/redistest"
	"github.com/weirlabs/weir/redisstore"
)

// A decision is the same few commands for the server, once or, when its guess of
// the state was wrong, twice, and leaves an item of as many fields, whether ten
// calls are counted or a million: served, refused, given back, or looked at.
func TestCase_B161_TheWorkDoesNotGrowWithTheLimit(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	store, err := redisstore.Open("redis://"+server.Addr, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	// Each decision is the server's: what is known here answers none.
	lim := weir.NewLimiter(store, weir.Options{Deadline: time.Minute, NoCoalescing: true})
	ctx := context.Background()
	counts := regexp.MustCompile(`cmdstat_(\w+(?:\|\w+)?):calls=(\d+)`)
	// work is what the server does for something: its commands by name.
	work := func(do func()) string {
		server.Do(t, "CONFIG", "RESETSTAT")
		do()
		var all []string
		for _, m := range counts.FindAllStringSubmatch(server.Do(t, "INFO", "commandstats"), -1) {
			if slices.Contains([]string{"info", "config|resetstat", "client|setinfo", "hello", "ping"}, m[1]) {
				continue // those of the test, and of a connection that is new or idle
			}
			if all = append(all, m[1]); m[2] != "1" && m[2] != "2" {
				t.Errorf("%s calls of %s for one decision", m[2], m[1])
			}
		}
		slices.Sort(all)
		return strings.Join(all, " ")
	}
	for _, form := range []string{"2/h burst %d", "quota %d/day", "quota %d/year calendar", "sliding %d/week"} {
		var first []string
		for _, most := range []int64{10, 70_000, 1_000_000} {
			limit, err := weir.ParseLimit(fmt.Sprintf(form, most))
			if err != nil {
				t.Fatal(err)
			}
			var did []string
			for round := range 2 { // in the first the server learns the scripts
				did = nil
				key := weir.NewKey("account", fmt.Sprint(form, most, round))
				take := func(cost int64, allowed bool) *weir.Reservation {
					r, d, err := lim.Reserve(ctx, weir.Op{Limit: limit, Key: key, Cost: cost})
					if err != nil || d.Allowed != allowed {
						t.Fatalf("%v: %+v, %v; want allowed %v", limit, d, err, allowed)
					}
					return r
				}
				note := func(what string, do func()) { did = append(did, what+": "+work(do)) }
				take(most-3, true)
				note("served", func() { take(1, true) })
				held := take(2, true)
				note("refused", func() { take(1, false) })
				note("given back", func() { held.Cancel(ctx) })
				note("looked at", func() {
					if d, err := lim.Peek(ctx, weir.Op{Limit: limit, Key: key}); err != nil || d[0].Used != most-2 {
						t.Fatalf("%v: %+v, %v", limit, d, err)
					}
				})
				did = append(did, "fields: "+strings.TrimSpace(server.Do(t, "HLEN", key.String())))
			}
			if first == nil {
				first = did
				t.Logf("%v: %q", limit, did)
			}
			if !slices.Equal(did, first) {
				t.Errorf("%v: %q\nwith 10: %q", limit, did, first)
			}
		}
	}
}
