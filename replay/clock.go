package replay

import (
	"time"

	"millrace/replay/internal/clocktrust"
	"millrace/translate"
)

// Stamper gives out strictly increasing time_us stamps: the wall clock's where it moves forward,
// the last one + 1 where it does not. One goroutine uses it, in the order of the log.
type Stamper struct {
	last int64
	now  func() time.Time
}

// NewStamper continues after last (Progress.TimeUS). now is the wall clock; nil: time.Now.
func NewStamper(last int64, now func() time.Time) *Stamper {
	if now == nil {
		now = time.Now
	}
	return &Stamper{last: last, now: now}
}

// Next returns the next stamp, in Unix microseconds.
func (s *Stamper) Next() int64 {
	s.last = max(s.now().UnixMicro(), s.last+1, translate.MinTimeUS)
	return s.last
}

// StampBatch stamps all events of b in order, reading the clock once.
func (s *Stamper) StampBatch(b *translate.Batch) {
	if len(b.Events) == 0 {
		return
	}
	next := s.Next()
	for i := range b.Events {
		b.Stamp(i, next)
		s.last = next
		next++
	}
}

// readClock returns what the clocks say now.
func (c *Config) readClock() clocktrust.Reading {
	r := clocktrust.Reading{Wall: c.Now(), Mono: c.Monotonic()}
	if c.FrameAge != nil {
		r.FrameAge, r.Known = c.FrameAge()
	}
	return r
}

// watchClockLocked reads the clocks, reports what is wrong with them, and says whether age counts.
// It needs l.trims.mu.
func (l *Log) watchClockLocked() (trusted bool) {
	before := l.trims.clock
	step := l.trims.clock.Observe(l.cfg.readClock())
	trusted = l.trims.clock.Trusted()
	age, disagrees := l.trims.clock.Disagrees()
	_, disagreed := before.Disagrees()
	switch {
	case step != 0:
		l.metrics.clockSteps.Inc()
		l.cfg.Logger.Error("the clock was set: trimming by age is paused until it has been steady and agrees with the times of frames",
			"step", step, "steady_for", clocktrust.SteadyTime)
	case trusted && !before.Trusted():
		l.cfg.Logger.Info("the clock is trusted: the log is trimmed by age")
	case disagrees && !disagreed:
		l.cfg.Logger.Error("the clock does not agree with the times of frames: trimming by age is paused; "+
			"if no backlog is being read, check this machine's clock", "frame_age", age, "allowed", clocktrust.MaxError)
	}
	l.metrics.trimPaused.Store(!trusted)
	return trusted
}
