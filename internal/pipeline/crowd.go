package pipeline

import "time"

// crowd is who may want to take of an item now: those whom the last write has answered,
// and those who came while it was under way. The next write waits a moment for them: else
// one half would ask while the other's write is under way, again and again. It is for
// stores that neither gather calls themselves nor want gaps.
type crowd struct {
	size  int           // 0 when nobody is waited for
	until time.Duration // on the pipeline's clock
	here  chan struct{} // has a value when all have come
	skip  int           // crowds that are not waited for, since others did not come
	next  int           // and how many are not when another does not
}

const (
	maxGather = 2 * time.Millisecond
	maxSkip   = 64
)

// expect is called when a write that took so long has answered a crowd. Who has not come
// back by until does not hold up who comes later.
func (c *crowd) expect(size int, now, took time.Duration) {
	if c.skip > 0 {
		c.skip--
		return
	}
	if c.here == nil {
		c.here = make(chan struct{}, 1)
	}
	c.size, c.until = size, now+min(took, maxGather)
}

// gather waits until the crowd that is expected has come, but no longer after it was
// answered than a write takes.
func (l *lane) gather(p *Pipeline) {
	l.mu.Lock()
	c := &l.crowd
	left := c.until - p.clock()
	if left <= 0 {
		c.size = 0
	}
	missing := len(l.takes) < c.size
	l.mu.Unlock()
	if missing {
		select {
		case <-c.here:
		case <-time.After(left):
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case c.size == 0:
	case len(l.takes) < c.size:
		c.next = min(2*c.next+1, maxSkip)
		c.skip = c.next
	default:
		c.next = 0
	}
	c.size = 0
	select {
	case <-c.here: // just now
	default:
	}
}
