package ingest

import (
	"testing"
	"time"
)

func TestRelayLag(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var l relayLag
	if l.median(now) != 0 {
		t.Error("a lag before the first frame")
	}
	sent := func(ago time.Duration) string { return now.Add(-ago).Format(time.RFC3339Nano) }
	for range lagSamples {
		l.observe(sent(time.Hour), now)
	}
	if l.median(now) != time.Hour {
		t.Errorf("catching up: %v", l.median(now))
	}
	// Few clocks that are wrong change nothing, and neither does what is no time.
	for i := range lagSamples {
		switch {
		case i%4 == 0:
			l.observe("2007-01-01T00:00:00Z", now)
		case i%4 == 1:
			l.observe("3000-01-01T00:00:00Z", now)
		}
		l.observe(sent(2*time.Second), now)
		l.observe("2026-11-20T23:59:60Z", now)
	}
	if got := l.median(now); got != 2*time.Second {
		t.Errorf("live: %v, want 2s", got)
	}
	if got := l.median(now.Add(lagMemory)); got != 0 {
		t.Errorf("behind a quiet relay: %v, want 0", got)
	}
	if _, known := l.age(now.Add(lagMemory)); known {
		t.Error("behind a quiet relay an age is known")
	}
	for range lagSamples {
		l.observe(sent(-time.Hour), now)
	}
	if age, known := l.age(now); age != -time.Hour || !known || l.median(now) != 0 {
		t.Errorf("clock behind: age %v, %v, lag %v", age, known, l.median(now))
	}
}
