package weir_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/memstore"
)

// terms gives a limit its terms, or ends the test.
func terms(t testing.TB, l weir.Limit, f func(weir.Limit) (weir.Limit, error)) weir.Limit {
	t.Helper()
	l, err := f(l)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func noticed(t testing.TB, text, name string) weir.Limit {
	return terms(t, limit(t, text, name), func(l weir.Limit) (weir.Limit, error) { return l.Noticed(80, 100) })
}

// Of all calls of a window, in two processes at once, one has the notice of each
// mark; the next window has its own.
func TestNoticesComeOnceAWindow(t *testing.T) {
	for _, text := range []string{"quota 50/h", "quota 50/hour calendar"} {
		t.Run(text, func(t *testing.T) {
			everywhere(t, func(t *testing.T, p *place) {
				l := noticed(t, text, "told")
				other := p.Limiter
				if p.far != nil {
					other = weir.NewLimiter(p.far, slowly(weir.Options{Now: p.now}))
				}
				for window := range 3 {
					var mu sync.Mutex
					var marks []uint8
					var group sync.WaitGroup
					for i := range 70 {
						lim := []*weir.Limiter{p.Limiter, other}[i%2]
						group.Go(func() {
							d, err := lim.Take(context.Background(), weir.Op{Limit: l, Key: someone})
							if err != nil {
								t.Error(err)
							}
							if d.Notice != 0 {
								mu.Lock()
								marks = append(marks, d.Notice)
								mu.Unlock()
							}
						})
					}
					group.Wait()
					slices.Sort(marks)
					// One write may pass both marks, and then tells of the higher one.
					if want := []uint8{80, 100}; !slices.Equal(marks, want) && !slices.Equal(marks, want[1:]) {
						t.Errorf("window %d: marks %v, want %v", window, marks, want)
					}
					p.advance(time.Hour)
				}
			})
		})
	}
}

// A mark is reached by what stays: a reservation tells of it when it is settled, at
// whatever cost, and not when it is cancelled.
func TestNoticesAndWhatComesBack(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		ctx := context.Background()
		for _, text := range []string{"quota 10/h", "quota 10/hour calendar"} {
			l := noticed(t, text, "back")
			op := weir.Op{Limit: l, Key: weir.NewKey("account", text), Cost: 7}
			p.take(op)
			op.Cost = 1
			for range 3 {
				r, d := p.reserve(op)
				if err := r.Cancel(ctx); err != nil {
					t.Fatal(err)
				}
				if each := r.Each(); d.Notice != 0 || each[0].Notice != 0 {
					t.Errorf("%s: what came back has told: %d, %d", text, d.Notice, each[0].Notice)
				}
			}
			r, d := p.reserve(op)
			p.settle(r)
			if each := r.Each(); d.Notice != 0 || each[0].Notice != 80 || each[0].Used != 8 {
				t.Errorf("%s: %+v, then %+v", text, d, each[0])
			}
			r, _ = p.reserve(op)
			p.settle(r, 5)
			if each := r.Each(); each[0].Notice != 100 {
				t.Errorf("%s: settled at 13 of 10: notice %d", text, each[0].Notice)
			}
			if d := p.take(op); d.Allowed || d.Notice != 0 {
				t.Errorf("%s: %+v", text, d)
			}
		}
	})
}

