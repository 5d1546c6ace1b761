package storetest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/weirlabs/weir"
)

// notices: of many callers of two limiters, one hears of each mark of a quota.
func (s suite) notices(t *testing.T) {
	for _, text := range []string{"quota 40/d", "quota 40/year calendar"} {
		lim, err := limit(t, "st-noticed", text).Noticed(50, 100)
		if err != nil {
			t.Fatal(err)
		}
		l := s.limited(t, lim)
		op := weir.Op{Limit: lim, Key: l.key()}
		var mu sync.Mutex
		var marks []uint8
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				d, err := l.Take(context.Background(), op)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("%s: %v", text, err)
				}
				if d.Notice != 0 {
					marks = append(marks, d.Notice)
				}
			})
		}
		group.Wait()
		slices.Sort(marks)
		if want := []uint8{50, 100}; !slices.Equal(marks, want) && !slices.Equal(marks, want[1:]) {
			t.Errorf("%s: marks %v, want %v, or the last alone when one write reached both", text, marks, want)
		}
		l.wantUsed(op, 40)
		if err := l.Reset(context.Background(), op.Key, lim); err != nil {
			t.Fatal(err)
		}
		op.Cost = 40
		if d := l.take(op); d.Notice != 100 {
			t.Errorf("%s: after a reset the notice is %d", text, d.Notice)
		}
	}
}

// metered: a quota that counts on beyond itself.
func (s suite) metered(t *testing.T) {
	ctx := context.Background()
	for _, text := range []string{"quota 10/d", "quota 10/year calendar"} {
		lim, err := limit(t, "st-metered", text).Metered()
		if err != nil {
			t.Fatal(err)
		}
		l := s.limited(t, lim)
		op := weir.Op{Limit: lim, Key: l.key(), Cost: 8}
		l.allows(3, op)
		l.wantUsed(op, 24)
		r, d, err := l.Reserve(ctx, op)
		if err != nil || !d.Allowed {
			t.Fatalf("%s: reserve: %+v, %v", text, d, err)
		}
		if err := r.Settle(ctx, 1000); err != nil {
			t.Fatal(err)
		}
		l.wantUsed(op, 1024)
	}
}
