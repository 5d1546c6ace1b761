package boltstore

import "time"

// clock is the store's time. It goes back no more than the clock that it is made
// of, which is monotonic unless [Options.Now] is another, and from one process to
// the next neither: the file remembers the latest time that was told. Where the machine's
// clock is behind that, the store's runs ahead of it and at half its speed, until
// the machine's has caught up. So nothing refills twice, and nothing waits for
// the machine's clock to come back to where it was.
type clock struct {
	machine func() int64
	opened  int64 // by the machine's clock
	lead    int64 // of the store's clock over it at that time
	back    int64 // by how much it had gone back, if that was too much to follow
}

// maxLead is how far a clock can have gone back to be followed so. What was
// told more than a day ahead came from a wrong clock: following it would take
// years. Limits repair such times themselves, without letting anybody start over,
// but for windows of a calendar and sliding ones: their current window starts over.
const maxLead = int64(24 * time.Hour)

func newClock(machine func() int64) clock {
	if machine == nil {
		base := time.Now()
		wall := base.UnixNano()
		machine = func() int64 { return wall + int64(time.Since(base)) }
	}
	return clock{machine: machine}
}

func (c *clock) start(seen int64) {
	c.opened = c.machine()
	if c.lead = max(seen-c.opened, 0); c.lead > maxLead {
		c.lead, c.back = 0, c.lead
	}
}

func (c *clock) now() int64 {
	now := c.machine()
	if c.lead == 0 {
		return now
	}
	return now + c.ahead(now)
}

func (c *clock) ahead(now int64) int64 { return max(c.lead-max(now-c.opened, 0)/2, 0) }
