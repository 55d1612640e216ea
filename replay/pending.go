package replay

import "millrace/replay/internal/format"

// Many readers wait at the end of the log for what few of them want. One goroutine waits for all of
// them on one channel, Log.Changed, and then asks each reader, with Pending, whether it is worth
// waking.

// Changed returns a channel that is closed once the log holds more than when Changed was called, or
// is closed. Get it before looking at readers: then nothing is missed.
func (l *Log) Changed() <-chan struct{} { return l.snap.Load().changed }

// PendingScratch is memory that Pending uses; the zero value is ready. One goroutine uses it, for
// any number of readers.
type PendingScratch struct{ matcher matcher }

// Pending reports whether Next has something for a reader whose last chunk was Live. It is an event
// that passes the filter (sizes apart), a gap, or an error. It moves the reader on over what was
// appended meanwhile and does not pass, as Next would, and returns how far. It reads the tail's
// indexes only, never the disk. It has the concurrency rules of Next.
func (r *Reader) Pending(scratch *PendingScratch) (through Point, pending bool) {
	s := r.log.snap.Load()
	switch {
	case s.err != nil, r.after != (format.Place{}), r.atFloor, r.next <= s.Floor.TimeUS, r.next <= s.beforeTail.TimeUS:
		return r.through, true // Next knows what to make of it
	}
	r.changed = s.changed
	if r.next <= s.TimeUS {
		if _, gap := s.gapAt(max(r.gapNext, r.next)); gap || !r.passOver(s, &scratch.matcher) {
			return r.through, true
		}
		r.next = s.TimeUS + 1
		r.gapNext = max(r.gapNext, r.next)
	}
	r.through = s.end()
	return r.through, false
}

// passOver moves the reader on over blocks of the tail that hold nothing for it, and says whether
// it has passed all of them.
func (r *Reader) passOver(s *snapshot, m *matcher) bool {
	defer func() {
		*m = matcher{collectionMem: m.collectionMem, didMem: m.didMem, sourceMem: m.sourceMem, subjectMem: m.subjectMem}
	}() // holds nothing between calls
	for _, b := range s.tail[s.tailIndex(r.next):] {
		if r.filter == nil {
			return false
		}
		x := b.idx
		some, err := r.log.blocks.match(m, r.filter, candidate{idx: x, blk: b})
		if err != nil || some && m.next(x.FirstAt(r.next)) < x.Events() {
			return false
		}
		last := x.LastPoint()
		r.next = last.TimeUS + 1
		r.gapNext = max(r.gapNext, r.next)
		r.through = s.export(last)
	}
	return true
}
