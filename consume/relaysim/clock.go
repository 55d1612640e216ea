package relaysim

import "time"

// timeLayout is how relays write the time of a frame.
const timeLayout = "2006-01-02T15:04:05.000Z"

// clock gives frames their times and revs. It is either the wall clock or a virtual one that moves
// by a fixed step each frame. With the latter a stream is a function of its seed alone. Revs always
// rise.
type clock struct {
	now  func() time.Time
	text []byte
	ms   int64 // what text says
	last int64 // microseconds in the newest TID
	id   uint64
}

// virtualClock begins at start and moves by step at each tick.
func virtualClock(start time.Time, step time.Duration) *clock {
	return &clock{now: func() time.Time {
		start = start.Add(step)
		return start
	}}
}

// tick reads the clock for the next frame: its time, valid until the next tick, and the
// microseconds its TIDs begin at.
func (c *clock) tick() []byte {
	t := c.now()
	if ms := t.UnixMilli(); ms != c.ms {
		c.ms = ms
		c.text = t.UTC().AppendFormat(c.text[:0], timeLayout)
	}
	c.last = max(c.last+1, t.UnixMicro())
	c.id = 0
	return c.text
}

// tid returns a TID above all before.
func (c *clock) tid() tid {
	c.id++
	if c.id == 1<<10 {
		c.id = 0
		c.last++
	}
	return makeTID(uint64(c.last)<<10 | c.id)
}
