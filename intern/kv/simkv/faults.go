package simkv

import (
	"math/rand/v2"
	"sync"
	"time"
)

// Faults are probabilities, 0 to 1, of what goes wrong.
type Faults struct {
	Conflict       float64 // a commit fails with kv.ErrConflict though nothing conflicts
	UnknownApplied float64 // a commit is applied and reports kv.ErrUnknownOutcome
	UnknownLost    float64 // a commit is dropped and reports kv.ErrUnknownOutcome
	UnknownLate    float64 // a commit reports kv.ErrUnknownOutcome and is tried within LateBy
	TooOld         float64 // a commit fails with kv.ErrTooOld
	Unavailable    float64 // a Begin or a read fails with kv.ErrUnavailable
	Delay          float64 // a read or commit takes up to DelayBy longer

	LateBy  time.Duration
	DelayBy time.Duration
}

// dice draws faults. Safe for concurrent use.
type dice struct {
	mu  sync.Mutex
	rng *rand.Rand
}

// roll returns true with probability p.
func (d *dice) roll(p float64) bool {
	if p <= 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.Float64() < p
}

// upTo returns a duration from 0 to limit.
func (d *dice) upTo(limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Duration(d.rng.Int64N(int64(limit) + 1))
}
