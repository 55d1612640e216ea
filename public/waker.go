package public

import (
	"sync"
	"time"

	"millrace/replay"
)

// waker wakes subscribers that wait at the end of the log, and only those that the log has
// something for. Its goroutine makes a wake pass whenever the log grows: it visits all members
// once, in turn, in batches that wakeBudget spaces out. A visit reads memory that all subscribers
// share; a subscriber that nothing passes to stays asleep.
type waker struct {
	changed func() <-chan struct{} // closed when the log has more; see replay.Log.Changed

	mu      sync.Mutex
	members []*sleeper // each knows its index
	next    int        // index of the member that is visited next
	running bool       // there is a goroutine

	passRequested chan struct{} // capacity 1: another pass is needed, as this one may miss a member

	// Of the goroutine only:
	budget  wakeBudget
	scratch replay.PendingScratch
	batch   []*sleeper
}

// wakeBatch is how many members are visited between two looks at the budget.
const wakeBatch = 64

func newWaker(changed func() <-chan struct{}) *waker {
	return &waker{changed: changed, passRequested: make(chan struct{}, 1)}
}

// join makes s a member. If it returns true the caller must start run.
func (w *waker) join(s *sleeper) (start bool) {
	w.mu.Lock()
	s.index = len(w.members)
	w.members = append(w.members, s)
	start = !w.running
	w.running = true
	w.mu.Unlock()
	w.requestPass() // the pass under way may visit s instead of a member that it has yet to visit
	return start
}

// leave undoes join.
func (w *waker) leave(s *sleeper) {
	w.mu.Lock()
	last := len(w.members) - 1
	moved := w.members[last]
	w.members[s.index], moved.index = moved, s.index
	w.members[last] = nil
	w.members = w.members[:last]
	w.mu.Unlock()
	w.requestPass() // the pass under way may miss moved; without members run ends
}

// requestPass asks for another pass.
func (w *waker) requestPass() {
	select {
	case w.passRequested <- struct{}{}:
	default:
	}
}

// run makes passes until there are no members.
func (w *waker) run() {
	for {
		changed := w.changed() // before the pass: what is appended during it makes for another one
		if !w.pass() {
			return
		}
		select {
		case <-changed:
		case <-w.passRequested:
		}
	}
}

// pass visits as many members as there are when it begins. It returns false if there are none: then
// run must end, and another goroutine may be the waker's.
func (w *waker) pass() bool {
	w.mu.Lock()
	left := len(w.members)
	w.running = left > 0
	w.mu.Unlock()
	if left == 0 {
		return false
	}
	for left > 0 && w.takeBatch(left) {
		left -= len(w.batch)
		woken := 0
		for _, s := range w.batch {
			if s.peek(&w.scratch) {
				woken++
			}
		}
		if wait := w.budget.charge(time.Now(), len(w.batch), woken); wait > 0 {
			time.Sleep(wait)
		}
		clear(w.batch)
	}
	return true
}

// takeBatch sets the batch to the next members, n at most, and returns false if there are none.
func (w *waker) takeBatch(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.batch = w.batch[:0]
	for range min(n, wakeBatch, len(w.members)) {
		if w.next >= len(w.members) {
			w.next = 0
		}
		w.batch = append(w.batch, w.members[w.next])
		w.next++
	}
	return len(w.batch) > 0
}
