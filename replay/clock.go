package replay

import "time"

const (
	// maxClockStep is how far the wall clock may move against the monotonic one between two looks.
	maxClockStep = time.Minute
	// clockSteadyTime is how long it must then be steady before age counts again.
	clockSteadyTime = 10 * time.Minute
)

// clockWatch notices that the wall clock was set. Trimming by age with a wrong clock would drop
// what should be kept.
type clockWatch struct {
	now  func() time.Time
	mono func() time.Duration

	lastWall time.Time
	lastMono time.Duration
	paused   bool
	until    time.Duration // monotonic
}

// newClockWatch begins paused if the clock is far behind the log's newest stamp.
func newClockWatch(now func() time.Time, mono func() time.Duration, newestUS int64) *clockWatch {
	// Round takes the monotonic reading off: wall clocks are compared here.
	w := &clockWatch{now: now, mono: mono, lastWall: now().Round(0), lastMono: mono()}
	if behind := time.UnixMicro(newestUS).Sub(w.lastWall); behind > maxClockStep {
		w.pause()
	}
	return w
}

func (w *clockWatch) pause() {
	w.paused = true
	w.until = w.lastMono + clockSteadyTime
}

// look compares the clocks. It returns the step of the wall clock if that was too large, else 0, and
// whether age must not count now.
func (w *clockWatch) look() (step time.Duration, paused bool) {
	wall, mono := w.now().Round(0), w.mono()
	step = wall.Sub(w.lastWall) - (mono - w.lastMono)
	w.lastWall, w.lastMono = wall, mono
	if step > maxClockStep || step < -maxClockStep {
		w.pause()
		return step, true
	}
	if w.paused && mono >= w.until {
		w.paused = false
	}
	return 0, w.paused
}

// watchClock looks at the clock, raises the alarm, and says whether trimming by age is paused.
// l.trimMu is held.
func (l *Log) watchClock() (paused bool) {
	was := l.clock.paused
	step, paused := l.clock.look()
	if step != 0 {
		l.metrics.clockSteps.Inc()
		l.cfg.Logger.Error("the clock was set: trimming by age is paused until it has been steady",
			"step", step, "steady_for", clockSteadyTime)
	} else if was && !paused {
		l.cfg.Logger.Info("the clock is steady again: trimming by age goes on")
	}
	l.metrics.setTrimPaused(paused)
	return paused
}
