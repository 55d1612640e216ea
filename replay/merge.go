package replay

import (
	"slices"

	"millrace/replay/internal/format"
)

// Blocks of a quiet relay are small: every 5 ms makes one. So the newest small blocks, the group, are
// replaced by one block that has all their events as soon as they are enough. It happens within the
// Append that fills the group: one synced batch has the merged block under the key of the group's last
// block, deletions of the others' keys, and what is new. All of this is still in the memtable, where
// SINGLEDEL takes its SET along, so that a flush writes the merged block and nothing of the small ones.
//
// A group is always in the tail, so no reader looks for its blocks in the store; readers hold places,
// not blocks, and find their place in the merged block as they would have in the small one.
const (
	maxSmallEvents = 256 // a block of more is not small, nor one of half a group's memory
	maxGroupEvents = 1024
	maxGroupBytes  = 1 << 20 // of memory; less if the tail is small, see groupBytes
	groupTailShare = 4
)

// groupBytes is how much memory a group may take. The tail cannot drop it, so it is a part of the tail.
func groupBytes(tailBytes int64) int64 { return min(maxGroupBytes, tailBytes/groupTailShare) }

// isSmall says whether a block is worth merging.
func isSmall(b *Block, tailBytes int64) bool {
	return b.Events() <= maxSmallEvents && b.memory() <= groupBytes(tailBytes)/2
}

// joins says whether b can join the group of next, which is not empty: one block is of one epoch, no gap
// lies within it, and one dictionary made it.
func (s *snapshot) joins(b *Block, tailBytes int64) bool {
	if b.gap != nil || !isSmall(b, tailBytes) {
		return false
	}
	events, bytes := b.Events(), b.memory()
	group := s.tail[len(s.tail)-s.group:]
	for _, o := range group {
		events += o.Events()
		bytes += o.memory()
	}
	first := group[0].idx
	return events <= maxGroupEvents && bytes <= groupBytes(tailBytes) &&
		first.epoch == b.epoch && first.dictionary == b.idx.dictionary
}

// merge returns one block with the events of bs, which are neighbours and at least one, none with a gap
// before it but the first. No event is compressed again: columns are concatenated, frames copied.
func merge(bs []*Block) *Block {
	first, last := bs[0], bs[len(bs)-1]
	events, plainBytes, zstdBytes := 0, 0, 0
	for _, b := range bs {
		events += b.Events()
		plainBytes += len(b.plain)
		zstdBytes += len(b.zstd)
	}
	x := newIndex(first.epoch, first.idx.dictionary, events)
	x.firstSeq, x.lastSeq = first.firstSeq, last.lastSeq
	t := scratches.Get().(*scratch)
	t.collections.reset()
	t.dids.reset()
	plain := make([]byte, 0, plainBytes)
	zstd := make([]byte, 0, zstdBytes+format.TrailerBytes)
	for _, b := range bs {
		x.concat(b.idx, t, uint32(len(plain)), uint32(len(zstd)))
		plain = append(plain, b.plain...)
		zstd = append(zstd, b.zstd...)
	}
	x.dropZeroUIDs()
	out := &Block{epoch: first.epoch, firstSeq: x.firstSeq, lastSeq: x.lastSeq, stranded: first.stranded}
	out.seal(x, t, plain, zstd)
	scratches.Put(t)
	return out
}

// concat appends the events of o, whose frames begin at the given ends of the parts so far. Names get
// their numbers from t.
func (x *index) concat(o *index, t *scratch, plain, zstd uint32) {
	collections := make([]uint16, 1+o.collections.len()) // [0]: no collection
	for i := range o.collections.len() {
		collections[1+i] = 1 + t.collections.numberString(o.collections.at(i))
	}
	dids := make([]uint16, o.dids.len())
	for i := range dids {
		dids[i] = t.dids.numberString(o.dids.at(i))
	}
	x.kinds |= o.kinds
	x.timeUS = append(x.timeUS, o.timeUS...)
	x.seq = append(x.seq, o.seq...)
	x.op = append(x.op, o.op...)
	x.kind = append(x.kind, o.kind...)
	for i := range o.events() {
		x.collection = append(x.collection, collections[o.collection[i]])
		x.did = append(x.did, dids[o.did[i]])
		x.plainEnd = append(x.plainEnd, plain+o.plainEnd[i])
		x.zstdEnd = append(x.zstdEnd, zstd+o.zstdEnd[i])
	}
	x.didUID = appendUIDs(x.didUID, o.didUID, o.events())
	x.uriUID = appendUIDs(x.uriUID, o.uriUID, o.events())
}

