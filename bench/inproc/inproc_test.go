package inproc_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir/bench/inproc"
)

func limiters() []inproc.Peer {
	var all []inproc.Peer
	for _, p := range append(append(inproc.Ours(), inproc.Rivals()...), inproc.Floors()...) {
		if !p.Floor {
			all = append(all, p)
		}
	}
	return all
}

// Asked by one caller after the other, every limiter allows exactly the burst,
// of each key.
func TestPeersAllowTheirBurst(t *testing.T) {
	five := inproc.Limit{Rate: 1, Period: time.Hour, Burst: 5}
	keys := inproc.Keys(50)
	for _, p := range limiters() {
		t.Run(p.Name, func(t *testing.T) {
			i, err := p.New(five, keys)
			if err != nil {
				t.Fatal(err)
			}
			defer i.Close()
			asked := keys
			if p.Stateless {
				asked = keys[:1]
			}
			for k := range asked {
				allowed := 0
				for range 20 {
					if i.Take(k) {
						allowed++
					}
				}
				if allowed != 5 {
					t.Errorf("%s: %d of 20 allowed, want 5", keys[k], allowed)
				}
			}
		})
	}
}

// Asked by many at once, weir allows exactly the burst, and refuses nobody below
// it. What rivals make of it is counted, and shown with -v.
func TestPeersAskedAtOnce(t *testing.T) {
	const callers, each, burst = 64, 500, 10_000
	for _, p := range limiters() {
		for _, c := range []struct {
			name  string
			limit inproc.Limit
			want  int64
		}{
			{"above the limit", inproc.Limit{Rate: 1, Period: time.Hour, Burst: burst}, burst},
			{"below the limit", inproc.Never, callers * each},
		} {
			i, err := p.New(c.limit, inproc.Keys(1))
			if err != nil {
				t.Fatal(err)
			}
			var allowed atomic.Int64
			var wg sync.WaitGroup
			for range callers {
				wg.Go(func() {
					for range each {
						if i.Take(0) {
							allowed.Add(1)
						}
					}
				})
			}
			wg.Wait()
			i.Close()
			wrong := allowed.Load() - c.want
			t.Logf("%s, %s: %d of %d allowed, %+d wrong", p.Name, c.name, allowed.Load(), callers*each, wrong)
			if wrong != 0 && strings.HasPrefix(p.Name, inproc.Weir) {
				t.Errorf("%s, %s: %d allowed, want %d", p.Name, c.name, allowed.Load(), c.want)
			}
		}
	}
}

// What a measurement asks is answered as it says, by every limiter.
func TestPeersAnswerAsMeasured(t *testing.T) {
	keys := inproc.Keys(1000)
	for _, p := range limiters() {
		for want, limit := range map[bool]inproc.Limit{true: inproc.Never, false: inproc.Once} {
			i, err := p.Start(limit, keys)
			if err != nil {
				t.Fatal(err)
			}
			for k := range keys {
				if i.Take(k) != want {
					t.Fatalf("%s, %+v: %s allowed %v", p.Name, limit, keys[k], !want)
				}
			}
			i.Close()
		}
	}
}

// A key that is present counts as much memory as its limits need, however many
// others there are: the figures in the table are no accident of one size.
func TestBytesPerKeyOfWeir(t *testing.T) {
	for _, keys := range []int{100_000, 125_000} {
		bytes, err := inproc.BytesPerKey(inproc.Ours()[0], keys)
		if err != nil {
			t.Fatal(err)
		}
		// Shards that are a tenth as full as in the table waste more in places.
		if bytes < 64 || bytes > 74 {
			t.Errorf("%d keys: %.1f bytes a key, want at most 74", keys, bytes)
		}
	}
	one, err := inproc.BytesOfLimits(nil, 20_000)
	if err != nil {
		t.Fatal(err)
	}
	for text, most := range map[string]float64{"1/h": 24, "quota 10/day": 40, "sliding 10/day": 40, "quota 10/day calendar": 40} {
		further := []string{text, text, text}
		bytes, err := inproc.BytesOfLimits(further, 20_000)
		if err != nil {
			t.Fatal(err)
		}
		if each := (bytes - one) / 3; each > most+1 {
			t.Errorf("each further %s takes %.1f bytes, want at most %.0f", text, each, most)
		}
	}
}
