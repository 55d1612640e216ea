package main

import (
	"sync"
	"time"
)

// meter counts what a subscriber got. Safe for concurrent use; what take returns belongs to the
// caller.
type meter struct {
	mu     sync.Mutex
	events int64
	stamp  *lags // from an event's stamp until it came; nil: none came
	relay  *lags // from the commit made by the relay until it came
	came   time.Time
	gap    time.Duration // the longest in which nothing came
}

// maxRelayLag is the largest age of a commit that counts as lag. The first commits of a stream are
// older, as they were made before it began.
const maxRelayLag = 30 * time.Minute

// add counts an event that came at a moment.
func (m *meter) add(came time.Time, stampUS, madeUS int64) {
	us := came.UnixMicro()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stamp == nil {
		m.stamp, m.relay = new(lags), new(lags)
	}
	m.events++
	if stampUS > 0 {
		m.stamp.addMicros(us - stampUS)
	}
	if madeUS > 0 && us-madeUS < maxRelayLag.Microseconds() {
		m.relay.addMicros(us - madeUS)
	}
	if !m.came.IsZero() {
		m.gap = max(m.gap, came.Sub(m.came))
	}
	m.came = came
}

// take returns what was counted since the last time. The gap that is open goes on.
func (m *meter) take() *meter {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := &meter{events: m.events, stamp: m.stamp, relay: m.relay, gap: m.gap}
	if r.stamp == nil {
		r.stamp, r.relay = new(lags), new(lags)
	}
	m.events, m.stamp, m.relay, m.gap = 0, nil, nil, 0
	return r
}
