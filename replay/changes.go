package replay

import (
	"context"
	"fmt"
	"math"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// Changes is what Log.Changes gives at a time. It is the events of a block, or of its part that is
// new to the caller, or a gap. It is neither where the log only reached a frame. It is good until f
// returns.
type Changes struct {
	Through EpochEnd // the frame up to which everything was given, with this
	Gap     *Gap     // then there is no event
	Events  []Change
}

// Change is an event with what its record refers to, for stores of references.
type Change struct {
	Seq       int64
	TimeUS    int64 // stamp
	Kind      translate.Kind
	Operation translate.Operation
	DIDUID    uint64 // 0: it has none
	URIUID    uint64
	Payload   []byte // its JSON
	// that the record has since the event; what it had before is left out
	References []Reference
	Repeated   bool // the operation came again and changed nothing
}

// Changes calls f with all that came after a frame, in the log's order, up to its end, whole frames
// at a time. It is safe for concurrent use. Errors: f's, ctx's; ErrTrimmed, if the log does not
// have all of it; ErrClosed, ErrFailed, *CorruptionError.
func (l *Log) Changes(ctx context.Context, after EpochEnd, f func(*Changes) error) error {
	c := changesScan{log: l, sought: after}
	for ctx.Err() == nil {
		more, err := c.step()
		if err != nil {
			return fmt.Errorf("read changes: %w", err)
		}
		if !more {
			return nil
		}
		if err := f(&c.out); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// References returns the frame after which the log has all events that it holds with their
// references. From there on Changes has what a new reference store needs. ok is false if they are
// off.
func (l *Log) References() (after EpochEnd, ok bool) {
	s := l.snap.Load()
	if s.references == nil {
		return after, false
	}
	after = EpochEnd{Epoch: s.references.Epoch, Seq: s.references.Seq}
	// Before a log that was not trimmed there was nothing.
	if floor := (EpochEnd{Epoch: s.Floor.Epoch, Seq: s.Floor.Seq}); s.Floor.TimeUS > 0 && after.Before(floor) {
		after = floor
	}
	return after, true
}

// changesScan is one call of Changes.
type changesScan struct {
	log     *Log
	sought  EpochEnd
	next    int64 // the first stamp whose event was not given; 0: not sought yet
	gapNext int64 // likewise of gaps
	out     Changes
	data    []byte // of a block's plain part
	refs    []Reference
}

// step makes the next Changes. more is false if there are none.
func (c *changesScan) step() (more bool, err error) {
	l := c.log
	l.blocks.storeMu.RLock()
	defer l.blocks.storeMu.RUnlock()
	s := l.snap.Load()
	if s.err != nil {
		return false, s.err
	}
	if c.next == 0 {
		if err := c.seek(s); err != nil {
			return false, err
		}
	}
	if s.Floor.TimeUS >= c.next {
		return false, ErrTrimmed
	}
	c.out.Gap, c.out.Events = nil, c.out.Events[:0]
	cand, err := c.find(s)
	if err != nil {
		return false, err
	}
	if c.gap(s, cand.idx) {
		return true, nil
	}
	if cand.idx != nil {
		return true, c.block(cand)
	}
	c.next = max(c.next, s.TimeUS+1)
	end := EpochEnd{Epoch: s.Epoch, Seq: s.Seq}
	more = c.out.Through.Before(end)
	c.out.Through = end
	return more, nil
}

// seek sets where the scan goes on: after the frame c.sought.
func (c *changesScan) seek(s *snapshot) error {
	p := format.Place{Epoch: c.sought.Epoch, Seq: c.sought.Seq, Op: math.MaxUint32}
	next := int64(1)
	switch {
	case p.Before(s.Floor.Place) && s.Floor.TimeUS > 0:
		return ErrTrimmed
	case p.Before(s.Floor.Place): // the log begins there
	case s.Newest.Place.Before(p):
		next = s.Newest.TimeUS + 1
	default:
		var err error
		if next, err = c.log.blocks.findAfter(s, p); err != nil {
			return err
		}
	}
	c.next, c.gapNext, c.out.Through = next, next, c.sought
	return nil
}

// find returns the block that has the next event, with its full index; none at the end.
func (c *changesScan) find(s *snapshot) (cand candidate, err error) {
	if c.next > s.beforeTail.TimeUS {
		if i := s.tailIndex(c.next); i < len(s.tail) {
			cand = candidate{idx: s.tail[i].idx, blk: s.tail[i]}
		}
		return cand, nil
	}
	scan := blockScan{bs: c.log.blocks}
	defer scan.close()
	cand.idx, err = scan.find(s, c.next)
	return cand, err
}

// gap gives the next gap if it lies before the next event, which is in x; nil: there is none.
func (c *changesScan) gap(s *snapshot, x *blockIndex) bool {
	for {
		g, ok := s.gapAt(c.gapNext)
		if !ok || x != nil && g.TimeUS > x.TimeUS[x.FirstAt(c.next)] {
			return false
		}
		c.gapNext = g.TimeUS + 1
		epoch, ok := s.streams.Epoch(g.To.Stream)
		to := EpochEnd{Epoch: epoch, Seq: g.To.Seq}
		if !ok || !c.out.Through.Before(to) {
			continue // the caller has it, or its epoch is forgotten
		}
		c.out.Gap, c.out.Through = g, to
		if x != nil && x.Epoch == epoch {
			c.out.Through.Seq = min(g.To.Seq, x.Seq[x.FirstAt(c.next)]-1)
		}
		return true
	}
}

// block passes on the events of a block.
func (c *changesScan) block(cand candidate) error {
	x := cand.idx
	refs, err := c.log.blocks.referencesIn(cand)
	if err != nil {
		return err
	}
	if err := c.read(cand); err != nil {
		return err
	}
	c.refs = c.refs[:0]
	for i := x.FirstAt(c.next); i < x.Events(); i++ {
		from := len(c.refs)
		for _, e := range refs.Entries(i) {
			if !e.Had {
				c.refs = append(c.refs, refs.At(e))
			}
		}
		did, uri := x.full.UIDs(i)
		c.out.Events = append(c.out.Events, Change{
			Seq: x.Seq[i], TimeUS: x.TimeUS[i], Kind: x.KindAt(i), Operation: x.OperationAt(i), DIDUID: did, URIUID: uri,
			Payload:    format.FramePayload(c.data[format.FrameStart(x.PlainEnd, i):x.PlainEnd[i]]),
			References: c.refs[from:len(c.refs):len(c.refs)],
			Repeated:   refs.Repeated(i),
		})
	}
	c.next = x.Key() + 1
	c.gapNext = max(c.gapNext, c.next)
	c.out.Through = EpochEnd{Epoch: x.Epoch, Seq: x.LastSeq}
	return nil
}

// read makes data the frames of a block.
func (c *changesScan) read(cand candidate) error {
	if cand.blk != nil {
		c.data = cand.blk.plain
		return nil
	}
	x := cand.idx
	size := int(x.PlainEnd[x.Events()-1])
	part, err := c.log.blocks.openPart(x, format.RangePlain, x.Key(), size)
	if err != nil {
		return err
	}
	defer part.close()
	c.data = make([]byte, size) // data may be a block's of the tail
	return part.copyRuns(c.data, []format.Run{{From: 0, To: uint32(size)}})
}
