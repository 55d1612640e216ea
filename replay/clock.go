package replay

import "time"

const (
	// maxClockStep is how far the wall clock may move against the monotonic one between two
	// readings.
	maxClockStep = time.Minute
	// clockSteadyTime is how long it must then be steady before age counts again. A log that has a
	// reference for the clock (Config.FrameAge) begins with that time.
	clockSteadyTime = 10 * time.Minute
	// maxClockError is how far the clock may be from the times of frames that come, to agree with
	// them.
	maxClockError = 5 * time.Minute
)

// clockReading is what is known of the clocks at one moment.
type clockReading struct {
	wall time.Time
	mono time.Duration // since any fixed moment

	// frameAge is the wall clock less the times of the frames that came of late; known is false if
	// none did.
	frameAge time.Duration
	known    bool
}

// agrees says that the wall clock is right as far as the frames show.
func (r clockReading) agrees() bool {
	return r.known && r.frameAge.Abs() <= maxClockError
}

// clockTrust decides whether the age of events counts. Trimming by age with a wrong clock would
// drop what must be kept. It reads no clock: the readings are given to it.
//
// After a step of the wall clock, or an open, age counts when the clock has been steady for
// clockSteadyTime and then agrees with frames that come. Without a reference it counts at an open,
// unless the clock is behind the log's newest stamp, and after a step when the clock has been
// steady.
type clockTrust struct {
	reference bool // readings may know frameAge
	last      clockReading
	trusted   bool
	disagreed bool          // the clock is steady and was seen not to agree
	since     time.Duration // monotonic; when the clock was last set, or the log opened
}

func newClockTrust(r clockReading, newestUS int64, reference bool) clockTrust {
	r.wall = r.wall.Round(0) // wall clocks are compared here: this takes the monotonic reading off
	behind := time.UnixMicro(newestUS).Sub(r.wall) > maxClockStep
	return clockTrust{reference: reference, last: r, trusted: !reference && !behind, since: r.mono}
}

// observe takes the next reading. It returns the step of the wall clock if that was too large,
// else 0.
func (c *clockTrust) observe(r clockReading) (step time.Duration) {
	r.wall = r.wall.Round(0)
	step = r.wall.Sub(c.last.wall) - (r.mono - c.last.mono)
	c.last = r
	if step.Abs() > maxClockStep {
		c.trusted, c.disagreed, c.since = false, false, r.mono
		return step
	}
	if !c.trusted && c.steady() {
		c.trusted = r.agrees() || !c.reference
		c.disagreed = c.disagreed || r.known && !c.trusted
	}
	return 0
}

// steady says that the clock has been steady long enough.
func (c *clockTrust) steady() bool { return c.last.mono-c.since >= clockSteadyTime }

// readClock returns what the clocks say now.
func (c *Config) readClock() clockReading {
	r := clockReading{wall: c.Now(), mono: c.Monotonic()}
	if c.FrameAge != nil {
		r.frameAge, r.known = c.FrameAge()
	}
	return r
}

// watchClock reads the clocks, reports what is wrong with them, and says whether age counts.
// l.trims.mu is held.
func (l *Log) watchClock() (trusted bool) {
	before := l.trims.clock
	step := l.trims.clock.observe(l.cfg.readClock())
	trusted = l.trims.clock.trusted
	switch {
	case step != 0:
		l.metrics.clockSteps.Inc()
		l.cfg.Logger.Error("the clock was set: trimming by age is paused until it has been steady and agrees with the times of frames",
			"step", step, "steady_for", clockSteadyTime)
	case trusted && !before.trusted:
		l.cfg.Logger.Info("the clock is trusted: the log is trimmed by age")
	case l.trims.clock.disagreed && !before.disagreed:
		l.cfg.Logger.Error("the clock does not agree with the times of frames: trimming by age is paused; "+
			"if no backlog is being read, check this machine's clock", "frame_age", l.trims.clock.last.frameAge, "allowed", maxClockError)
	}
	l.metrics.setTrimPaused(!trusted)
	return trusted
}
