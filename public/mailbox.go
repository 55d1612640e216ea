package public

import (
	"sync"
	"time"
)

// mailbox is what the pull loop must do next: others leave it there.
type mailbox struct {
	mu     sync.Mutex
	posted bool    // next is a new filter
	next   filter  // in force from the next event on
	ending *ending // the first one counts
}

// putFilter leaves f. It returns the filter that waited there: the caller owns its share of the
// budget.
func (m *mailbox) putFilter(f filter) (old filter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old = m.next
	m.next, m.posted = f, true
	return old
}

// takePosted takes the filter that waits, if one does.
func (m *mailbox) takePosted() (f filter, posted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f, posted = m.next, m.posted
	m.next, m.posted = filter{}, false
	return f, posted
}

// hasPosted says whether a filter waits for the pull loop.
func (m *mailbox) hasPosted() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.posted
}

// putEnding leaves e, unless there is one.
func (m *mailbox) putEnding(e ending) {
	e.at = time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ending == nil {
		m.ending = &e
	}
}

func (m *mailbox) ended() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ending != nil
}

// firstEnding returns the ending that counts. There must be one.
func (m *mailbox) firstEnding() ending {
	m.mu.Lock()
	defer m.mu.Unlock()
	return *m.ending
}

// cut says whether a write that blocks must be given up. Then the connection is ending, and not in
// a way that leaves time for the rest of the chunk.
func (m *mailbox) cut() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ending != nil && time.Since(m.ending.at) >= m.ending.patience
}
