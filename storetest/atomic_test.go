package storetest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/weirlabs/weir"
)

// looseStore lets go of its lock between the guards and the actions.
type looseStore struct {
	sync.Locker
	now   func() int64
	items map[weir.Key]*weir.Cells
}

func (s *looseStore) Caps() weir.Caps { return weir.Caps{} }
func (s *looseStore) Close() error    { return nil }

func (s *looseStore) Apply(_ context.Context, key weir.Key, tries []weir.Write, state *weir.Cells) (int, int64, error) {
	s.Lock()
	defer s.Unlock()
	now, applied := s.now(), -1
	item := s.items[key]
	if item == nil {
		item = new(weir.Cells)
		s.items[key] = item
	}
	state.CopyFrom(item)
	for i := range tries {
		if tries[i].Holds(state, now) {
			s.Unlock()
			s.Lock()
			tries[i].Apply(state, now)
			item.CopyFrom(state)
			applied = i
			break
		}
	}
	return applied, now, nil
}

// verdict keeps what a test would fail with.
type verdict struct {
	testing.TB
	failed string
}

func (v *verdict) Fatalf(format string, args ...any) {
	v.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// verdictOn runs inTurn on a store, and returns what it fails with, or "".
func verdictOn(t *testing.T, open Open) string {
	v := &verdict{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		suite{open: open, caps: facts{clocked: true}}.inTurn(v)
	}()
	<-done
	return v.failed
}

// A store that is not atomic never passes, on one processor neither.
func TestTwoStepsAreFound(t *testing.T) {
	foundEveryTime(t, func(tb testing.TB, now func() int64) weir.Store {
		return &looseStore{Locker: new(sync.Mutex), now: now, items: map[weir.Key]*weir.Cells{}}
	})
}

func foundEveryTime(t *testing.T, open Open) {
	for _, processors := range []int{1, 2} {
		t.Run(fmt.Sprint(processors), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			for n := range 10 {
				if verdictOn(t, open) == "" {
					t.Errorf("run %d found nothing", n)
				}
			}
		})
	}
}
