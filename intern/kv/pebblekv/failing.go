package pebblekv

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// failingFor is how long after the last failure in the background the disk is taken to be failing: Pebble
// tries again at once, hundreds of times a second.
const failingFor = 10 * time.Second

// failing follows failures of Pebble's background work: a full disk, most of the time.
type failing struct {
	log  *slog.Logger
	last atomic.Int64 // Unix nanoseconds of the newest failure; 0: none
	told atomic.Int64 // and of the last log line
}

// note is told each failure, and passes on one every failingFor.
func (f *failing) note(err error) {
	now := time.Now().UnixNano()
	f.last.Store(now)
	told := f.told.Load()
	if now-told >= int64(failingFor) && f.told.CompareAndSwap(told, now) {
		f.log.Error("the UID store cannot be written to disk; it is tried again until there is room", "err", err)
	}
}

// is says whether the newest failure was a moment ago.
func (f *failing) is() bool {
	last := f.last.Load()
	return last != 0 && time.Since(time.Unix(0, last)) < failingFor
}
