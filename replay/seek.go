package replay

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
	"millrace/translate"
)

// seek sets the reader's place for a cursor. The caller holds storeMu.
func (r *Reader) seek(s *snapshot, c Cursor) error {
	switch c.kind {
	case cursorTime:
		r.seekTime(s, c.timeUS)
		return nil
	case cursorPosition:
		return r.seekPosition(s, c)
	case cursorSeq:
		return r.seekSeq(s, c.seq)
	}
	r.startAtEnd(s)
	return nil
}

// startAt makes next the first stamp that is looked at.
func (r *Reader) startAt(next int64, through Point) {
	r.next, r.gapNext, r.through = next, next, through
}

func (r *Reader) startAtEnd(s *snapshot) { r.startAt(s.TimeUS+1, s.end()) }

// startAtFloor starts with the oldest event.
func (r *Reader) startAtFloor(s *snapshot) {
	r.startAt(s.Floor.TimeUS+1, Point{TimeUS: s.Floor.TimeUS})
	r.atFloor, r.after = true, format.Place{}
	if r.clamped {
		r.oldest = s.export(s.Oldest)
	}
}

func (r *Reader) seekTime(s *snapshot, us int64) {
	switch {
	case us <= 0:
		r.startAtFloor(s)
	case us <= s.Floor.TimeUS || s.Floor.TimeUS == 0 && us < s.Oldest.TimeUS:
		r.clamped = true // trimmed, or before the log began
		r.startAtFloor(s)
	case us > s.TimeUS: // not newest's: a gap may lie after it
		r.startAtEnd(s)
	default:
		r.startAt(us, Point{TimeUS: us - 1})
	}
}

// seekSeq starts with the event of that seq on v2's wire, or the next one.
func (r *Reader) seekSeq(s *snapshot, seq int64) error {
	if s.Newest == (format.Point{}) || seq > s.streams.V2Seq(s.Newest.Place) {
		r.startAtEnd(s)
		return nil
	}
	p := s.streams.PlaceBefore(seq)
	if p.Before(s.Floor.Place) {
		begins := s.streams.V2Seq(s.Oldest.Place)
		if s.Oldest == (format.Point{}) { // all was trimmed
			begins = s.streams.V2Seq(s.Newest.Place) + 1
		}
		return fmt.Errorf("%w: seq %d is older than the log, which begins at %d", ErrTooOld, seq, begins)
	}
	return r.seekPlace(s, p, translate.Position{Stream: s.streams.Tag(p.Epoch), Seq: p.Seq, Op: p.Op})
}

// seekPosition starts directly after the position.
func (r *Reader) seekPosition(s *snapshot, c Cursor) error {
	pos := c.position
	epoch, ok := s.streams.Epoch(pos.Stream)
	if !ok {
		return fmt.Errorf("%w: %s (this log's is %s)", ErrUnknownStream, pos.Stream, s.streams.Tag(s.Epoch))
	}
	p := format.Place{Epoch: epoch, Seq: pos.Seq, Op: pos.Op}
	if p.Before(s.Floor.Place) {
		r.clamped = true
		r.startAtFloor(s)
		return nil
	}
	return r.seekPlace(s, p, pos)
}

// seekPlace starts directly after p, which is at or after the floor and has that position.
func (r *Reader) seekPlace(s *snapshot, p format.Place, pos translate.Position) error {
	r.after, r.afterPosition = p, pos
	if p.Epoch == s.Epoch && pos.Seq > s.Seq {
		r.startAtEnd(s)
		return nil
	}
	if !p.Before(s.Newest.Place) {
		r.startAt(s.Newest.TimeUS+1, Point{s.Newest.TimeUS, pos})
		return nil
	}
	next, err := r.log.blocks.findAfter(s, p)
	if err != nil {
		return err
	}
	r.startAt(next, Point{next - 1, pos})
	return nil
}

// findAfter returns a stamp after all events up to p and not after the next one, nor after a gap
// that lies between. p is at or after the floor and before the newest event.
func (bs *blockStore) findAfter(s *snapshot, p format.Place) (int64, error) {
	// The block that p is in, or the first one after it, is the first whose last event is after p.
	if !p.Before(s.beforeTail.Place) {
		i := 0
		for ; i < len(s.tail)-1 && !p.Before(s.tail[i].idx.LastPoint().Place); i++ {
		}
		before := max(s.beforeTail.TimeUS, s.Floor.TimeUS)
		if i > 0 {
			before = s.tail[i-1].idx.Key()
		}
		return afterIn(s.tail[i].idx, p, before), nil
	}
	it, err := bs.store.NewIter(&pebble.IterOptions{
		LowerBound: format.RangeSeq.Start(), UpperBound: format.RangeSeq.End()})
	if err != nil {
		return 0, fmt.Errorf("find position: %w", err)
	}
	defer it.Close()
	if p.Before(bs.snap.Load().Floor.Place) {
		return 0, ErrTrimmed // see blockScan.iterator
	}
	for ok := it.SeekGE(format.SeqKey(p.Epoch, p.Seq)); ok; ok = it.Next() {
		epoch, seq, valid := format.ParseSeqKey(it.Key())
		if !valid {
			return 0, bs.corrupt(format.RangeSeq, 0, fmt.Errorf("malformed key %x", it.Key()))
		}
		ptr, err := format.OpenBlockPointer(it.Value(), seq)
		if err != nil {
			return 0, bs.corrupt(format.RangeSeq, seq, err)
		}
		if !p.Before(format.Place{Epoch: epoch, Seq: ptr.Seq, Op: ptr.Op}) {
			continue // the block covers p's frame, but has nothing after it
		}
		return bs.findIn(s, it, ptr, p)
	}
	if err := it.Error(); err != nil {
		return 0, bs.readError(format.RangeSeq, p.Seq, err)
	}
	return 0, bs.corrupt(format.RangeSeq, s.Newest.Seq, format.ErrMissing)
}

// findIn does the rest of findAfter in the block that ptr, where it is, refers to.
func (bs *blockStore) findIn(s *snapshot, it *pebbleguard.Iterator, ptr format.BlockPointer, p format.Place) (int64, error) {
	before := s.Floor.TimeUS
	if it.Prev() {
		_, seq, _ := format.ParseSeqKey(it.Key())
		prev, err := format.OpenBlockPointer(it.Value(), seq)
		if err != nil {
			return 0, bs.corrupt(format.RangeSeq, seq, err)
		}
		before = max(before, prev.Key)
	} else if err := it.Error(); err != nil {
		return 0, bs.readError(format.RangeSeq, p.Seq, err)
	}
	scan := blockScan{bs: bs}
	defer scan.close()
	x, err := scan.find(s, ptr.Key)
	if err != nil {
		return 0, err
	}
	return afterIn(x, p, before), nil
}

// afterIn finds p in block x, the first that has an event after p. before is the stamp of the last
// event of the block before it.
func afterIn(x *blockIndex, p format.Place, before int64) int64 {
	i := 0
	if x.Epoch == p.Epoch {
		i = x.FirstAfter(p)
	}
	if i == 0 {
		return before + 1
	}
	return x.TimeUS[i-1] + 1
}
