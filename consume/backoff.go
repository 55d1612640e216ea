package consume

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	backoffBase = 500 * time.Millisecond // the most waited before the first new attempt
	backoffCap  = 30 * time.Second       // the most ever waited
	healthyFor  = time.Minute            // a connection that lasted so long begins the count anew
)

// backoff spreads reconnects: before attempt n it waits a random time between zero and
// min(backoffCap, backoffBase << n), the whole range, so that a relay's many clients do not come
// back together.
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

// ended tells how long the last connection was up, zero if it never was.
func (b *backoff) ended(up time.Duration) {
	if up >= healthyFor {
		b.attempt = 0
	}
}

// sleep waits for d or until ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
