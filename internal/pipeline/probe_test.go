package pipeline

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlabs/weir/internal/plan"
)

// unconnected is a store that would gather, if only it had a connection.
type unconnected struct{ Applier }

func (unconnected) Gather(Question) bool { return false }

// R07: a store that comes back is found well within two seconds, also when a call
// that may try it can't be asked in its caller's goroutine.
func TestR07_ProbeThatGoesOnInAnotherGoroutine(t *testing.T) {
	for _, o := range []Options{{}, {NoCoalescing: true}} {
		inBubble(t, o, func(b *bench) {
			s := spec(b.T, "q", "quota 100000/h")
			b.gatherer = unconnected{b.o.Store}
			dead := true
			b.store.lost = func(int, []plan.Write) error {
				if dead {
					return errBroken
				}
				return nil
			}
			for began := time.Now(); time.Since(began) < 10*time.Second; <-time.After(10 * time.Millisecond) {
				_, _ = b.ask(key("a"), s, 1)
			}
			dead = false
			before := b.store.trips()
			for began := time.Now(); ; <-time.After(10 * time.Millisecond) {
				if _, err := b.ask(key("a"), s, 1); err == nil {
					break
				}
				if time.Since(began) > 2*time.Second {
					b.Fatalf("not found well: %d trips in two seconds", b.store.trips()-before)
				}
			}
		})
	}
}

// R09: of a batch whose write is lost, only the calls that were in it are unknown.
// The others have their turn with the next write.
func TestR09_OnlyWhatWasInTheWriteIsUnknown(t *testing.T) {
	inBubble(t, Options{}, func(b *bench) {
		s := spec(b.T, "q", "quota 3/h")
		b.must(key("a"), s, 1)
		<-time.After(time.Second)
		b.store.took = 20 * time.Millisecond
		b.store.lost = func(trip int, _ []plan.Write) error {
			if trip == 3 {
				return errUnknown
			}
			return nil
		}
		errs, used := make(chan error, 3), make([]int64, 3)
		for i, cost := range []int64{1, 1, 2} { // the first goes out alone; of the others one fits
			go func() {
				v, err := b.ask(key("a"), s, cost)
				used[i] = v.Used
				errs <- err
			}()
			synctest.Wait()
		}
		unknown := 0
		for range 3 {
			if err := <-errs; errors.Is(err, errUnknown) {
				unknown++
			} else if err != nil {
				b.Error(err)
			}
		}
		if unknown != 1 || used[2] != 2 { // refused by a state that has one left
			b.Errorf("%d calls of unknown outcome, one was sent; the one that did not fit saw %d used", unknown, used[2])
		}
	})
}
