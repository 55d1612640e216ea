package public

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"millrace/replay"
)

// waker wakes subscribers that wait at the end of the log, and only those that there is something for. Its goroutine
// looks at all of them, in turns, as soon as the log has more. The more of them get events the longer it is until a
// subscriber's next turn (see pace), so that a small block every few milliseconds does not make for as many small writes to
// each. What it looks at is in memory and shared by all; a subscriber that nothing passes to stays asleep.
type waker struct {
	changed func() <-chan struct{} // closed when the log has more; see replay.Log.Changed

	mu      sync.Mutex
	members []*subscriber // each knows its place
	at      int           // whose turn it is
	running bool          // there is a goroutine
	nudged  chan struct{} // capacity 1: somebody may have been passed over

	shown atomic.Int64 // see Server.Pace

	// Of the goroutine only:
	glance replay.Glance
	batch  []*subscriber
	timer  *time.Timer
	last   time.Time // when the last turn began,
	fresh  time.Time // and the last that came with a change of the log
	left   int       // how many are to be looked at yet since the log changed
	seen   int       // how many were since busy was set,
	woken  int       // and woken
	busy   float64   // how many are woken in a round, lately at most
}

// A round is the time in which every subscriber has a turn, if the log changes all the time.
const (
	wakeEach  = 450 * time.Microsecond // by this a round grows with those who are woken
	crowdPace = 45 * time.Millisecond  // up to this, or less: see maxWait;
	crowdEach = 20 * time.Microsecond  // but not beyond what is this for each of them;
	glanceAt  = 5 * time.Microsecond   // and by this with those who are not woken
	minPace   = 2 * time.Millisecond   // shorter ones are none
	maxPace   = 100 * time.Millisecond
	busyDecay = 0.9 // a round

	maxWait     = 16 * time.Millisecond // from a block to the turn of who is last, where there are several turns
	turnWakes   = 512                   // so many are woken at once at most, or
	wakeGlances = 32                    // as many times this are looked at
	minTurn     = time.Millisecond      // from one turn to the next
	maxTurns    = 16                    // in a round
)

func newWaker(changed func() <-chan struct{}) *waker {
	return &waker{changed: changed, nudged: make(chan struct{}, 1)}
}

// pace is how long a round takes: of members, busy of whom are woken each time. With a handful there is no delay;
// then it grows so that waking takes about a twentieth of a core, up to where lag would begin to be felt; and
// from there, with more than a thousand, so slowly that waking takes half a core at the most.
func pace(members int, busy float64) time.Duration {
	most := crowdPace
	if parts := time.Duration(turns(members, busy)); parts > 1 {
		most = min(most, maxWait*parts/(parts-1))
	}
	p := time.Duration(busy * float64(wakeEach))
	p = min(p, max(most, time.Duration(busy*float64(crowdEach))))
	p = max(p, time.Duration(members)*glanceAt)
	if p < minPace {
		return 0
	}
	return min(p, maxPace)
}

// turns is in how many parts a round is cut, so that none of them keeps the cores from everything else for long.
func turns(members int, busy float64) int {
	return min(1+(int(busy)+members/wakeGlances)/turnWakes, maxTurns)
}

// due is how many of members have their turn, if the one before was since ago: as many as in that part of a round, and all rather
// than nearly all; but not many more than in one of its parts.
func due(members, parts int, since, round time.Duration) int {
	if since >= round*3/4 {
		since = round
	}
	n := members
	if since < round {
		n = 1 + int(int64(members)*int64(since)/int64(round))
	}
	return min(n, 1+2*members/parts)
}

// Pace tells how often it is some live subscribers' turn to be sent what is new, 0 when they are so few that they are not
// kept waiting at all. Each turn comes with what is published: who publishes more often does work that nobody has
// anything from. Safe for concurrent use.
func (s *Server) Pace() time.Duration { return time.Duration(s.waker.shown.Load()) }

// join makes s a member. If it returns true the caller must start run.
func (w *waker) join(s *subscriber) (start bool) {
	w.mu.Lock()
	s.place = len(w.members)
	w.members = append(w.members, s)
	start = !w.running
	w.running = true
	w.mu.Unlock()
	w.nudge() // s may have had the turn of somebody who is now passed over
	return start
}

