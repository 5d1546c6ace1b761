package boltstore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/boltstore"
	"github.com/weirlabs/weir/memstore"
	"github.com/weirlabs/weir/storetest"
)

func BenchmarkInterval(b *testing.B) { storetest.Bench(b, inFile(boltstore.SyncInterval)) }

// BenchmarkBesideMemory takes turns with a memory store, so that both meet the
// same machine, and reports how many times longer a take is in a file. A turn of
// the file ends when all of it is written.
func BenchmarkBesideMemory(b *testing.B) {
	rate := parse(b, "1/s burst 1000000000")
	for _, keys := range []int{1, 10_000, 100_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			memory := weir.NewLimiter(memstore.New(memstore.Options{}), weir.Options{})
			store := open(b, filepath.Join(b.TempDir(), "weir.db"), boltstore.Options{})
			defer store.Close()
			file := weir.NewLimiter(store, weir.Options{})
			ops := make([]weir.Op, keys)
			for i := range ops {
				ops[i] = weir.Op{Limit: rate, Key: weir.NewKey("account", fmt.Sprint(i))}
			}
			ctx := context.Background()
			run := func(l *weir.Limiter, n int) time.Duration {
				began := time.Now()
				for i := range n {
					if d, err := l.Take(ctx, ops[i*7919%keys]); err != nil || !d.Allowed {
						b.Fatalf("%+v, %v", d, err)
					}
				}
				return time.Since(began)
			}
			const turn = 2_000_000
			run(memory, keys)
			run(file, keys)
			var inMemory, inFile time.Duration
			for b.Loop() {
				inMemory += run(memory, turn)
				inFile += run(file, turn)
				began := time.Now()
				if err := store.Flush(ctx); err != nil {
					b.Fatal(err)
				}
				inFile += time.Since(began)
			}
			n := float64(b.N) * turn
			b.ReportMetric(float64(inMemory)/n, "memory-ns/take")
			b.ReportMetric(float64(inFile)/n, "file-ns/take")
			b.ReportMetric(float64(inFile)/float64(inMemory), "ratio")
		})
	}
}

// BenchmarkAlways has 64 callers wait for the disk, and reports how many takes
// share one wait. A commit waits twice: for the pages, and for the root.
func BenchmarkAlways(b *testing.B) {
	rate := parse(b, "1/s burst 1000000000")
	store := open(b, filepath.Join(b.TempDir(), "weir.db"), boltstore.Options{Sync: boltstore.SyncAlways})
	defer store.Close()
	limiter := weir.NewLimiter(store, weir.Options{Deadline: time.Minute})
	before := store.Stats().Commits
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for n := range 64 {
		op := weir.Op{Limit: rate, Key: weir.NewKey("account", fmt.Sprint(n))}
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if d, err := limiter.Take(context.Background(), op); err != nil || !d.Allowed {
					b.Errorf("%+v, %v", d, err)
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/float64(2*(store.Stats().Commits-before)), "takes/fsync")
}

func parse(tb testing.TB, text string) weir.Limit {
	tb.Helper()
	l, err := weir.ParseLimit(text)
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// BenchmarkOpen opens a file of a million items.
func BenchmarkOpen(b *testing.B) {
	const items = 1_000_000
	path := filepath.Join(b.TempDir(), "weir.db")
	daily := parse(b, dailyText)
	burst := parse(b, "1/d burst 100")
	s := open(b, path, boltstore.Options{})
	limiter := limiterOn(s)
	for n := range items {
		limit := daily
		if n%2 == 0 {
			limit = burst
		}
		op := weir.Op{Limit: limit, Key: weir.NewKey("account", fmt.Sprint("customer-", n))}
		if d, err := limiter.Take(context.Background(), op); err != nil || !d.Allowed {
			b.Fatalf("%+v, %v", d, err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		s := open(b, path, boltstore.Options{})
		if st := s.Stats(); st.Keys != items {
			b.Fatalf("%+v", st)
		}
		b.StopTimer()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(info.Size())/items, "bytes/item")
}
