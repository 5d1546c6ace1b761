package storetest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirlabs/weir"
	"github.com/weirlabs/weir/internal/plan"
)

// started checks that a write which is started is one that is applied, as often
// as its answer says, and that one which is abandoned says what may have become
// of it. Where Start gives nil, Apply does it.
func (s suite) started(t *testing.T) {
	const max = 100
	b, f := s.start(t), someFields(t)
	key := b.key()
	b.reads(key, map[weir.Field]int64{}) // it is connected
	starter := b.store.(weir.Starter)
	gone := errors.New("the caller has gone")
	var allowed, unknown atomic.Int64
	at(t, func(n int) error {
		for i := range 6 {
			tries := []weir.Write{write([]weir.Cond{{Field: f.count, Cmp: plan.AtMost, Value: max - 1, OrAbsent: true}}, add(f.count, 1))}
			if s.caps.LossyReplies {
				tries[0].Nonce = uint64(1 + n*100 + i)
			}
			pending := starter.Start(context.Background(), time.Now().Add(time.Minute), key, tries)
			if pending == nil {
				var c weir.Cells
				applied, _, err := b.store.Apply(context.Background(), key, tries, &c)
				if err != nil {
					return err
				}
				if applied == 0 {
					allowed.Add(1)
				}
				continue
			}
			if i%3 == 2 {
				err := pending.Abandon(gone)
				if !errors.Is(err, gone) {
					return errors.New("a call that is abandoned does not say why")
				}
				if errors.Is(err, weir.ErrOutcomeUnknown) {
					unknown.Add(1)
				}
				continue
			}
			<-pending.Done()
			var c weir.Cells
			applied, now, err := pending.Answer(&c)
			if err != nil {
				return err
			}
			if v, ok := c.Get(f.count); now == 0 || applied > 0 || !ok || v > max {
				t.Errorf("write %d was applied at %d, and leaves %d", applied, now, v)
			}
			if applied == 0 {
				allowed.Add(1)
			}
		}
		return nil
	})
	_, _, state := b.apply(key)
	if v := state[f.count]; v != max || allowed.Load() > max || allowed.Load()+unknown.Load() < max {
		t.Errorf("%d are counted; %d writes were answered as applied, of %d nobody knows; %d are allowed", v, allowed.Load(), unknown.Load(), max)
	}
}
