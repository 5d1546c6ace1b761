package engine

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// remote is a memory store that is reached as a remote one is, and can fail.
type remote struct {
	s     *memstore.Store
	fails error
	trips atomic.Int64
}

func (r *remote) Caps() weir.Caps { return r.s.Caps() }
func (r *remote) Close() error    { return r.s.Close() }
func (r *remote) Apply(ctx context.Context, item weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	r.trips.Add(1)
	if r.fails != nil {
		return -1, 0, r.fails
	}
	return r.s.Apply(ctx, item, tries, state)
}

// deafStore answers nothing until it is given up on.
type deafStore struct{ weir.Store }

func (deafStore) Caps() weir.Caps { return weir.Caps{} }

func (deafStore) Apply(ctx context.Context, _ weir.Key, _ []weir.Write, _ *weir.Cells) (int, int64, error) {
	<-ctx.Done()
	return -1, 0, ctx.Err()
}

func TestSpec_A09_LocalShareWhileTheStoreIsAway(t *testing.T) {
	for _, c := range []struct {
		name, limit, share string
		replicas           int
		allowed            int // of 20 without the store
	}{
		{"a quarter, rounded up", "quota 10/h", "share: 1/4", 1, 3},
		{"all of it", "quota 10/h", "share: 1/1", 5, 10},
		{"by replicas", "quota 10/h", "share: 1/replicas", 3, 4},
		{"by replicas when nothing is said", "quota 10/h", "", 2, 5},
		{"one process", "quota 10/h", "", 1, 10},
		{"at least one", "quota 10/h", "share: 1/100", 1, 1},
		{"a bucket", "0.5/s burst 10", "share: 1/4", 1, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				share := c.share
				if share != "" {
					share = ", " + share
				}
				text := "weir: 1\ncallers: {account: jwt.sub}\napplication:\n  limits:\n    - {name: things, match: /, by: account, limit: " +
					c.limit + ", on_store_error: local" + share + "}\n"
				store := &remote{s: memstore.New(memstore.Options{}), fails: errors.New("no route to host")}
				r := newRig(t, text, func(o *Options) { o.Store, o.Replicas = store, c.replicas })
				allowed := 0
				for range 20 {
					o := r.ask("/", "a")
					if !o.Degraded {
						t.Fatalf("not degraded: %+v", o)
					}
					if o.Served() {
						allowed++
						continue
					}
					if v := o.Speaks(); o.Status != 429 || v.RetryAfter <= 0 || v.Reason != weir.ReasonLimit || !v.Unknown {
						t.Fatalf("status %d, %+v", o.Status, v)
					}
				}
				if allowed != c.allowed {
					t.Errorf("%d of 20 allowed without the store, want %d", allowed, c.allowed)
				}
				if log := r.log.String(); !strings.Contains(log, `"on_store_error":"local"`) {
					t.Errorf("the log does not say who decided: %s", log)
				}
			})
		})
	}
}

func TestDeadlineBoundsADecision(t *testing.T) {
	for _, c := range []struct{ deadline, want time.Duration }{{0, 100 * time.Millisecond}, {30 * time.Millisecond, 30 * time.Millisecond}, {3 * time.Second, 3 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, simple, func(o *Options) { o.Store, o.Deadline = deafStore{o.Store}, c.deadline })
			r.ask("/", "first") // of a process, it has longer
			synctest.Wait()     // for the store to give up, too
			start := time.Now()
			o := r.ask("/", "customer-42")
			if took := time.Since(start); took != c.want {
				t.Errorf("with a deadline of %v the decision took %v, want %v", c.deadline, took, c.want)
			}
			if !o.Served() || !o.Degraded {
				t.Errorf("%+v", o)
			}
		})
	}
}
