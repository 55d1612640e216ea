package main

import (
	"fmt"
	"io"
	"strconv"
	"time"
)

// tailProgressEvery is how often the progress line is written.
const tailProgressEvery = 250 * time.Millisecond

// liveLag is how old an event may be and still count as live.
const liveLag = 5 * time.Second

// maxLeft is the longest catch-up that is said, in seconds: some 30 years.
const maxLeft = 1e9

// eraseLine takes back what the terminal's line holds.
const eraseLine = "\r\x1b[K"

// progress is a line on standard error that says how far a replay is. One goroutine uses it.
type progress struct {
	w   io.Writer // nil: there is none
	now func() time.Time

	begun  time.Time
	first  time.Time // stamp of what came first
	at     time.Time // stamp of what came last
	events int64
	shown  bool
	drawn  time.Time
}

// see notes how far the log is read, and how many events came with it.
func (p *progress) see(timeUS, events int64) {
	if p.w == nil || timeUS == 0 {
		return
	}
	p.at = time.UnixMicro(timeUS)
	p.events += events
	if p.first.IsZero() {
		p.first, p.begun = p.at, p.now()
	}
}

// draw writes the line if one is due.
func (p *progress) draw() {
	if p.w == nil || p.first.IsZero() {
		return
	}
	now := p.now()
	behind := now.Sub(p.at)
	if behind < liveLag {
		p.erase()
		return
	}
	if now.Sub(p.drawn) < tailProgressEvery {
		return
	}
	p.drawn, p.shown = now, true
	fmt.Fprint(p.w, eraseLine+p.line(now, behind))
}

// line is the progress in words.
func (p *progress) line(now time.Time, behind time.Duration) string {
	took := max(now.Sub(p.begun), time.Millisecond)
	s := fmt.Sprintf("at %s, %s behind, %s events/s", p.at.In(now.Location()).Format("2006-01-02 15:04:05"),
		roughly(behind), thousands(int64(float64(p.events)/took.Seconds())))
	// During the catch-up more events are stamped.
	left := behind.Seconds() / (p.at.Sub(p.first).Seconds()/took.Seconds() - 1)
	if took > 2*tailProgressEvery && left > 0 && left < maxLeft {
		s += ", live in " + roughly(time.Duration(left*float64(time.Second)))
	}
	return s
}

// erase takes the line back, so that something else can be written.
func (p *progress) erase() {
	if p.shown {
		fmt.Fprint(p.w, eraseLine)
		p.shown = false
		p.drawn = time.Time{}
	}
}

// roughly writes a duration in its two largest units.
func roughly(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d d %d h", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// thousands writes 1234567 as 1,234,567.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
