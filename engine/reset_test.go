package engine

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/engine/account"
	"github.com/weirlabs/weir/memstore"
)

// The clock goes on between the question and the store's answer, and the end of
// a window is an instant all the same.
func TestSpec_B13_AResetIsTheSameInstantFromCallToCall(t *testing.T) {
	for _, c := range []struct{ limit, want string }{
		{"quota 5/month calendar Europe/Berlin", "2027-03-31T22:00:00Z"},
		{"quota 5/month calendar", "2027-04-01T00:00:00Z"},
		{"quota 5/day calendar", "2027-03-15T00:00:00Z"},
		{"quota 5/month billing", "2027-03-31T13:37:11Z"}, // an anchor on a 31st, at a time of day
		{"sliding 5/hour", "2027-03-14T13:00:00Z"},
		{"quota 5/hour", ""}, // the first call says
	} {
		var at atomic.Int64
		at.Store(time.Date(2027, 3, 14, 12, 34, 50, 123456789, time.UTC).UnixNano())
		now := func() int64 { return at.Add(41_296) }
		store := memstore.New(memstore.Options{Now: now})
		t.Cleanup(func() { store.Close() })
		anchored := account.Editor{Records: store}
		if _, _, err := anchored.Edit(context.Background(), weir.NewKey("account", "a"), func(r *account.Record) error {
			r.BillingAnchor = time.Date(2024, 1, 31, 13, 37, 11, 0, time.UTC)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		var told []time.Time
		terms := ""
		if c.limit[0] == 'q' {
			terms = ", notify_at: [20%, 40%, 60%]"
		}
		r := newRig(t, "weir: 1\ncallers: {account: jwt.sub}\napplication:\n  limits:\n    - {name: things, match: /, by: account, limit: "+c.limit+terms+"}\n",
			func(o *Options) {
				o.Store, o.Now = store, now
				o.Noticed = func(_ context.Context, n Notice) { told = append(told, n.ResetAt) }
			})
		for range 3 {
			r.ask("/", "a")
			at.Add(int64(1_100 * time.Millisecond))
			o := new(Outcome)
			var doc struct {
				Limits []struct {
					ResetAt time.Time `json:"reset_at"`
				}
			}
			if err := json.Unmarshal(r.Usage(context.Background(), request("GET", "/.weir/usage", "a"), o), &doc); err != nil || len(doc.Limits) != 1 {
				t.Fatalf("%s: %v, %+v", c.limit, err, doc)
			}
			got := doc.Limits[0].ResetAt.Format(time.RFC3339Nano)
			if c.want == "" {
				c.want = got
			}
			if got != c.want {
				t.Errorf("%s: usage says %s, want %s", c.limit, got, c.want)
			}
		}
		if terms != "" && len(told) != 3 {
			t.Errorf("%s: %d notices, want 3", c.limit, len(told))
		}
		for _, at := range told {
			if got := at.Format(time.RFC3339Nano); got != c.want {
				t.Errorf("%s: a notice says %s, want %s", c.limit, got, c.want)
			}
		}
	}
}
