package remote_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir/bench/inproc"
	"github.com/weirlabs/weir/bench/remote"
	"github.com/weirlabs/weir/internal/redistest"
)

// Asked by many callers at once, every limiter allows exactly the burst.
func TestPeersAllowTheirBurst(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	ctx := t.Context()
	five := inproc.Limit{Rate: 1, Period: time.Hour, Burst: 5}
	for _, p := range remote.Peers() {
		t.Run(p.Name, func(t *testing.T) {
			server.Do(t, "FLUSHALL")
			keys := inproc.Keys(8)
			i, err := p.New(ctx, server.Addr, 64, five, keys)
			if err != nil {
				t.Fatal(err)
			}
			defer i.Close()
			const together = 7
			var allowed atomic.Int64
			var wg sync.WaitGroup
			for range 64 {
				wg.Go(func() {
					ok, err := i.Take(ctx, together)
					if err != nil {
						t.Error(err)
					}
					if ok {
						allowed.Add(1)
					}
				})
			}
			wg.Wait()
			want := int64(5)
			if p.Name == remote.Raw || p.Name == remote.Store {
				want = 0 // they repeat the write of an item in use, and this one is not
			}
			if got := allowed.Load(); got != want {
				t.Errorf("64 at once: %d allowed, want %d", got, want)
			}
		})
	}
}

// Under both limits of the measurement every peer answers as they say, and so
// does a short run of the load.
func TestPeersAnswerAsMeasured(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	ctx := context.Background()
	keys := inproc.Keys(100)
	for _, want := range []bool{true, false} {
		limit := inproc.Never
		if !want {
			limit = inproc.Once
		}
		for _, p := range remote.Peers() {
			server.Do(t, "FLUSHALL")
			i, err := p.Start(ctx, server.Addr, 8, limit, keys)
			if err != nil {
				t.Fatal(err)
			}
			r := remote.Run(ctx, i, len(keys), 8, 50*time.Millisecond, want)
			i.Close()
			if r.Calls == 0 || r.Wrong > 0 || r.Errors > 0 {
				t.Errorf("%s, allowed %v: of %d calls %d are wrong and %d failed (%v)", p.Name, want, r.Calls, r.Wrong, r.Errors, r.Err)
			}
		}
	}
}
