package client

import (
	"fmt"
	"testing"
	"time"
)

// at is a position of stream a, or of later ones.
func at(seq int64, stream ...string) position {
	return position{stream: append(stream, "a")[0], seq: seq}
}

// TestSelector: observations in, decisions out. Seconds are those since the start; a server lags
// after ten.
func TestSelector(t *testing.T) {
	const lag = 10 * time.Second
	clock := func(s float64) time.Time {
		return time.Unix(1_790_000_000, 0).Add(time.Duration(s * float64(time.Second)))
	}
	says := func(s *selector, second float64, newest ...position) {
		for i, p := range newest {
			s.answered(i, p, 0, clock(second), clock(second))
		}
	}
	for name, tc := range map[string]struct {
		observe func(s *selector)
		now     float64
		next    int     // when the current server, 0, is left
		wait    float64 // before that
		by      int     // what overtakes it before; 0: none does
	}{
		"nothing is known": {func(*selector) {}, 0, 1, 0, 0},
		"failed, others are as good": {func(s *selector) {
			s.servers[0].notBefore = clock(3)
		}, 1, 1, 0, 0},
		"the next one is dead": {func(s *selector) { s.servers[1].dead = true }, 0, 2, 0, 0},
		"the next one refuses": {func(s *selector) { s.servers[1].refused = true }, 0, 2, 0, 0},
		"refused beats waiting": {func(s *selector) {
			s.servers[0].notBefore, s.servers[1].notBefore, s.servers[2].refused = clock(3), clock(3), true
		}, 0, 2, 0, 0},
		"the others are dead, and it waits for less than an attempt takes": {func(s *selector) {
			s.servers[0].notBefore, s.servers[1].dead, s.servers[2].refused = clock(0.9), true, true
		}, 0, 0, 0.9, 0},
		"the others are dead, and it waits for longer": {func(s *selector) {
			s.servers[0].notBefore, s.servers[1].dead, s.servers[2].refused = clock(1.1), true, true
		}, 0, 1, 0, 0},
		"all wait": {func(s *selector) {
			s.servers[0].notBefore, s.servers[1].notBefore, s.servers[2].notBefore = clock(5), clock(4), clock(3.5)
		}, 1, 2, 2.5, 0},
		"the next one lags": {func(s *selector) {
			says(s, 0, at(10), at(10), at(10))
			says(s, 10, at(20), at(9), at(20))
		}, 10, 2, 0, 0},
		"overtaken": {func(s *selector) {
			says(s, 0, at(10), at(20), at(20))
			says(s, 10, at(19), at(30), at(30))
		}, 10, 1, 0, 1},
		"overtaken by the one that is ready": {func(s *selector) {
			says(s, 0, at(10), at(20), at(20))
			says(s, 10, at(19), at(30), at(30))
			s.servers[1].notBefore = clock(20)
		}, 10, 2, 0, 2},
		"behind, not for long enough": {func(s *selector) {
			says(s, 0, at(10), at(20))
			says(s, 9.9, at(10), at(30))
		}, 10, 1, 0, 0},
		"behind, but by less": {func(s *selector) {
			says(s, 0, at(10), at(20))
			says(s, 10, at(20), at(9000))
		}, 10, 1, 0, 0},
		"left for lag, but has caught up": {func(s *selector) {
			says(s, 0, at(10), at(10), at(10))
			says(s, 10, at(20), at(9), at(15))
			s.servers[0].lagUntil = clock(20)
		}, 10, 0, 0, 0},
		"left for lag, and lags": {func(s *selector) {
			says(s, 0, at(10), at(20), at(10))
			says(s, 10, at(15), at(20), at(14))
			s.servers[0].lagUntil, s.servers[1].dead = clock(20), true
		}, 10, 2, 0, 0},
		"left for lag, and lags, with the others dead": {func(s *selector) {
			says(s, 0, at(10), at(20), at(20))
			says(s, 10, at(15), at(20), at(20))
			s.servers[0].lagUntil, s.servers[1].dead, s.servers[2].dead = clock(20), true, true
		}, 10, 0, 0, 0},
		"does not answer": {func(s *selector) {
			says(s, 0, at(10), at(20))
			s.answered(1, at(30), 0, clock(30), clock(30))
		}, 30, 1, 0, 0},
		"those ahead are dead": {func(s *selector) {
			says(s, 0, at(10), at(20), at(20))
			says(s, 10, at(10), at(30), at(30))
			s.servers[0].dead, s.servers[1].dead, s.servers[2].dead = true, true, true
		}, 10, 1, 0, 0},
		"nothing new anywhere": {func(s *selector) {
			says(s, 0, at(10), at(10), at(10))
			says(s, 100, at(10), at(10), at(10))
		}, 100, 1, 0, 0},
		"another relay's numbers": {func(s *selector) {
			says(s, 0, at(10), at(99, "z"), at(99, "z"))
			says(s, 10, at(10), at(100, "z"), at(100, "z"))
		}, 10, 1, 0, 0},
		"the others saw the relay begin anew": {func(s *selector) {
			says(s, 0, at(10), at(10), at(10))
			says(s, 1, at(10), at(1, "b"), at(1, "b"))
			says(s, 11, at(10), at(5, "b"), at(5, "b"))
		}, 11, 1, 0, 1},
		"an empty log": {func(s *selector) {
			says(s, 0, position{}, at(10), at(10))
			says(s, 10, position{}, at(10), at(10))
		}, 10, 1, 0, 1},
		"the oldest log, when none has the cursor's": {func(s *selector) {
			s.answered(1, at(10), 300, clock(0), clock(0))
			s.answered(2, at(10), 200, clock(0), clock(0))
			s.beginLenient()
		}, 0, 2, 0, 0},
	} {
		s := newSelector(3, lag, time.Minute)
		tc.observe(&s)
		by, ok := s.lagging(clock(tc.now))
		if !ok {
			by = 0
		}
		if by != tc.by {
			t.Errorf("%s: overtaken by %d, want %d", name, by, tc.by)
		}
		if wait := s.next(clock(tc.now)); s.current != tc.next || wait.Seconds() != tc.wait {
			t.Errorf("%s: next is %d after %v, want %d after %vs", name, s.current, wait, tc.next, tc.wait)
		}
	}
}

// TestLagOfTurns: two servers that lag in turn are left ever more rarely, until they cease.
func TestLagOfTurns(t *testing.T) {
	const lag, step = 10 * time.Second, 2500 * time.Millisecond
	s := newSelector(2, lag, time.Minute)
	now := time.Unix(1_790_000_000, 0)
	var left []string
	seq, since := int64(0), now
	for range 4 * 60 * 24 { // four hours
		now = now.Add(step)
		seq++
		behind := position{stream: "a", seq: 1} // the one that is read
		both := []position{{stream: "a", seq: seq}, {stream: "a", seq: seq}}
		both[s.current] = behind
		for i, p := range both {
			s.answered(i, p, 0, now, now)
		}
		if _, ok := s.lagging(now); ok {
			left = append(left, fmt.Sprint(now.Sub(since).Truncate(lag)))
			since = now
			s.leaveForLag(now)
			s.next(now)
		}
	}
	if len(left) < 20 || len(left) > 200 {
		t.Errorf("left %d times in four hours: %v", len(left), left)
	}
	if got := fmt.Sprint(left[:4]); got != "[10s 10s 20s 40s]" {
		t.Errorf("left after %s", got)
	}
	if len(s.frontiers) > maxFrontiers || s.lag != maxLagFactor*lag {
		t.Errorf("%d positions kept, lag %v", len(s.frontiers), s.lag)
	}
}
