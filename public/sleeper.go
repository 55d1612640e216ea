package public

import (
	"sync"

	"millrace/replay"
)

// sleeper is the part of a subscriber that the waker uses. While the subscriber is asleep reader
// and through are the waker's, else they are the pull loop's.
type sleeper struct {
	reader  reader
	through replay.Point
	mailbox *mailbox // may have a filter that is not in reader yet
	conn    *conn    // wakes the pull loop

	index int // among the waker's members; guarded by its mu

	sleepMu sync.Mutex
	asleep  bool
	woken   bool // by the waker: there is something to read
	missed  bool // the waker visited it while it was awake
}

// fallAsleep gives the reader to w.
func (s *sleeper) fallAsleep(w *waker) {
	s.sleepMu.Lock()
	missed := s.missed
	s.asleep, s.woken, s.missed = true, false, false
	s.sleepMu.Unlock()
	if missed {
		w.requestPass()
	}
}

// wakeUp takes the reader back and reports whether there is something to read.
func (s *sleeper) wakeUp() (woken bool) {
	s.sleepMu.Lock()
	defer s.sleepMu.Unlock()
	woken = s.woken
	s.asleep, s.woken = false, false
	return woken
}

// peek wakes the subscriber and returns true if there is something to read for it. The waker calls
// it.
func (s *sleeper) peek(scratch *replay.PendingScratch) bool {
	s.sleepMu.Lock()
	defer s.sleepMu.Unlock()
	if !s.asleep {
		s.missed = s.missed || !s.woken
		return false
	}
	if s.mailbox.posted.Load() != nil {
		// The pull loop is about to put a new filter in force. The old one might skip what the
		// new one wants.
		s.missed = true
		return false
	}
	through, pending := s.reader.Pending(scratch)
	if !pending {
		s.through = through
		return false
	}
	// What is pending was not sent yet: Next sets through then.
	s.asleep, s.woken = false, true
	s.conn.wake()
	return true
}
