package client

import (
	"slices"
	"time"
)

const (
	// maxLagFactor bounds how far switches for lag drive up the lag that is tolerated.
	maxLagFactor = 16
	// maxFrontiers and maxStreams bound what a selector remembers.
	maxFrontiers = 4096
	maxStreams   = 16
)

// selector decides which of several servers is read. It has no clock: each method is given the
// time. The zero serverState is that of a server of which nothing is known.
//
// A server lags if it has not reached a position that another one reported longer ago than lag.
// Each switch for lag doubles lag, up to maxLagFactor times minLag. After four times lag without
// such a switch it is minLag again. For the time of lag before the switch, the client does not
// return to the server that it left, unless the current one fails. Then it returns if that server
// has caught up, or if no other answers.
type selector struct {
	servers []serverState
	current int
	lenient bool // the oldest log first: no server has what comes after the cursor

	doubt       time.Duration // how much later one is due that did not answer, or refused
	minLag, lag time.Duration
	lagLeft     time.Time  // when a server was left for lag last
	frontiers   []frontier // rising
	streams     []string   // as they followed each other on some server
}

// serverState is what is known of one server.
type serverState struct {
	notBefore time.Time // it is left alone until then
	lagUntil  time.Time // it was left for lag: others that answer are preferred while it lags
	refused   bool      // the last attempt was: it does not serve what is asked
	dead      bool      // it did not answer when it was asked last
	newest    position  // of its log
	askedAt   time.Time // for newest
	oldestUS  int64     // of its log; 0: unknown
}

// frontier is a position that no server had reported before seen.
type frontier struct {
	at   position
	seen time.Time
}

func newSelector(servers int, lag, maxBackoff time.Duration) selector {
	// A server whose attempts all fail comes to wait for longer than half of maxBackoff.
	doubt := min(firstAttempt, maxBackoff/2)
	return selector{servers: make([]serverState, servers), doubt: doubt, minLag: lag, lag: lag}
}

// answered notes what server i, asked at askedAt, said of its log at now.
func (s *selector) answered(i int, newest position, oldestUS int64, askedAt, now time.Time) {
	state := &s.servers[i]
	before := state.newest
	state.dead, state.newest, state.oldestUS, state.askedAt = false, newest, oldestUS, askedAt
	if newest.stream == "" {
		return
	}
	if !slices.Contains(s.streams, newest.stream) {
		if at := slices.Index(s.streams, before.stream); at >= 0 || len(s.streams) == 0 {
			s.streams = slices.Insert(s.streams, at+1, newest.stream)
			s.streams = s.streams[max(0, len(s.streams)-maxStreams):]
		}
	}
	if n := len(s.frontiers); n == 0 || s.before(s.frontiers[n-1].at, newest) {
		s.frontiers = append(s.frontiers, frontier{newest, now})
		s.frontiers = s.frontiers[max(0, len(s.frontiers)-maxFrontiers):]
	}
	// The newest one that is older than the longest lag is still of use.
	for len(s.frontiers) > 1 && now.Sub(s.frontiers[1].seen) > 2*maxLagFactor*s.minLag {
		s.frontiers = s.frontiers[1:]
	}
}

// before says whether p is known to come before q.
func (s *selector) before(p, q position) bool {
	switch p.stream {
	case "": // an empty log
		return q.stream != ""
	case q.stream:
		return q.follows(p)
	}
	i := slices.Index(s.streams, p.stream)
	return i >= 0 && i < slices.Index(s.streams, q.stream)
}

// behind says whether server i lagged when it was asked last.
func (s *selector) behind(i int) bool {
	state := &s.servers[i]
	for _, f := range slices.Backward(s.frontiers) {
		if state.askedAt.Sub(f.seen) >= s.lag {
			return s.before(state.newest, f.at)
		}
	}
	return false
}

// lagging says which server to read instead of the current one, which lags.
func (s *selector) lagging(now time.Time) (by int, ok bool) {
	if now.Sub(s.lagLeft) > 4*s.lag {
		s.lag = s.minLag
	}
	if !s.behind(s.current) {
		return 0, false
	}
	by = s.current
	for i := range s.servers {
		other := &s.servers[i]
		waits := now.Before(other.notBefore) || now.Before(other.lagUntil)
		if !waits && !other.refused && !other.dead && s.before(s.servers[by].newest, other.newest) {
			by = i
		}
	}
	return by, by != s.current
}

// leaveForLag notes that the current server is left because it lags.
func (s *selector) leaveForLag(now time.Time) {
	s.servers[s.current].lagUntil, s.lagLeft = now.Add(s.lag), now
	s.lag = min(2*s.lag, maxLagFactor*s.minLag)
}

// next chooses the best server to read from now on, of equal ones the first after the current, and
// says how long to wait before.
func (s *selector) next(now time.Time) (wait time.Duration) {
	left, n := s.current, len(s.servers)
	s.current = (left + 1) % n
	for step := 2; step <= n; step++ {
		if i := (left + step) % n; s.better(i, s.current, now) {
			s.current = i
		}
	}
	return max(0, s.servers[s.current].notBefore.Sub(now))
}

// better says whether server i is preferred to j: it is due earlier, else it does not lag, else its
// log begins earlier, if no log has what comes after the cursor, else it reaches farther.
func (s *selector) better(i, j int, now time.Time) bool {
	a, b := &s.servers[i], &s.servers[j]
	aDue, bDue := s.due(a, now), s.due(b, now)
	aLags, bLags := s.stillLags(i, now), s.stillLags(j, now)
	switch {
	case !aDue.Equal(bDue):
		return aDue.Before(bDue)
	case aLags != bLags:
		return bLags
	case s.lenient && a.oldestUS != b.oldestUS:
		return b.oldestUS == 0 || a.oldestUS != 0 && a.oldestUS < b.oldestUS
	}
	return s.before(b.newest, a.newest)
}

// due returns when to try the server. Others that are due by then are tried before a doubtful one.
func (s *selector) due(state *serverState, now time.Time) time.Time {
	due := now
	if state.notBefore.After(now) {
		due = state.notBefore
	}
	if state.dead || state.refused {
		due = due.Add(s.doubt)
	}
	return due
}

// stillLags says whether server i was left for lag, and has not caught up.
func (s *selector) stillLags(i int, now time.Time) bool {
	return now.Before(s.servers[i].lagUntil) && s.behind(i)
}

// allRefused says whether no server takes what is asked for.
func (s *selector) allRefused() bool {
	return !slices.ContainsFunc(s.servers, func(state serverState) bool { return !state.refused })
}

// beginLenient has all servers tried again at once. They need not have what comes after the cursor.
func (s *selector) beginLenient() {
	s.lenient = true
	for i := range s.servers {
		s.servers[i].refused, s.servers[i].notBefore = false, time.Time{}
	}
}
