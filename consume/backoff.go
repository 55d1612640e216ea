package consume

import (
	"errors"
	"math/rand/v2"
	"time"
)

const (
	backoffBase = 500 * time.Millisecond // the longest wait before the first new attempt
	backoffCap  = 30 * time.Second       // the longest wait of all

	// steadyUp is how long a connection that delivered frames must have lasted to begin the count
	// anew. One that the relay ends sooner, again and again, would be dialled as fast.
	steadyUp = time.Second
)

// backoff spreads reconnects. Before attempt n it waits a random time between zero and
// min(backoffCap, backoffBase << n). It uses the whole range, so that a relay's many clients do not
// come back together.
type backoff struct {
	attempt int
	random  func(n int64) int64 // uniform in [0, n); nil: math/rand
}

// next returns how long to wait now, and counts the attempt.
func (b *backoff) next() time.Duration {
	most := backoffCap
	if b.attempt < 6 { // 500 ms << 6 is above the cap
		most = min(most, backoffBase<<b.attempt)
	}
	b.attempt++
	random := b.random
	if random == nil {
		random = rand.Int64N
	}
	return time.Duration(random(int64(most) + 1))
}

// reset begins the count anew.
func (b *backoff) reset() { b.attempt = 0 }

// reconnects decides how long to wait before the next connection. It reads no clock.
type reconnects struct {
	patience time.Duration // Config.EpochPatience

	dials     backoff
	epochs    backoff
	lastEpoch time.Time // when a new epoch last began; zero: none did
}

// wait returns how long to wait after a connection that ended at now.
func (r *reconnects) wait(now time.Time, e ending) time.Duration {
	if e.delivered && e.up >= steadyUp {
		r.dials.reset()
	}
	switch e.cause {
	case causeRecheck:
		return 0 // the patience limits these
	case causeNewEpoch:
		// A relay that restarts is followed at once. One that shows other events under the same
		// numbers again and again is not: each change costs an epoch, a gap and repeats.
		soon := now.Sub(r.lastEpoch) < r.patience
		r.lastEpoch = now
		if soon {
			return r.epochs.next()
		}
		r.epochs.reset()
		return 0
	}
	wait := r.dials.next()
	if refused, ok := errors.AsType[*refusedError](e.err); ok {
		wait += refused.wait
	}
	return wait
}
