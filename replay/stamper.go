package replay

import (
	"time"

	"millrace/translate"
)

// Stamper gives out strictly increasing time_us stamps: the wall clock's where it moves forward, the
// last one + 1 where it does not. One goroutine uses it, in the order of the log.
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
