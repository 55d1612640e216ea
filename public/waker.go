package public

import (
	"sync"
	"sync/atomic"
	"time"

	"millrace/replay"
)

// waker wakes subscribers that wait at the end of the log, and only those that there is something for. Its
// goroutine goes round: it looks at every subscriber once in a time that is the longer the more of them get
// events, so that a small block every few milliseconds does not make for as many small writes to each. What
// it looks at is in memory and shared by all; a subscriber that nothing passes to stays asleep.
type waker struct {
	changed func() <-chan struct{} // closed when the log has more; see replay.Log.Changed

	mu      sync.Mutex
	members []*subscriber // each knows its place
	at      int           // whose turn it is
	running bool          // there is a goroutine
	nudged  chan struct{} // capacity 1: somebody may have been passed over

	shown struct{ round, woken atomic.Int64 } // see Server.Pace

	// Of the goroutine only:
	glance replay.Glance
	batch  []*subscriber
	timer  *time.Timer
	busy   float64 // how many are woken in a round, lately at most
}

// Bounds of a round.
const (
	ticks     = 16               // a round is cut into so many parts at most,
	tickOf    = 16               // none of which is for fewer members
	wakeTick  = time.Millisecond // or shorter
	few       = 25
	fewEach   = 200 * time.Microsecond // by this the time of a round grows with the few who are woken first
	wakeEach  = 320 * time.Microsecond // and by this with the others
	glanceAt  = 5 * time.Microsecond   // and by this with those who are not woken
	crowdEach = 20 * time.Microsecond
	crowdPace = 28 * time.Millisecond
	maxPace   = 100 * time.Millisecond
	minPace   = 2 * time.Millisecond
	busyDecay = 0.9 // a round
)

func newWaker(changed func() <-chan struct{}) *waker {
	return &waker{changed: changed, nudged: make(chan struct{}, 1)}
}

// pace is how long a round takes: of members, busy of whom are woken each time. With a handful there is no delay;
// then it grows so that waking takes about a twentieth of a core, up to where lag would begin to be felt; and
// from there, with more than a thousand, so slowly that waking takes half a core at the most.
func pace(members int, busy float64) time.Duration {
	each := func(n float64, d time.Duration) time.Duration { return time.Duration(n * float64(d)) }
	p := each(min(busy, few), fewEach) + each(max(busy-few, 0), wakeEach)
	p = min(p, max(crowdPace, each(busy, crowdEach)))
	p = max(p, time.Duration(members)*glanceAt)
	if p < minPace {
		return 0
	}
	return min(p, maxPace)
}

// Pace tells how often live subscribers are looked at: every one of them once in the time of a round, 0 when they are so
// few that they are not kept waiting at all, and how many of them there is something for each time. Who publishes more
// often than that does work that nobody has anything from. Safe for concurrent use.
func (s *Server) Pace() (round time.Duration, woken int) {
	shown := &s.waker.shown
	return time.Duration(shown.round.Load()), int(shown.woken.Load())
}

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

// nudge asks for another round.
func (w *waker) nudge() {
	select {
	case w.nudged <- struct{}{}:
	default:
	}
}

// run goes round until there are no members.
func (w *waker) run() {
	w.timer = time.NewTimer(0)
	defer w.timer.Stop()
	for {
		changed := w.changed()
		if !w.round() {
			return
		}
		select {
		case <-changed:
		case <-w.nudged:
		}
	}
}

// round looks at every member once. It returns false when there are none, and run must end.
func (w *waker) round() bool {
	w.mu.Lock()
	members := len(w.members)
	if members == 0 {
		w.running, w.busy = false, 0
	}
	took := pace(members, w.busy)
	w.shown.round.Store(int64(took))
	w.shown.woken.Store(int64(w.busy))
	w.mu.Unlock() // from here on another goroutine may be the waker's, if nobody is left
	if members == 0 {
		return false
	}
	tick := max(took/time.Duration(min(max(members/tickOf, 1), ticks)), wakeTick)
	begun := time.Now()
	woken := 0
	for seen := 0; seen < members; {
		due := members
		if took > 0 {
			w.sleep(tick)
			due = min(members, 1+int(int64(members)*int64(time.Since(begun))/int64(took)))
		}
		w.take(due - seen)
		seen = due
		for _, s := range w.batch {
			if s.glance(&w.glance) {
				woken++
			}
		}
		clear(w.batch)
	}
	if took == 0 {
		w.sleep(tick) // a closed log says that it has changed for as long as somebody is left
	}
	w.busy = max(float64(woken), w.busy*busyDecay)
	return true
}

func (w *waker) sleep(d time.Duration) {
	w.timer.Reset(d)
	<-w.timer.C
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
