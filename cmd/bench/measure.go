package main

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// latencies collects durations. Safe for concurrent use.
type latencies struct {
	mu  sync.Mutex
	all []time.Duration
}

// maxLatencies bounds memory; when it is reached every second one is dropped, evenly over time.
const maxLatencies = 1 << 20

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) >= maxLatencies {
		for i := range len(l.all) / 2 {
			l.all[i] = l.all[2*i]
		}
		l.all = l.all[:len(l.all)/2]
	}
	l.all = append(l.all, d)
}

// take returns the 50th and 99th percentile of those added since the last take.
func (l *latencies) take() (p50, p99 time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) == 0 {
		return 0, 0
	}
	slices.Sort(l.all)
	p50, p99 = l.all[len(l.all)/2], l.all[len(l.all)*99/100]
	l.all = l.all[:0]
	return p50, p99
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }
