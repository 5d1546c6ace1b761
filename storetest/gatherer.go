package storetest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
)

// gathered checks that what a question says is applied, as often as its answers
// say; that it is asked and answered in turns, and not at all once it has nothing
// to say; and that it may have itself gathered again while it is answered. Where
// Gather reports false, Apply does it.
func (s suite) gathered(t *testing.T) {
	const max = 100
	b, f := s.start(t), someFields(t)
	key := b.key()
	b.reads(key, map[weir.Field]int64{}) // it is connected
	var allowed atomic.Int64
	at(t, func(n int) error {
		q := &question{
			gatherer: b.store.(weir.Gatherer), key: key, left: 6, over: make(chan error, 1),
			write: func(i int) weir.Write {
				w := write([]weir.Cond{{Field: f.count, Cmp: plan.AtMost, Value: max - 1, OrAbsent: true}}, add(f.count, 1))
				if s.caps.LossyReplies {
					w.Nonce = uint64(1 + n*100 + i)
				}
				return w
			},
			found: func(applied int, now int64, c *weir.Cells) error {
				if v, ok := c.Get(f.count); now == 0 || applied > 0 || !ok || v > max {
					return fmt.Errorf("write %d was applied at %d, and leaves %d", applied, now, v)
				}
				if applied == 0 {
					allowed.Add(1)
				}
				return nil
			},
		}
		if q.gatherer.Gather(q) {
			return <-q.over
		}
		for i := range q.left { // it never does, as it is set up
			var c weir.Cells
			applied, now, err := b.store.Apply(context.Background(), key, []weir.Write{q.write(i)}, &c)
			if err == nil {
				err = q.found(applied, now, &c)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	_, _, state := b.apply(key)
	if v := state[f.count]; v != max || allowed.Load() != max {
		t.Errorf("%d are counted and %d allowed, want %d", v, allowed.Load(), max)
	}
}

// question asks for some writes, one after the other, and then says that there is
// nothing more.
type question struct {
	gatherer weir.Gatherer
	key      weir.Key
	write    func(i int) weir.Write
	found    func(applied int, now int64, c *weir.Cells) error
	left     int
	tries    []weir.Write
	asked    bool // and not answered yet
	over     chan error
}

func (q *question) Ask() (a weir.Attempt, ok bool) {
	if q.asked {
		q.over <- fmt.Errorf("asked again before the answer")
		return a, false
	}
	if q.left == 0 {
		q.over <- nil
		return a, false
	}
	q.asked = true
	q.tries = append(q.tries[:0], q.write(q.left))
	return weir.Attempt{Context: context.Background(), Until: time.Now().Add(time.Minute), Item: q.key, Tries: q.tries}, true
}

func (q *question) Answered(a weir.Answer) {
	q.asked = false
	q.left--
	var c weir.Cells
	applied, now, err := a.Read(&c)
	if err == nil {
		err = q.found(applied, now, &c)
	}
	if err == nil && !q.gatherer.Gather(q) {
		err = fmt.Errorf("a store that has just answered does not gather")
	}
	if err != nil {
		q.over <- err
	}
}