// A metered quota refuses nothing, counts what is beyond it, and takes back.
func TestMeteredQuotasCountOn(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range []string{"quota 10/h", "quota 10/hour calendar"} {
			l := terms(t, limit(t, text, "metered"), weir.Limit.Metered)
			if !l.IsMetered() || l.Max() != 10 || l.String() != text {
				t.Fatalf("%v", l)
			}
			op := weir.Op{Limit: l, Key: weir.NewKey("account", text), Cost: 4}
			for i, want := range []int64{4, 8, 12, 16} {
				if d := p.take(op); !d.Allowed || d.Used != want || d.Remaining != max(10-want, 0) {
					t.Errorf("%s: call %d: %+v", text, i, d)
				}
			}
			op.Cost = 100 // more than it holds
			r, d := p.reserve(op)
			if !d.Allowed || d.Used != 116 {
				t.Errorf("%s: %+v", text, d)
			}
			p.settle(r, 1000)
			if used := p.peek(op)[0].Used; used != 1016 {
				t.Errorf("%s: %d used, want 1016: what was settled has no floor here", text, used)
			}
			// A broader limit that refuses gives it back, too.
			full := limit(t, "1/h", "full")
			broad := weir.Op{Limit: full, Key: weir.NewKey("tenant", text)}
			p.take(broad)
			op.Cost = 5
			r, d = p.reserve(op, broad)
			if d.Allowed || p.peek(op)[0].Used != 1016 {
				t.Errorf("%s: %+v, used %d", text, d, p.peek(op)[0].Used)
			}
			if each := r.Each(); each[0].Remaining != 0 {
				t.Errorf("%s: %d left of what is beyond itself", text, each[0].Remaining)
			}
		}
	})
}

// Debt goes down to the declared floor, and not at all where that is 0.
func TestSpec_B08_SettlingGoesIntoDebtToAFloor(t *testing.T) {
	everywhere(t, func(t *testing.T, p *place) {
		for _, text := range everyKind {
			for debt, want := range map[int64]int64{0: 10, 4: 14, 10: 20} {
				l := terms(t, limit(t, text, "debt"), func(l weir.Limit) (weir.Limit, error) { return l.WithDebt(debt) })
				op := weir.Op{Limit: l, Key: weir.NewKey("account", fmt.Sprint(text, debt)), Cost: 6}
				r, _ := p.reserve(op)
				p.settle(r, 1000)
				if d := p.peek(op)[0]; d.Used != want || d.Remaining != 0 || d.Allowed {
					t.Errorf("%s with a debt of %d: %+v, want %d used", text, debt, d, want)
				}
			}
		}
	})
}

// Without terms nothing is paid for them.
func TestTermsCostNothingWhereThereAreNone(t *testing.T) {
	if size := unsafe.Sizeof(weir.Decision{}); size > 64 {
		t.Errorf("a Decision has %d bytes, want 64 at most", size)
	}
	lim := weir.NewLimiter(memstore.New(memstore.Options{}), weir.Options{})
	for _, l := range []weir.Limit{limit(t, "quota 1000000000/day", "plain"), noticed(t, "quota 1000000000/day", "told")} {
		op := weir.Op{Limit: l, Key: someone}
		if n := testing.AllocsPerRun(1000, func() { _, _ = lim.Take(context.Background(), op) }); n != 0 {
			t.Errorf("%v: %v allocations", l, n)
		}
	}
}

// A field belongs to the limits of its name whose form has it: not to one that has
// become another form, nor to one without marks.
func TestOwns(t *testing.T) {
	bucket, daily, marked := limit(t, "5/h", "owned"), limit(t, "quota 5/d calendar", "owned"), noticed(t, "quota 5/h", "owned")
	all := []weir.Limit{bucket, daily, marked, limit(t, "quota 5/h", "not-owned"), {}}
	for text, owners := range map[string][]weir.Limit{
		"owned.t": {bucket, marked}, "owned~.i": {bucket, marked}, "owned.c": {bucket, marked}, "owned.c@day/UTC:1773446400": {daily}, "owned~.c@day/UTC:1773446400": {daily},
		"owned%.c": {marked}, "owned%~.c": {marked}, "not-owned.c": all[3:4],
	} {
		f, ok := weir.ParseField(text)
		if !ok {
			t.Errorf("%s is no field", text)
		}
		for _, l := range all {
			if want := slices.Contains(owners, l); l.Owns(f) != want {
				t.Errorf("%q (%v) owns %s: %v, want %v", l.Name(), l, text, !want, want)
			}
		}
	}
}
