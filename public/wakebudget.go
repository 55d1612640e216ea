package public

import "time"

// What wake passes may use of a core, and what they are charged. The costs are those of a
// subscriber that is sent a small block: it is scheduled, reads its chunk and writes to its socket.
const (
	wakeShare     = 0.6                   // of one core
	wakeCost      = 20 * time.Microsecond // a subscriber that is woken; also each batch
	visitCost     = time.Microsecond      // a subscriber that is looked at
	maxWakeCredit = 5 * time.Millisecond  // CPU time that an idle waker saves up
)

// wakeBudget bounds the CPU time of wake passes to wakeShare of a core. Below that bound every
// subscriber is woken as soon as a block has something for it. Above it, passes take longer and the
// events of several blocks go out in one write. It is a pure value: the caller has the clock.
type wakeBudget struct {
	credit time.Duration // CPU time that may be used; below 0: used ahead of time
	at     time.Time     // when credit was last brought up to date
}

// charge accounts for a batch of visits that ended now, some of which woke their subscriber, and
// returns how long the next batch must wait.
func (b *wakeBudget) charge(now time.Time, visited, woken int) (wait time.Duration) {
	earned := time.Duration(float64(now.Sub(b.at)) * wakeShare)
	cost := time.Duration(visited)*visitCost + time.Duration(woken+1)*wakeCost
	b.credit = min(b.credit+earned, maxWakeCredit) - cost
	b.at = now
	return time.Duration(float64(max(-b.credit, 0)) / wakeShare)
}
