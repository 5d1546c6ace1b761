package weir_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
)

// R15: a shadow whose item is busy, slow or away changes no verdict, delays none
// by more than a quarter of the deadline, and counts what it can.
func TestR15_ShadowsDoNotUseUpTheTimeOfWhatCounts(t *testing.T) {
	narrow, broad := weir.NewKey("tenant", "x", "user", "y"), weir.NewKey("tenant", "x")
	for _, c := range []struct {
		name   string
		way    func(ctx context.Context) error // of a trip to the shadow's item
		counts bool
	}{
		{"throttled", func(context.Context) error {
			<-time.After(3 * time.Millisecond)
			return fmt.Errorf("one key: %w", weir.ErrThrottled)
		}, false},
		{"silent", func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("%w: %w", weir.ErrOutcomeUnknown, ctx.Err())
		}, false},
		{"slow", func(context.Context) error {
			<-time.After(60 * time.Millisecond)
			return nil
		}, true},
	} {
		for _, watched := range []weir.Key{narrow, broad} {
			synctest.Test(t, func(t *testing.T) {
				store := newLossy(nil, 0).undisturbed()
				var well atomic.Bool
				lim := weir.NewLimiter(trips(func(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
					if !well.Load() && item == watched && len(tries) > 0 {
						if err := c.way(ctx); err != nil {
							return -1, 0, err
						}
					}
					<-time.After(2 * time.Millisecond)
					return store.Apply(ctx, item, tries, state)
				}), weir.Options{})
				enforced := weir.Op{Limit: limit(t, "1000/h burst 1000", "e"), Key: broad, OnFail: weir.FailDeny}
				shadow := weir.Op{Limit: limit(t, "quota 1000/d", "s"), Key: watched, Shadow: true}
				if watched == broad {
					enforced.Key = narrow
				}
				if d, err := lim.Take(t.Context(), enforced); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				for n := range int64(20) {
					began := time.Now()
					d, err := lim.Take(t.Context(), shadow, enforced)
					if err != nil || !d.Allowed || d.Degraded || d.Unknown || d.Op != 1 || d.Used != n+2 {
						t.Errorf("%s: %+v, %v", c.name, d, err)
					}
					if took := time.Since(began); took > 30*time.Millisecond {
						t.Errorf("%s: the call took %v", c.name, took)
					}
					<-time.After(50 * time.Millisecond)
				}
				<-time.After(5 * time.Second)
				well.Store(true)
				each, err := lim.Peek(t.Context(), shadow)
				if err != nil {
					t.Fatal(err)
				}
				if c.counts && each[0].Used != 20 || !c.counts && each[0].Used != 0 {
					t.Errorf("%s: %d counted", c.name, each[0].Used)
				}
			})
		}
	}
}

// A shadow that can't be counted, since another program has spoiled its field, is told
// to the observer, and its decision alone is unknown.
func TestShadowThatCannotBeCountedIsToldOf(t *testing.T) {
	errNoInteger := errors.New("no integer")
	store := newLossy(nil, 0).undisturbed()
	failed, decided := map[string]error{}, map[string]weir.Decision{}
	lim := weir.NewLimiter(trips(func(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
		for _, w := range tries {
			for _, act := range w.Do {
				if field := act.Field.Text(); strings.HasPrefix(field, "spoiled~.") {
					return -1, 0, &weir.SpoiledError{Field: field, Err: errNoInteger}
				}
			}
		}
		return store.Apply(ctx, item, tries, state)
	}), weir.Options{Observer: &weir.Observer{
		Failed:  func(_ context.Context, op weir.Op, err error) { failed[op.Limit.Name()] = err },
		Decided: func(_ context.Context, op weir.Op, d weir.Decision) { decided[op.Limit.Name()] = d },
	}})
	key := weir.NewKey("account", "a")
	d, err := lim.Take(t.Context(),
		weir.Op{Limit: limit(t, "quota 10/d", "counted"), Key: key, OnFail: weir.FailDeny},
		weir.Op{Limit: limit(t, "quota 10/d", "spoiled"), Key: key, Shadow: true},
		weir.Op{Limit: limit(t, "quota 10/d", "sound"), Key: key, Shadow: true})
	if err != nil || !d.Allowed || d.Degraded || d.Unknown || d.Used != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	if len(failed) != 1 || !errors.Is(failed["spoiled"], errNoInteger) {
		t.Errorf("failed are %v", failed)
	}
	for _, name := range []string{"counted", "spoiled", "sound"} {
		d, spoiled := decided[name], name == "spoiled"
		if !d.Allowed || d.Unknown != spoiled || d.Degraded != spoiled || !spoiled && d.Used != 1 {
			t.Errorf("%s: %+v", name, d)
		}
	}
}
