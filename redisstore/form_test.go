package redisstore_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
	"github.com/weirlabs/weir/redisstore"
)

// TestScriptsOfAnyForm has the store apply random writes, of up to three tries,
// with few fields and with more than a script has variables for, and compares
// with what Write itself makes of them: which is applied, and what the item is
// then, by the answer and by another look.
func TestScriptsOfAnyForm(t *testing.T) {
	const clock = 1_796_000_000_123_456_000
	b := newBench(t)
	b.store = newStore(t, &stopped{Client: b.client, known: map[string]string{}}, redisstore.Options{Prefix: "test:"})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var fields []weir.Field
	for n := range 25 {
		limit, err := weir.ParseLimit("10/s burst 20")
		if err == nil {
			_, err = limit.Named(fmt.Sprintf("form-%d", n))
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, letter := range []string{"t", "i", "d", "r"} {
			f, ok := weir.ParseField(fmt.Sprintf("form-%d.%s", n, letter))
			if !ok {
				t.Fatal("a field of a limit is unknown")
			}
			fields = append(fields, f)
		}
	}
	numbers := edges()
	number := func() int64 {
		switch random.IntN(4) {
		case 0:
			return numbers[random.IntN(len(numbers))]
		case 1:
			return int64(random.Uint64()) >> random.IntN(64)
		}
		return random.Int64N(5) - 2
	}
	nonce := uint64(0)
	var ring []uint64 // of the last writes, newest first
	var state weir.Cells
	steps, applieds := 0, 0
	for range 1500 {
		some := fields[:[]int{2, 5, 20, len(fields)}[random.IntN(4)]]
		tries := make([]weir.Write, 1+random.IntN(3))
		named := random.IntN(3) == 0
		if named {
			nonce++
		}
		for i := range tries {
			w := &tries[i]
			w.Keep = time.Hour
			if named {
				w.Nonce = nonce
			}
			for range random.IntN(3) * random.IntN(1+len(some)/2) {
				g := weir.Cond{Field: some[random.IntN(len(some))], Cmp: plan.AtMost + plan.Cmp(random.IntN(4)), OrAbsent: random.IntN(2) == 0, Rel: random.IntN(3) == 0}
				if have, ok := state.Get(g.Field); ok && random.IntN(3) > 0 {
					g.Value = have // or near it, so that some hold
					if off := random.Int64N(5) - 2; (off > 0) == (g.Value+off > g.Value) {
						g.Value += off
					}
					if g.Rel && g.Value > math.MinInt64+4e18 {
						g.Value -= clock
					}
				} else if g.Value = number(); random.IntN(8) == 0 {
					g.Field = weir.Field{Kind: weir.Clock}
				}
				if g.Rel && g.Value > math.MaxInt64-4e18 && g.Value < math.MaxInt64-1_600_000_000e9 {
					g.Value = 0 // it would be beyond int64 or not, depending on the day
				}
				if random.IntN(2) == 0 && !w.Holds(&state, clock) {
					continue
				}
				w.If = append(w.If, g)
			}
			acts := 1 + random.IntN(len(some))
			if random.IntN(3) == 0 {
				acts = 1
			}
			for _, n := range random.Perm(len(some))[:acts] {
				a := weir.Act{Field: some[n], Value: number(), Do: plan.Put + plan.Do(random.IntN(3))}
				switch {
				case a.Do == plan.Remove:
					a.Value = 0
				case a.Do == plan.Put:
					a.Rel = random.IntN(3) == 0
				}
				w.Do = append(w.Do, a)
			}
		}
		for _, again := range []bool{false, true} {
			if again && !named {
				break
			}
			steps++
			applied, now, got := b.apply(tries...)
			if now != clock {
				t.Fatalf("the script's time is %d", now)
			}
			want := -1
			seen := false
			for i := range tries {
				w := &tries[i]
				if named && want < 0 && creates(w) {
					for _, n := range ring {
						seen = seen || n == nonce
					}
					if seen {
						want = i
					}
				}
			}
			for i := range tries {
				if want < 0 && tries[i].Holds(&state, now) {
					want = i
				}
			}
			if applied != want {
				t.Fatalf("step %d: %+v on %v at %d: applied %d, want %d", steps, tries, state, now, applied, want)
			}
			if want >= 0 && !seen {
				applieds++
				tries[want].Apply(&state, now)
				if named && creates(&tries[want]) {
					ring = append([]uint64{nonce}, ring[:min(len(ring), 3)]...)
				}
			}
			_, _, look := b.apply()
			for _, c := range []*weir.Cells{got, look} {
				if c.Len() != state.Len() {
					t.Fatalf("step %d: %+v left %v, want %v", steps, tries, c, state)
				}
				for slot := range state.All() {
					if v, ok := c.Get(slot.Field); !ok || v != slot.Value {
						t.Fatalf("step %d: %+v: field %s is %d, want %d", steps, tries, slot.Field.Text(), v, slot.Value)
					}
				}
			}
			if state.Len() == 0 && !b.exists() {
				ring = nil
			}
		}
	}
	if applieds < steps/10 {
		t.Errorf("of %d writes only %d were applied", steps, applieds)
	}
}

// stopped is a client that has every script see one time.
type stopped struct {
	rueidis.Client
	known map[string]string // the names of the scripts that are run, by those of the originals
}

func (c *stopped) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	words := cmd.Commands()
	if words[0] == "EVAL" {
		sum := sha1.Sum([]byte(words[1]))
		source := strings.Replace(words[1], "call('TIME')", "{'1796000000','123456'}", 1)
		text, err := c.Client.Do(ctx, c.B().ScriptLoad().Script(source).Build()).ToString()
		if err != nil {
			return c.Client.Do(ctx, cmd)
		}
		name := hex.EncodeToString(sum[:])
		c.known[name] = text
		cmd = c.B().Arbitrary("EVALSHA", name).Args(words[2:]...).Build()
		words = cmd.Commands()
	}
	if name, ok := c.known[words[1]]; ok && words[0] == "EVALSHA" {
		cmd = c.B().Arbitrary("EVALSHA", name).Args(words[2:]...).Build()
	}
	return c.Client.Do(ctx, cmd)
}

// creates reports whether a write leaves something.
func creates(w *weir.Write) bool {
	for _, a := range w.Do {
		if a.Do != plan.Remove {
			return true
		}
	}
	return false
}
