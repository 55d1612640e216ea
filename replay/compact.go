package replay

import (
	"errors"

	"millrace/replay/internal/format"
)

// Bounds of a group, whose small blocks become one: see Small blocks in the package's doc.
const (
	maxSmallEvents = 256 // a block of more is not small, nor one of half a group's memory
	maxGroupEvents = 1024
	maxGroupBytes  = 1 << 20 // of memory; less if the tail is small
	groupTailShare = 4       // the tail cannot drop a group, so that is a part of it
)

// groupPolicy decides which blocks become one. It is a pure value.
type groupPolicy struct{ maxBytes int64 } // of a group's memory

func newGroupPolicy(tailBytes int64) groupPolicy {
	return groupPolicy{min(maxGroupBytes, tailBytes/groupTailShare)}
}

// small says whether a block of so many events and bytes of memory is worth merging.
func (p groupPolicy) small(events int, bytes int64) bool {
	return events <= maxSmallEvents && bytes <= p.maxBytes/2
}

// fits says whether a group may have so many events and bytes of memory.
func (p groupPolicy) fits(events int, bytes int64) bool {
	return events <= maxGroupEvents && bytes <= p.maxBytes
}

// joins says whether b, which no gap precedes, can join the group of s. One block is of one epoch.
// (One dictionary made all blocks of the tail: the log has one encoder.)
func (s *snapshot) joins(b *Block, p groupPolicy) bool {
	if s.group == 0 || !p.small(b.Events(), b.memory()) {
		return false
	}
	events, bytes := b.Events(), b.memory()
	group := s.tail[len(s.tail)-s.group:]
	for _, o := range group {
		events += o.Events()
		bytes += o.memory()
	}
	return p.fits(events, bytes) && group[0].epoch == b.epoch
}

// merge returns one block with the events of bs, which are of a group.
func (l *Log) merge(bs []*Block) *Block {
	events := make([]format.BlockEvents, len(bs))
	for i, b := range bs {
		events[i] = b.blockEvents()
	}
	out := &Block{epoch: bs[0].epoch, firstSeq: bs[0].firstSeq, lastSeq: bs[len(bs)-1].lastSeq}
	out.take(format.Concat(events, l.cfg.hooks.substreamsBytes))
	return out
}

// closeGroup ends the group of next, if there is one. Its newest unwritten blocks are not in the
// store yet. A single block stays as it is; several become one.
func (p *appendCall) closeGroup() error {
	n := p.next
	group := n.tail[len(n.tail)-n.group:]
	written := len(group) - p.unwritten
	n.group, p.unwritten = 0, 0
	switch {
	case len(group) == 0:
		return nil
	case len(group) > 1:
		return p.mergeGroup(group, written)
	}
	if err := p.joinSpan(group[0]); err != nil || written == 1 {
		return err
	}
	return p.put(group[0], n.Total)
}

// mergeGroup replaces a group by one block, in the tail and, unless nothing is stored, in the
// batch. Of the group the first written blocks are in the store.
func (p *appendCall) mergeGroup(group []*Block, written int) error {
	n, merged := p.next, p.log.merge(group)
	p.log.metrics.mergedBlocks.Add(float64(len(group)))
	if p.log.cfg.Retention > 0 {
		if err := p.deleteGroup(group[:written], merged); err != nil {
			return err
		}
	}
	n.tailBytes += merged.memory()
	for _, b := range group {
		n.tailBytes -= b.memory()
	}
	n.tail = append(n.tail[:len(n.tail)-len(group)], merged)
	n.Total = n.groupBase.Plus(merged.totals())
	p.merged = append(p.merged, merged)
	return errors.Join(p.joinSpan(merged), p.put(merged, n.Total))
}

// deleteGroup adds to the batch the deletion of blocks that were written once, but for what merged
// overwrites.
func (p *appendCall) deleteGroup(bs []*Block, merged *Block) (err error) {
	for _, b := range bs {
		key := b.idx.Key()
		if key == merged.idx.Key() { // the last block of the group
			return errors.Join(err, p.deleteSubstreams(b, merged.substreams))
		}
		for _, r := range format.BlockRanges() {
			err = errors.Join(err, p.batch.SingleDelete(format.TimeKey(r, key), nil))
		}
		if b.refs != nil {
			err = errors.Join(err, p.batch.SingleDelete(format.TimeKey(format.RangeReferences, key), nil))
		}
		err = errors.Join(err, p.deleteSubstreams(b, 1), p.batch.SingleDelete(format.SeqKey(b.epoch, b.lastSeq), nil))
	}
	return err
}

// deleteSubstreams adds to the batch the deletion of a block's substreams from number first on.
func (p *appendCall) deleteSubstreams(b *Block, first int) (err error) {
	for s := first; s < b.substreams; s++ {
		err = errors.Join(err, p.batch.SingleDelete(format.SubstreamKey(b.idx.Key(), s), nil))
	}
	return err
}

// settle ends the group without merging it, so that its blocks may be trimmed one by one. It
// returns the snapshot in which that is so: none of its blocks will ever be merged.
func (l *Log) settle() *snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.snap.Load()
	if s.err != nil || s.group == 0 {
		return s
	}
	next := s.next()
	next.group, next.settled = 0, s.group
	l.publishLocked(next)
	return next
}
