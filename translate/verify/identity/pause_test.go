package identity

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestPause: pauses grow to a bound, end with the first answer, and are as long as the server asks.
func TestPause(t *testing.T) {
	var p pause
	down := fmt.Errorf("fetch: %w", &serverError{err: errors.New("down")})
	now := time.Unix(1000, 0)
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30} {
		p.observe(now, down)
		if got := p.until.Sub(now); got != want*time.Second {
			t.Errorf("pause %d: %v", i, got)
		}
		p.observe(now.Add(want*time.Second-1), down) // sent before
		if got := p.until.Sub(now); got != want*time.Second {
			t.Errorf("pause %d became %v", i, got)
		}
		now = p.until
	}
	for range 1000 {
		p.observe(p.until, down)
	}
	paused := p
	p.observe(p.until.Add(-1), errNoSigningKey) // sent before
	if p != paused {
		t.Errorf("an earlier answer without a key leaves %v", p)
	}
	if p.observe(p.until, errNoSigningKey); p != (pause{}) {
		t.Errorf("an answer leaves %v", p)
	}
	p = paused
	if p.observe(now, nil); p != (pause{}) {
		t.Errorf("a key leaves %v", p)
	}
	p.observe(now, &serverError{err: errors.New("busy"), retryAfter: 2 * time.Minute})
	if got := p.until.Sub(now); got != 2*time.Minute {
		t.Errorf("pause %v of 2 minutes", got)
	}
	p.observe(now, &serverError{err: errors.New("busy"), retryAfter: time.Minute})
	if got := p.until.Sub(now); got != 2*time.Minute {
		t.Errorf("a shorter one makes it %v", got)
	}
	p.observe(now, &serverError{err: errors.New("busy"), retryAfter: time.Hour})
	if got := p.until.Sub(now); got != maxAskedWait {
		t.Errorf("pause %v of an hour", got)
	}
	paused = p
	p.observe(p.until.Add(-1), nil) // sent before
	if p != paused {
		t.Errorf("a key that was asked for before leaves %v of %v", p, paused)
	}
	p.observe(p.until, down)
	p.observe(p.until.Add(-1), nil)
	if p != (pause{}) {
		t.Errorf("a key leaves %v of a pause that was not asked for", p)
	}
}

// TestRetryAfter: what a server asks for counts, also if that is days.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(d time.Duration) string { return time.Now().UTC().Add(d).Format(http.TimeFormat) }
		for value, want := range map[string]time.Duration{
			"": 0, "no number": 0, "-1": 0, " 7 ": 7 * time.Second, "86400": 24 * time.Hour,
			"4294967295": 4_294_967_295 * time.Second, "4294967296": 0, in(time.Hour): time.Hour, in(-time.Hour): -time.Hour,
		} {
			if got := retryAfterOf(http.Header{"Retry-After": {value}}); got != want {
				t.Errorf("%q: %v, want %v", value, got, want)
			}
		}
	})
}
