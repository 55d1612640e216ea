package share

import "time"

// How long a leader whose results do not come in time is not waited for. Some may be late without
// consequence: a machine can be slow.
const (
	tolerated  = 2
	minBackOff = time.Second
	maxBackOff = time.Minute
	lateAgain  = 10 * time.Second // after so long without lateness, the next one counts as the first
)

// lateness follows how often a leader's results were late. A leader that reads another stream, or
// the same one far behind, is late always. The zero value has seen none.
type lateness struct {
	count   int
	last    time.Time
	backOff time.Duration
	until   time.Time // until then the leader is not waited for
}

// observe takes a result that did not come within holdOff. Several within one hold-off count once.
func (l *lateness) observe(now time.Time, holdOff time.Duration) {
	if now.Before(l.until) || now.Sub(l.last) < holdOff {
		return
	}
	if since := now.Sub(l.last); since > lateAgain && since > 8*l.backOff {
		l.count, l.backOff = 0, 0
	}
	l.last = now
	if l.count++; l.count <= tolerated {
		return
	}
	l.backOff = min(max(2*l.backOff, minBackOff), maxBackOff)
	l.until = now.Add(l.backOff)
}
