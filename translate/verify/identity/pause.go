package identity

import (
	"errors"
	"time"
)

// Bounds of the pauses after failures of the PLC directory.
const (
	firstPause   = time.Second
	maxPause     = 30 * time.Second
	maxAskedWait = 5 * time.Minute // by Retry-After
)

// serverError is a failure of a server as a whole, and not of one account.
type serverError struct {
	err        error
	retryAfter time.Duration // that the server asks for; 0: none
}

func (e *serverError) Error() string { return e.err.Error() }
func (e *serverError) Unwrap() error { return e.err }

// pause is when a server that fails is asked again: after a second, and twice as long after each
// further failure. It has no clock.
type pause struct {
	failures int // since the last answer
	until    time.Time
	asked    bool // by the server, so that answers to earlier requests do not end it
}

// observe takes the result of a request that has ended at now.
func (p *pause) observe(now time.Time, err error) {
	var s *serverError
	failed := errors.As(err, &s)
	switch {
	case failed && s.retryAfter > 0:
		p.failures++
		p.asked = true
		p.extend(now.Add(min(s.retryAfter, maxAskedWait)))
	case (err != nil || p.asked) && now.Before(p.until): // it was sent before the pause
	case !failed:
		*p = pause{}
	default:
		p.failures++
		p.asked = false
		p.extend(now.Add(min(firstPause<<min(p.failures-1, 10), maxPause)))
	}
}

func (p *pause) extend(until time.Time) {
	if until.After(p.until) {
		p.until = until
	}
}
