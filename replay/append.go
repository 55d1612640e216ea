package replay

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
	"millrace/replay/internal/logstore"
	"millrace/translate"
)

// appendCall is one Append: it makes the next snapshot and the batch that brings the store there.
type appendCall struct {
	log   *Log
	next  *snapshot
	batch *pebble.Batch

	// unwritten is how many of the tail's newest blocks are neither in the store nor in the batch.
	// They are small ones, which may become part of a merged block before they would be written.
	unwritten int
	merged    []*Block

	sources []string // that are in the store once the batch is

	flush bool // the memtable is about to be full: a flush begins after the commit
}

// check makes sure that the blocks follow the log and can be staged, before anything is changed.
func (p *appendCall) check(bs []*Block) error {
	s := *p.next // its own place, the lists are copied before they grow
	var bytes int64
	for _, b := range bs {
		if err := s.follows(b); err != nil {
			return err
		}
		if bytes += b.storedBytes; bytes > maxAppendBytes {
			return fmt.Errorf("more than %d bytes at once", int64(maxAppendBytes))
		}
		if b.epoch != s.Epoch {
			var err error
			if s.streams, err = s.streams.Add(p.log.cfg.Relay, b.epoch, s.Seq); err != nil {
				return err
			}
		}
		s.Epoch, s.Seq = b.epoch, b.lastSeq
		if b.gap != nil {
			s.TimeUS = b.gap.TimeUS
		}
		if b.idx != nil {
			s.TimeUS = b.idx.Key()
		}
	}
	p.next.streams = s.streams
	return nil
}

// stage applies the blocks, which were checked, to next, and adds to the batch what must be
// stored.
func (p *appendCall) stage(bs []*Block) error {
	l, n := p.log, p.next
	epoch := n.Epoch
	n.tail = append(make([]*Block, 0, len(n.tail)+len(bs)), n.tail...)
	if err := p.joinSettled(); err != nil {
		return err
	}
	if err := p.putSources(); err != nil {
		return err
	}
	for _, b := range bs {
		if err := p.stageBlock(b); err != nil {
			return err
		}
	}
	if p.flush = p.flushIsDue(); p.flush {
		if err := p.closeGroup(); err != nil {
			return err
		}
	}
	if err := p.putUnwritten(); err != nil {
		return err
	}
	n.shrinkTail(l.cfg.TailBytes)
	if n.Epoch != epoch {
		if err := logstore.PutStreams(p.batch, n.streams); err != nil {
			return err
		}
	}
	durable := n.State
	if l.cfg.Retention == 0 {
		durable.Floor, durable.Oldest, durable.Trimmed = durable.Newest, format.Point{}, durable.Total
	}
	return logstore.PutMeta(p.batch, format.MetaState, format.AppendState(nil, &durable))
}

// stageBlock applies one block. A gap, and a block that cannot join the open group, end it. A small
// block then joins the group or begins one; a large one is written as it is.
func (p *appendCall) stageBlock(b *Block) error {
	l, n := p.log, p.next
	groups := newGroupPolicy(l.cfg.TailBytes)
	if b.gap != nil || b.idx != nil && !n.joins(b, groups) {
		if err := p.closeGroup(); err != nil {
			return err
		}
	}
	before, unfollowed := n.Total, gapsAfter(n.gaps, n.Newest.TimeUS)
	n.advance(b)
	if err := p.putGap(b, unfollowed); err != nil || b.idx == nil {
		return err
	}
	l.metrics.blocks.Inc()
	l.metrics.bytes.Add(float64(b.storedBytes))
	n.tail = append(n.tail, b)
	n.tailBytes += b.memory()
	if l.cfg.hooks.keepSmall || !groups.small(b.Events(), b.memory()) {
		return errors.Join(p.put(b, n.Total), p.joinSpan(b))
	}
	if n.group == 0 {
		n.groupBase = before
	}
	n.group++
	p.unwritten++
	return nil
}

// putBytes is about what put adds to a batch beside a block's parts, and more than the state takes.
const putBytes = 256

// flushIsDue says whether the memtable is about to be full with this batch and the block that the
// open group becomes. The log flushes it then, with no group open. A group that went over into the
// next memtable would have its deletions there, and tables that overlap those before. Then
// compactions would write the old ones again.
func (p *appendCall) flushIsDue() bool {
	bytes := int64(p.batch.Len()) + putBytes
	if p.log.cfg.Retention > 0 {
		for _, b := range p.next.tail[len(p.next.tail)-p.next.group:] {
			bytes += b.storedBytes + putBytes
		}
	}
	return p.log.unflushed+bytes > p.log.store.MemTableBytes*3/4
}

