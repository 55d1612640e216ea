package main

import (
	"slices"
	"sync"
	"time"
)

// lagSamples is how many blocks the relay's lag is the median of. Frames carry the time of whoever sent
// them to the relay, whose clock may be off, or lie.
const lagSamples = 31

// relayLag follows how old frames are when they come: large while we catch up on a relay's backlog.
type relayLag struct {
	mu      sync.Mutex
	samples [lagSamples]time.Duration
	n       int // samples ever taken
}

// observe takes the time of a block's newest frame, RFC 3339.
func (l *relayLag) observe(sent string, now time.Time) {
	t, err := time.Parse(time.RFC3339, sent)
	if err != nil {
		return // RFC 3339 allows a few things, leap seconds say, that Go does not read
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.samples[l.n%lagSamples] = max(now.Sub(t), 0)
	l.n++
}

// median returns the lag, 0 before the first sample.
func (l *relayLag) median() time.Duration {
	l.mu.Lock()
	sorted := slices.Clone(l.samples[:min(l.n, lagSamples)])
	l.mu.Unlock()
	if len(sorted) == 0 {
		return 0
	}
	slices.Sort(sorted)
	return sorted[len(sorted)/2]
}
