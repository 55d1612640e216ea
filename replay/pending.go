package replay

import (
	"millrace/replay/internal/filter"
	"millrace/replay/internal/format"
)

// Many readers wait at the end of the log for what few of them want. One goroutine waits for all of
// them on one channel, Log.Changed, and then asks each reader, with Pending, whether it is worth
// waking.

// Changed returns a channel that is closed once the log has changed since the call, or is closed.
// Get it before looking at readers: then nothing is missed.
func (l *Log) Changed() <-chan struct{} { return l.snap.Load().changed }

// PendingScratch is memory that Pending uses; the zero value is ready. One goroutine uses it, for
// any number of readers. Readers with one Filter, at one place, are matched once.
type PendingScratch struct {
	matcher  filter.Matcher
	changed  <-chan struct{} // of the snapshot that verdicts are about
	verdicts [256]verdict    // by Filter.id
}

// verdict is what a filter passes of a snapshot's tail from a stamp on.
type verdict struct {
	filter  uint64 // its id; 0: none
	from    int64
	next    int64 // after the blocks that hold nothing
	through Point // the last event of those; zero: there are none
	nothing bool  // all blocks hold nothing
}

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
	if r.next <= s.TimeUS {
		if _, gap := s.gapAt(r.gapNext); gap || !r.skipBlocks(s, scratch) {
			return r.through, true
		}
		r.next = s.TimeUS + 1
		r.gapNext = max(r.gapNext, r.next)
	}
	r.through = s.end()
	return r.through, false
}

// skipBlocks moves the reader on over blocks of the tail that hold nothing for it, and says whether
// it has passed all of them.
func (r *Reader) skipBlocks(s *snapshot, scratch *PendingScratch) bool {
	if r.filter == nil {
		return false
	}
	if scratch.changed != s.changed {
		scratch.changed = s.changed
		clear(scratch.verdicts[:])
	}
	v := &scratch.verdicts[r.filter.ID()%uint64(len(scratch.verdicts))]
	if v.filter != r.filter.ID() || v.from != r.next {
		*v = r.log.blocks.judge(s, r.filter, r.next, &scratch.matcher)
	}
	if v.through != (Point{}) {
		r.next, r.through = v.next, v.through
		r.gapNext = max(r.gapNext, r.next)
	}
	return v.nothing
}

// judge matches f with the blocks of the tail from a stamp on, up to the first that may hold
// something.
func (bs *blockStore) judge(s *snapshot, f *Filter, from int64, m *filter.Matcher) verdict {
	defer m.Forget() // holds nothing between calls
	v := verdict{filter: f.ID(), from: from, next: from}
	for _, b := range s.tail[s.tailIndex(from):] {
		some, err := bs.match(m, f, candidate{idx: b.idx, blk: b})
		if err != nil || some && m.Next(b.idx.FirstAt(v.next)) < b.idx.Events() {
			return v
		}
		last := b.idx.LastPoint()
		v.next, v.through = last.TimeUS+1, s.export(last)
	}
	v.nothing = true
	return v
}
