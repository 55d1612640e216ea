package public

import (
	"sync/atomic"
	"time"
)

// mailbox is what the pull loop must do next: others leave it there.
type mailbox struct {
	posted atomic.Pointer[filter] // in force from the next event on; nil: no filter waits
	ending atomic.Pointer[ending] // the first one; nil: there is none
}

// putEnding leaves e, unless there is one.
func (m *mailbox) putEnding(e ending) {
	e.at = time.Now()
	m.ending.CompareAndSwap(nil, &e)
}

func (m *mailbox) ended() bool { return m.ending.Load() != nil }

// cut says whether a write that blocks must be given up. Then the connection is ending, and not in
// a way that leaves time for the rest of the chunk.
func (m *mailbox) cut() bool {
	e := m.ending.Load()
	return e != nil && time.Since(e.at) >= e.patience
}
