package main

import (
	"fmt"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// lags is a histogram of durations with steps of about 3 %. Safe for concurrent use.
type lags struct {
	counts [lagSteps * 32]atomic.Int64
}

// lagSteps is how many steps double the lag.
const lagSteps = 32

func (l *lags) add(d time.Duration) { l.addMicros(d.Microseconds()) }

func (l *lags) addMicros(us int64) { l.counts[lagStep(us)].Add(1) }

// lagStep returns the number of a lag's step: the lag's power of two, and 5 bits more of it.
func lagStep(us int64) int {
	v := uint64(min(max(us, 0), math.MaxUint32>>1)) + lagSteps
	power := bits.Len64(v) - 1 - 5
	return min(power*lagSteps+int(v>>power)-lagSteps, lagSteps*32-1)
}

// quantile returns the lag that a part q of all is at or below, to the upper end of its step. It
// returns 0 if there is none.
func (l *lags) quantile(q float64) time.Duration {
	var all int64
	for i := range l.counts {
		all += l.counts[i].Load()
	}
	if all == 0 {
		return 0
	}
	left := int64(math.Ceil(q * float64(all)))
	for i := range l.counts {
		if left -= l.counts[i].Load(); left <= 0 {
			power := i / lagSteps
			upper := (int64(i%lagSteps)+lagSteps+1)<<power - lagSteps - 1
			return time.Duration(upper) * time.Microsecond
		}
	}
	return 0
}

func (l *lags) p50() string { return ms(l.quantile(0.5)) }
func (l *lags) p99() string { return ms(l.quantile(0.99)) }

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }
