package pipeline

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestAlarmOfAnEarlierWait: a take is used again while its alarm is still set.
// Whenever that rings, a wait ends at its own time, or with its value.
func TestAlarmOfAnEarlierWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &Pipeline{begun: time.Now()}
		value := make(chan struct{}, 1)
		again := &take{done: value}
		wait := func(d time.Duration) (answered bool, took time.Duration) {
			began := p.clock()
			answered = p.wait(context.Background(), again, began, began+d)
			return answered, p.clock() - began
		}
		const ms = time.Millisecond
		for _, c := range []struct{ earlier, between, wait time.Duration }{
			{100 * ms, 0, 150 * ms},         // it rings in the later wait
			{time.Second, 0, 10 * ms},       // it would ring after that
			{50 * ms, 60 * ms, 20 * ms},     // it has rung
			{50 * ms, 50 * ms, 50 * ms},     // it rings as the wait begins
			{100 * ms, 20 * ms, 80 * ms},    // it rings as the wait ends
			{time.Second, 999 * ms, 5 * ms}, // it rings in it
		} {
			value <- struct{}{}
			if answered, took := wait(c.earlier); !answered || took != 0 {
				t.Errorf("%+v: a value that is there took %v, %v", c, took, answered)
			}
			<-time.After(c.between)
			if answered, took := wait(c.wait); answered || took != c.wait {
				t.Errorf("%+v: the wait lasted %v, answered %v", c, took, answered)
			}
		}
		time.AfterFunc(30*ms, func() { value <- struct{}{} })
		if answered, took := wait(time.Minute); !answered || took != 30*ms {
			t.Errorf("a value after 30 ms came after %v, %v", took, answered)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if p.wait(ctx, again, p.clock(), p.clock()+time.Minute) {
			t.Error("a caller who has gone was told that there is a value")
		}
	})
}
