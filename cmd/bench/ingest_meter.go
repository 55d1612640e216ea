package main

import (
	"math"
	"math/bits"
	"sync"
	"time"
)

// meter counts what a subscriber got. It is safe for concurrent use.
type meter struct {
	mu     sync.Mutex
	events int64
	bytes  int64
	stamp  lags // from an event's stamp until it came
	relay  lags // from the commit made by the relay until it came
	came   time.Time
	gap    time.Duration // the longest in which nothing came
	gaps   int           // those over stallLimit
}

// stallLimit is what a stall is.
const stallLimit = 100 * time.Millisecond

// maxRelayLag bounds what is taken for a lag: the first commits of a stream were made before it
// began.
const maxRelayLag = 30 * time.Minute

// add counts an event that came at a moment.
func (m *meter) add(came time.Time, bytes int, stampUS, madeUS int64) {
	us := came.UnixMicro()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events++
	m.bytes += int64(bytes)
	if stampUS > 0 {
		m.stamp.add(us - stampUS)
	}
	if madeUS > 0 && us-madeUS < maxRelayLag.Microseconds() {
		m.relay.add(us - madeUS)
	}
	if came == m.came {
		return
	}
	if wait := came.Sub(m.came); !m.came.IsZero() {
		m.gap = max(m.gap, wait)
		if wait > stallLimit {
			m.gaps++
		}
	}
	m.came = came
}

// take returns what was counted since the last time. The gap that is open goes on.
func (m *meter) take() meterReading {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := meterReading{events: m.events, bytes: m.bytes, stamp: m.stamp, relay: m.relay, gap: m.gap, gaps: m.gaps}
	m.events, m.bytes, m.stamp, m.relay, m.gap, m.gaps = 0, 0, lags{}, lags{}, 0, 0
	return r
}

// meterReading is what a meter counted in some time.
type meterReading struct {
	events, bytes int64
	stamp, relay  lags
	gap           time.Duration
	gaps          int
}

// lags is a histogram of microseconds with steps of about 3 %.
type lags struct {
	n      int64
	counts [lagSteps * 32]int64
}

// lagSteps is how many steps double the lag.
const lagSteps = 32

func (l *lags) add(us int64) {
	l.n++
	l.counts[lagStep(us)]++
}

// lagStep returns the number of a lag's step: the lag's power of two, and 5 bits more of it.
func lagStep(us int64) int {
	v := uint64(min(max(us, 0), math.MaxUint32>>1)) + lagSteps
	power := bits.Len64(v) - 1 - 5
	return min(power*lagSteps+int(v>>power)-lagSteps, lagSteps*32-1)
}

// quantile returns the lag that a part q of all is at or below, to the upper end of its step; 0 if
// there is none.
func (l *lags) quantile(q float64) time.Duration {
	left := int64(math.Ceil(q * float64(l.n)))
	if l.n == 0 {
		return 0
	}
	for i, n := range l.counts {
		if left -= n; left <= 0 {
			power := i / lagSteps
			upper := (int64(i%lagSteps)+lagSteps+1)<<power - lagSteps - 1
			return time.Duration(upper) * time.Microsecond
		}
	}
	return 0
}
