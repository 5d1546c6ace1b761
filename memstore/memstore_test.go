package memstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

func parse(t testing.TB, text string) weir.Limit {
	t.Helper()
	l, err := weir.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTakeAllocatesNothing(t *testing.T) {
	lim := weir.NewLimiter(memstore.New(memstore.Options{}), weir.Options{})
	ctx := context.Background()
	for _, text := range []string{"1000000/s burst 100000000000", "1/h", "quota 100000/day", "quota 1000/hour calendar Europe/Berlin", "sliding 100000/5m"} {
		op := weir.Op{Limit: parse(t, text), Key: weir.NewKey("account", text)}
		n := testing.AllocsPerRun(1000, func() {
			if _, err := lim.Take(ctx, op); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("Take on %q: %v allocations, want 0", text, n)
		}
	}
}

func BenchmarkTake(b *testing.B) {
	ctx := context.Background()
	for _, c := range []struct{ name, limit string }{
		{"allow", "1000000/s burst 100000000000"},
		{"deny", "1/h"},
		{"quota", "quota 1000000000000/day"},
		{"calendar", "quota 1000000000000/day calendar Europe/Berlin"},
		{"sliding", "sliding 1000000000000/5m"},
	} {
		b.Run(c.name, func(b *testing.B) {
			lim := weir.NewLimiter(memstore.New(memstore.Options{}), weir.Options{})
			op := weir.Op{Limit: parse(b, c.limit), Key: weir.NewKey("account", "customer-42")}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := lim.Take(ctx, op); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A record with an end is read by the machine's clock where no other is given.
func TestRecordsEndByTheMachinesClock(t *testing.T) {
	s := memstore.New(memstore.Options{})
	defer s.Close()
	ctx := context.Background()
	for key, ends := range map[string]time.Duration{"over": -time.Second, "not yet": time.Hour} {
		if err := s.Put(ctx, key, []byte("x"), "", time.Now().Add(ends)); err != nil {
			t.Fatal(err)
		}
		value, _, err := s.Get(ctx, key)
		if err != nil || (len(value) == 1) != (ends > 0) {
			t.Errorf("%s: %q, %v", key, value, err)
		}
	}
}
