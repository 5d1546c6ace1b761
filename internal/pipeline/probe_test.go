package pipeline

import (
	"context"
	"testing"
	"time"

	"github.com/weirlabs/weir/internal/plan"
)

// unconnected is a store that could be asked without waiting for it, if only it
// had a connection.
type unconnected struct{ Applier }

func (unconnected) Start(context.Context, time.Time, plan.Key, []plan.Write) Pending { return nil }

// R07: a store that comes back is found well within two seconds, also when a call
// that may try it can't be asked in its caller's goroutine.
func TestR07_ProbeThatGoesOnInAnotherGoroutine(t *testing.T) {
	for _, o := range []Options{{}, {NoCoalescing: true}} {
		inBubble(t, o, func(b *bench) {
			s := spec(b.T, "q", "quota 100000/h")
			b.starter = unconnected{b.o.Store}
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
