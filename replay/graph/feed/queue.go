package feed

import (
	"sync"

	"millrace/replay/graph"
	"millrace/replay/references"
)

// maxJoined is up to how many changes batches of the store go on as one.
const maxJoined = 1024

// changeBytes is what a change takes in the queue.
const changeBytes = 48

// item is what one or more batches of the store change.
type item struct {
	at      references.Position // reached with it
	changes []graph.Change
}

// queue holds what the graph has not taken yet.
type queue struct {
	max int // changes; a batch of more is taken when there is none

	mu      sync.Mutex
	items   []item
	changes int
	closed  bool

	more chan struct{} // there may be an item
	room chan struct{} // there may be room
}

func newQueue(max int) *queue {
	return &queue{max: max, more: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// push adds a batch, and waits for room. It must be called by one goroutine at a time. A queue that
// is closed takes nothing.
func (q *queue) push(at references.Position, changes []graph.Change) {
	for !q.add(at, changes) {
		<-q.room
	}
	signal(q.more)
}

func (q *queue) add(at references.Position, changes []graph.Change) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch last := len(q.items) - 1; {
	case q.closed:
	case q.changes > 0 && q.changes+len(changes) > q.max:
		return false
	case last >= 0 && len(q.items[last].changes)+len(changes) <= maxJoined:
		q.changes += len(changes)
		q.items[last].at = at
		q.items[last].changes = append(q.items[last].changes, changes...)
	default:
		q.changes += len(changes)
		q.items = append(q.items, item{at, append([]graph.Change(nil), changes...)})
	}
	return true
}

// pop takes the oldest item. ok is false if there is none.
func (q *queue) pop() (i item, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.items) == 0 {
		return i, false
	}
	i, q.items = q.items[0], q.items[1:]
	q.changes -= len(i.changes)
	signal(q.room)
	return i, true
}

// len is how many changes wait.
func (q *queue) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.changes
}

// close drops what is there, and what comes.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items, q.changes, q.closed = nil, 0, true
	signal(q.room)
}

// signal wakes the goroutine that waits for c, or the next that does.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
