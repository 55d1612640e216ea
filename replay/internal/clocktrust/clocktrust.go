// Package clocktrust decides whether the wall clock is right, and events may thus be trimmed by
// age. It is pure: it reads no clock.
package clocktrust

import "time"

const (
	// maxStep is how far the wall clock may move against the monotonic one between two
	// readings.
	maxStep = time.Minute
	// SteadyTime is how long it must then be steady before age counts again. A log that has a
	// reference for the clock (Reading.FrameAge) begins with that time.
	SteadyTime = 10 * time.Minute
	// MaxError is how far the clock may be from the times of frames that come, to agree with
	// them.
	MaxError = 5 * time.Minute
)

// Reading is what is known of the clocks at one moment.
type Reading struct {
	Wall time.Time
	Mono time.Duration // since any fixed moment

	// FrameAge is the wall clock less the times of the frames that came of late; Known is false if
	// none did.
	FrameAge time.Duration
	Known    bool
}

// agrees says that the wall clock is right as far as the frames show.
func (r Reading) agrees() bool {
	return r.Known && r.FrameAge.Abs() <= MaxError
}

// Trust decides whether the age of events counts. Trimming by age with a wrong clock would
// drop what must be kept.
//
// After a step of the wall clock, or an open, age counts once the clock is steady for SteadyTime
// and then agrees with frames. Without a reference it counts at an open, unless the clock is behind
// the log's newest stamp. After a step it counts when the clock has been steady.
type Trust struct {
	reference bool // readings may know FrameAge
	last      Reading
	trusted   bool
	disagreed bool          // the clock is steady and was seen not to agree
	since     time.Duration // monotonic; when the clock was last set, or the log opened
}

// New begins with reading r, of a log whose newest stamp is newestUS. reference says that readings
// may know FrameAge.
func New(r Reading, newestUS int64, reference bool) Trust {
	r.Wall = r.Wall.Round(0) // wall clocks are compared here: this takes the monotonic reading off
	behind := time.UnixMicro(newestUS).Sub(r.Wall) > maxStep
	return Trust{reference: reference, last: r, trusted: !reference && !behind, since: r.Mono}
}

// Observe takes the next reading. It returns the step of the wall clock if that was too large,
// else 0.
func (c *Trust) Observe(r Reading) (step time.Duration) {
	r.Wall = r.Wall.Round(0)
	step = r.Wall.Sub(c.last.Wall) - (r.Mono - c.last.Mono)
	c.last = r
	if step.Abs() > maxStep {
		c.trusted, c.disagreed, c.since = false, false, r.Mono
		return step
	}
	if !c.trusted && c.steady() {
		c.trusted = r.agrees() || !c.reference
		c.disagreed = c.disagreed || r.Known && !c.trusted
	}
	return 0
}

// Trusted says whether age counts.
func (c *Trust) Trusted() bool { return c.trusted }

// Disagrees says that the clock is steady, but was seen not to agree with the frames, whose age was
// then.
func (c *Trust) Disagrees() (age time.Duration, yes bool) { return c.last.FrameAge, c.disagreed }

// steady says that the clock has been steady long enough.
func (c *Trust) steady() bool { return c.last.Mono-c.since >= SteadyTime }