// flushIfDue begins a flush after the batch was committed, if it is due.
func (p *appendCall) flushIfDue() error {
	l := p.log
	if !p.flush {
		l.unflushed += int64(p.batch.Len())
		return nil
	}
	l.unflushed = 0
	err := l.store.Guard(func() error {
		_, err := l.store.Pebble().AsyncFlush()
		return err
	})
	if err != nil {
		l.store.Fail(fmt.Errorf("begin a flush: %w", err))
		return l.store.Err()
	}
	return nil
}

// putUnwritten adds those small blocks to the batch that came with this Append and are not merged
// yet.
func (p *appendCall) putUnwritten() error {
	n := p.next
	total := n.groupBase
	group := n.tail[len(n.tail)-n.group:]
	for i, b := range group {
		total = total.Plus(b.totals())
		if i < len(group)-p.unwritten {
			continue
		}
		if err := p.put(b, total); err != nil {
			return err
		}
	}
	return nil
}

// putGap adds b's gap, if it has one that is after the durable floor. Of a log that stores nothing
// that is the newest event. So it deletes the gaps that no event followed before, if b has one.
func (p *appendCall) putGap(b *Block, unfollowed []Gap) (err error) {
	if p.log.cfg.Retention == 0 && b.idx != nil {
		for i := range unfollowed {
			err = errors.Join(err, p.batch.Delete(format.TimeKey(format.RangeGap, unfollowed[i].TimeUS), nil))
		}
		return err
	}
	g := b.gap
	if g == nil {
		return nil
	}
	v := format.AppendTrailer(format.AppendGap(nil, g), format.RangeGap, g.TimeUS)
	return p.batch.Set(format.TimeKey(format.RangeGap, g.TimeUS), v, nil)
}

// put adds a block's parts to the batch, if any are stored at all. total includes the block.
func (p *appendCall) put(b *Block, total format.Totals) error {
	if p.log.cfg.Retention == 0 {
		return nil
	}
	x := b.idx
	last := x.Events() - 1
	ptr := format.BlockPointer{Key: x.Key(), Seq: x.Seq[last], Op: x.Op[last], Totals: total}
	key := x.Key()
	err := errors.Join(
		p.batch.Set(format.SeqKey(b.epoch, b.lastSeq), format.AppendTrailer(format.AppendBlockPointer(nil, ptr), format.RangeSeq, b.lastSeq), nil),
		p.batch.Set(format.TimeKey(format.RangeIndex, key), b.values.Index, nil),
		p.batch.Set(format.TimeKey(format.RangeZstd, key), b.values.Zstd, nil),
		p.batch.Set(format.TimeKey(format.RangeSlimIndex, key), b.values.SlimIndex, nil))
	if b.values.References != nil {
		err = errors.Join(err, p.putReferences(b))
	}
	if x.Kinds.Has(translate.KindSync) {
		err = errors.Join(err, p.next.raiseVersion(p.batch, format.VersionSync))
	}
	if x.full.Unverified != nil {
		err = errors.Join(err, p.next.raiseVersion(p.batch, format.VersionUnverified))
	}
	for s, value := range b.values.Plain {
		err = errors.Join(err, p.batch.Set(format.SubstreamKey(key, s), value, nil))
	}
	return err
}

// putReferences adds a block's references to the batch, and with the log's first its version.
func (p *appendCall) putReferences(b *Block) error {
	key := b.idx.Key()
	if err := p.batch.Set(format.TimeKey(format.RangeReferences, key), b.values.References, nil); err != nil {
		return err
	}
	return p.next.raiseVersion(p.batch, format.VersionReferences)
}

// strip counts the blocks, and drops what only this Append needed before readers see them.
func (p *appendCall) strip(bs []*Block) {
	now := p.log.cfg.Monotonic()
	for _, b := range bs {
		if b.idx != nil {
			p.log.metrics.counts.Add(now, b.idx.SlimIndex, len(b.plain), len(b.zstd))
		}
	}
	for _, b := range slices.Concat(bs, p.merged) {
		b.strip(p.log.cfg.hooks.scribble)
	}
}