// appendUIDs appends n UIDs; nil stands for zeros.
func appendUIDs(dst, uids []uint64, n int) []uint64 {
	if uids != nil {
		return append(dst, uids...)
	}
	start := len(dst)
	dst = slices.Grow(dst, n)[:start+n]
	clear(dst[start:])
	return dst
}

// dropZeroUIDs makes columns nil that are all 0.
func (x *index) dropZeroUIDs() {
	for _, u := range []*[]uint64{&x.didUID, &x.uriUID} {
		if !slices.ContainsFunc(*u, func(v uint64) bool { return v != 0 }) {
			*u = nil
		}
	}
}

// closeGroup ends the group of next: the blocks of it become one, in the tail and, unless nothing is
// stored, in the batch. The newest unwritten ones of them are not in the store yet.
func (p *appendPass) closeGroup() error {
	n := p.next
	group := n.tail[len(n.tail)-n.group:]
	written := len(group) - min(len(group), p.unwritten)
	base := n.groupBase
	n.group = 0
	if len(group) == 1 {
		p.unwritten = 0
		if err := p.joinSpan(group[0]); err != nil || written == 1 {
			return err
		}
		return p.put(group[0], n.total)
	}
	merged := merge(group)
	p.log.metrics.mergedBlocks.Add(float64(len(group)))
	for _, b := range group {
		n.tailBytes -= b.memory()
	}
	n.tailBytes += merged.memory()
	if p.log.cfg.Retention > 0 {
		if err := p.deleteBlocks(group[:min(written, len(group)-1)]); err != nil {
			return err
		}
		if written == len(group) { // its last one's key is the merged block's
			if err := p.deleteStrands(group[len(group)-1], merged.strands); err != nil {
				return err
			}
		}
	}
	n.tail = append(n.tail[:len(n.tail)-len(group)], merged)
	n.total = base
	n.total.add(merged)
	p.unwritten = 0
	p.merged = append(p.merged, merged)
	if err := p.joinSpan(merged); err != nil {
		return err
	}
	return p.put(merged, n.total)
}

// deleteBlocks adds to the batch the deletion of blocks that were written once and not overwritten.
func (p *appendPass) deleteBlocks(bs []*Block) error {
	var key [format.TimeKeyBytes]byte
	for _, b := range bs {
		for _, r := range format.BlockRanges() {
			if err := p.batch.SingleDelete(format.AppendTimeKey(key[:0], r, b.idx.key()), nil); err != nil {
				return err
			}
		}
		if err := p.deleteStrands(b, 1); err != nil {
			return err
		}
		if err := p.batch.SingleDelete(format.SeqKey(b.epoch, b.lastSeq), nil); err != nil {
			return err
		}
	}
	return nil
}

// deleteStrands adds to the batch the deletion of a block's strands from number first on.
func (p *appendPass) deleteStrands(b *Block, first int) error {
	for s := first; s < b.strands; s++ {
		if err := p.batch.SingleDelete(format.SubstreamKey(b.idx.key(), s), nil); err != nil {
			return err
		}
	}
	return nil
}

// settle ends the group without merging it, so that its blocks may be trimmed one by one. It returns
// the snapshot in which that is so: none of its blocks will ever be merged.
func (l *Log) settle() *snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.snap.Load()
	if s.err != nil || s.group == 0 {
		return s
	}
	next := s.next()
	if l.cfg.Retention > 0 {
		l.spans.settled = append(l.spans.settled, s.tail[len(s.tail)-s.group:]...)
	}
	next.group = 0
	l.publish(next)
	return next
}
