package engine

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/policy"
)

// watched notes how long each item is to be kept.
type watched struct {
	weir.Store
	keep map[string]time.Duration
}

func (s *watched) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	for i := range tries {
		s.keep[item.String()] = max(s.keep[item.String()], tries[i].Keep)
	}
	return s.Store.Apply(ctx, item, tries, state)
}

// An item is kept for the limits of its own, and an hour more, whatever the other
// items of the policy need.
func TestItemsAreKeptForTheirOwnLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *watched
		r := newRig(t, `
weir: 1
callers: {account: jwt.sub, partner: api_key.owner}
gateway: {plans: {basic: [10/s burst 20, quota 100000/month]}}
application:
  limits:
    - {name: orders, match: GET /orders, by: account, limit: quota 50/hour}
    - {name: reservations, match: GET /reservations, by: account, limit: 0.5/s burst 10}
`, func(o *Options) {
			s = &watched{o.Store, map[string]time.Duration{}}
			o.Store = s
			known := o.Identify
			o.Identify = func(ctx context.Context, a *policy.Attributes) (policy.Identity, error) {
				id, err := known(ctx, a)
				id.KeyOwner, id.KeyPlan = "acme", "basic"
				return id, err
			}
		})
		if o := r.ask("/reservations", "c1"); !o.Served() {
			t.Fatalf("status %d", o.Status)
		}
		for item, want := range map[string]time.Duration{"account#c1": time.Hour, "partner#acme": 30 * 24 * time.Hour} {
			if got := s.keep[item]; got != want+time.Hour {
				t.Errorf("%s is kept for %v, want %v and an hour", item, got, want)
			}
		}
	})
}
