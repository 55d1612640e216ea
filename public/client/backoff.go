package client

import (
	"math/rand/v2"
	"time"
)

// backoff says how long to wait before the next attempt: from min, doubling up to max. Each wait is
// a random half to one and a half of that. So many clients of one server do not come back at once.
type backoff struct {
	min, max time.Duration
	next     time.Duration // 0: min
	random   func(n time.Duration) time.Duration
}

func newBackoff(least, most time.Duration) backoff {
	return backoff{min: least, max: most, random: rand.N[time.Duration]}
}

// wait returns how long to wait now.
func (b *backoff) wait() time.Duration {
	base := min(max(b.next, b.min), b.max)
	b.next = 2 * base
	return base/2 + b.random(base+1)
}

// reset begins anew, after an attempt that was a success.
func (b *backoff) reset() { b.next = 0 }
