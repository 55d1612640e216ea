package ingest

import (
	"slices"
	"sync"
	"time"
)

// lagSamples is how many blocks the relay's lag is the median of. Frames carry the time of the
// server that sent them to the relay. Its clock may be wrong on purpose.
const lagSamples = 31

// lagMemory is how long a sample counts. If the relay is quiet for longer, the server is caught up,
// however old the last frames were when they came.
const lagMemory = time.Minute

// relayLag follows how old frames are when they come: large while the server catches up on a
// backlog.
type relayLag struct {
	mu      sync.Mutex
	samples [lagSamples]lagSample
	n       int // samples ever taken
}

type lagSample struct {
	came time.Time
	age  time.Duration // at that moment; negative if our clock is behind the sender's
}

// observe takes the time of a block's newest frame, RFC 3339.
func (l *relayLag) observe(sent string, now time.Time) {
	t, err := time.Parse(time.RFC3339, sent)
	if err != nil {
		return // RFC 3339 allows a few things, leap seconds say, that Go does not read
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.samples[l.n%lagSamples] = lagSample{now, now.Sub(t)}
	l.n++
}

// median returns the lag of what came in the minute before now, 0 if nothing did, or if our clock
// is behind.
func (l *relayLag) median(now time.Time) time.Duration {
	age, _ := l.age(now)
	return max(age, 0)
}

// age returns our clock less the time of the frames that came in the minute before now: the median.
// known is false if none came.
func (l *relayLag) age(now time.Time) (age time.Duration, known bool) {
	var ages []time.Duration
	l.mu.Lock()
	for _, s := range l.samples[:min(l.n, lagSamples)] {
		if now.Sub(s.came) < lagMemory {
			ages = append(ages, s.age)
		}
	}
	l.mu.Unlock()
	if len(ages) == 0 {
		return 0, false
	}
	slices.Sort(ages)
	return ages[len(ages)/2], true
}