// leave undoes join.
func (w *waker) leave(s *subscriber) {
	w.mu.Lock()
	last := len(w.members) - 1
	moved := w.members[last]
	w.members[s.place], moved.place = moved, s.place
	w.members[last] = nil
	w.members = w.members[:last]
	w.mu.Unlock()
	w.nudge() // moved may have been passed over; or nobody is left
}

// nudge asks for another look at everybody.
func (w *waker) nudge() {
	select {
	case w.nudged <- struct{}{}:
	default:
	}
}

// run takes turns until there are no members.
func (w *waker) run() {
	w.timer = time.NewTimer(time.Hour)
	defer w.timer.Stop()
	for grown := true; ; {
		changed := w.changed()
		next, members := w.turn(grown)
		if !members {
			return
		}
		var late <-chan time.Time // nil: all were looked at
		if next > 0 {
			w.timer.Reset(next)
			late = w.timer.C
		}
		grown = false
		select {
		case <-changed:
			grown = true
		case <-w.nudged:
			w.left = math.MaxInt
		case <-late:
		}
	}
}

// turn looks at the members who have waited longest: at all of them, if the log has grown and it is a round since the last
// turn for that, whatever turns there were meanwhile for those who were left. next is when those who are left now are to
// have theirs if the log does not grow sooner, 0 if nobody is left. Without members run must end.
func (w *waker) turn(grown bool) (next time.Duration, some bool) {
	w.mu.Lock()
	members := len(w.members)
	if members == 0 {
		w.running, w.busy, w.seen, w.woken = false, 0, 0, 0
	}
	round, parts := pace(members, w.busy), turns(members, w.busy)
	w.shown.Store(int64(round) / int64(parts))
	w.mu.Unlock() // from here on another goroutine may be the waker's, if nobody is left
	if members == 0 {
		return 0, false
	}
	if early := max(round/maxTurns, minTurn) - time.Since(w.last); early > 0 {
		w.timer.Reset(early) // also as a closed log says that it has changed for as long as somebody is left
		<-w.timer.C
	}
	now := time.Now()
	since := now.Sub(w.last)
	if grown {
		since = now.Sub(w.fresh)
		w.fresh, w.left = now, members
	}
	w.last, w.left = now, min(w.left, members)
	w.take(min(due(members, parts, since, round), w.left))
	for _, s := range w.batch {
		if s.glance(&w.glance) {
			w.woken++
		}
	}
	w.left -= len(w.batch)
	w.seen += len(w.batch)
	clear(w.batch)
	if w.seen >= members {
		w.busy = max(float64(w.woken)*float64(members)/float64(w.seen), w.busy*busyDecay)
		w.seen, w.woken = 0, 0
	}
	if w.left <= 0 {
		return 0, true
	}
	return max(min(since, round/time.Duration(parts))*3/2, minTurn), true // the log should have grown before
}

// take sets the batch to the next n members.
func (w *waker) take(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.batch = w.batch[:0]
	for range min(n, len(w.members)) {
		if w.at >= len(w.members) {
			w.at = 0
		}
		w.batch = append(w.batch, w.members[w.at])
		w.at++
	}
}

// parking is a subscriber's side of the waker. While it is parked its reader and through are the waker's.
type parking struct {
	mu     sync.Mutex
	parked bool
	woken  bool // by the waker: there is something to read
	missed bool // the waker came by while it was not parked
}

// park gives the reader to the waker.
func (s *subscriber) park() {
	p := &s.parking
	p.mu.Lock()
	missed := p.missed
	p.parked, p.woken, p.missed = true, false, false
	p.mu.Unlock()
	if missed {
		s.server.waker.nudge()
	}
}

// unpark takes the reader back and says whether there is something to read.
func (s *subscriber) unpark() (woken bool) {
	p := &s.parking
	p.mu.Lock()
	defer p.mu.Unlock()
	woken = p.woken
	p.parked, p.woken = false, false
	return woken
}

// glance looks whether there is something to read for s, and if so wakes it and returns true. The waker
// calls it.
func (s *subscriber) glance(g *replay.Glance) bool {
	p := &s.parking
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.parked {
		p.missed = p.missed || !p.woken
		return false
	}
	if s.hasPosted() {
		// It is being woken to put a new filter in force. By the old one what comes now might be passed over.
		p.missed = true
		return false
	}
	through, pending := s.reader.Pending(g)
	if !pending {
		s.through = through
		return false
	}
	// What is pending was not sent yet: Next says how far through is then.
	p.parked, p.woken = false, true
	s.conn.wake()
	return true
}
