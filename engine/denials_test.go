package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/policy"
)

// However many are refused, the record holds a fixed number of them, and a flood
// costs no write each.
func TestDenialsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, `
weir: 1
application:
  limits: [{name: calls, by: account, limit: 1/h}]
`, func(o *Options) { o.KeepDenials = true })
		records := r.o.Store.(weir.Records)
		refuse := func() string {
			a := &policy.Attributes{Method: "GET", Path: "/", Header: map[string][]string{"Sub": {"a"}}}
			for {
				o := new(Outcome)
				if r.Decide(context.Background(), a, o); !o.Served() {
					return o.DenialID
				}
			}
		}
		kept := 0
		for range 100 {
			d, ok, err := FindDenial(context.Background(), records, refuse())
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				kept++
				if d.Limit != "calls" || d.Max != 1 || d.Used != 1 || d.KeyHash == "" || d.Reason != "limit" {
					t.Errorf("%+v", d)
				}
			}
		}
		if kept != denialsKept {
			t.Errorf("%d of 100 refusals of one second are kept, want %d", kept, denialsKept)
		}
		keys := map[string]bool{}
		for range 20_000 {
			keys[denialKey(denialID())] = true
		}
		if len(keys) > denialPlaces || len(keys) < denialPlaces*9/10 {
			t.Errorf("%d places", len(keys))
		}
		<-time.After(time.Second)
		id := refuse()
		if _, ok, _ := FindDenial(context.Background(), records, id); !ok {
			t.Error("a refusal a second later is not kept")
		}
		if _, ok, err := FindDenial(context.Background(), records, "another"); ok || err != nil {
			t.Errorf("an id of nothing: %v, %v", ok, err)
		}
	})
}
