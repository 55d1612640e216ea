package replay

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// spannedBlock is what a span says something about: a block's index, and its identity and account events' frames.
type spannedBlock struct {
	key         int64
	idx         *index // nil: it cannot be read
	plain, zstd [][]byte
}

// spanCheck compares spans with the blocks that they are of. The collector uses it.
type spanCheck struct {
	v      *verifier
	spans  *rangeScan
	key    fingerprintKey
	hasKey bool
	blocks []spannedBlock // since the last span
	seen   map[int64]bool // keys of spans; true: it has copies of identity and account events
}

// maxSpannedBlocks bounds spanCheck.blocks: more than a span ever has, and all that may be behind the last one.
const maxSpannedBlocks = 4 * maxSpanBlocks

func (c *spanCheck) open(v *verifier) (err error) {
	c.v, c.seen = v, make(map[int64]bool)
	v.metaValue(format.MetaFingerprintKey, true, func(b []byte) error {
		if len(b) != fingerprintKeyBytes {
			return fmt.Errorf("it has %d bytes, not %d", len(b), fingerprintKeyBytes)
		}
		c.key, c.hasKey = decodeFingerprintKey(b), true
		return nil
	})
	c.spans, err = v.scan(format.RangeSpan)
	return err
}

func (c *spanCheck) close() { c.spans.close() }

// add takes the next block. Its frames are copied as far as they are needed.
func (c *spanCheck) add(b *blockCheck) {
	c.missed(b.key)
	s := spannedBlock{key: b.key, idx: b.idx}
	if x := b.idx; x != nil && b.plain != nil && b.zstd != nil {
		for i := range x.events() {
			if otherKinds&(1<<x.kindOf(i)) != 0 {
				s.plain = append(s.plain, bytes.Clone(b.plain[startOf(x.plainEnd, i):x.plainEnd[i]]))
				s.zstd = append(s.zstd, bytes.Clone(b.zstd[startOf(x.zstdEnd, i):x.zstdEnd[i]]))
			}
		}
	}
	if c.blocks = append(c.blocks, s); len(c.blocks) > maxSpannedBlocks {
		c.blocks = c.blocks[1:]
	}
	if c.spans.ok && c.spans.key == b.key {
		c.check()
		c.blocks = c.blocks[:0]
		c.spans.next()
	}
}

// missed notes spans that end before key with a block that is not there.
func (c *spanCheck) missed(key int64) {
	for ; c.spans.ok && c.spans.key < key; c.spans.next() {
		c.v.fault(format.RangeSpan, c.spans.key, "its last block is not there")
		c.seen[c.spans.key] = false
	}
}

// check checks the span that the scan is at, whose last block was taken.
func (c *spanCheck) check() {
	key := c.spans.key
	c.v.report.Spans++
	c.seen[key] = false
	b, err := format.OpenTrailer(c.spans.value, format.RangeSpan, key)
	var s *span
	if err == nil {
		s, err = decodeSpan(b)
	}
	if err == nil && s.key() != key {
		err = fmt.Errorf("its last block is %d", s.key())
	}
	if err != nil {
		c.v.fault(format.RangeSpan, key, "%v", err)
		return
	}
	c.seen[key] = s.others
	trimmed := len(s.keys) - len(c.blocks)
	if trimmed < 0 || trimmed > 0 && (len(c.seen) > 1 || s.keys[trimmed-1] > c.v.state.floor.timeUS) {
		c.v.fault(format.RangeSpan, key, "it is of %d blocks, but there are %d since the span before", len(s.keys), len(c.blocks))
		return
	}
	names := make(map[string]int, s.collections.len())
	for i := range s.collections.len() {
		names[s.collections.at(i)] = i
	}
	for i := range c.blocks {
		if err := s.checkBlock(trimmed+i, &c.blocks[i], names); err != nil {
			c.v.fault(format.RangeSpan, key, "block %d: %v", c.blocks[i].key, err)
		}
	}
	if trimmed == 0 {
		c.checkCounts(s)
	}
	c.checkDIDs(s, trimmed)
	if s.others {
		c.checkOthers(s)
	}
}

// checkBlock compares what the span says of its block i with the block. names are the span's collections.
func (s *span) checkBlock(i int, b *spannedBlock, names map[string]int) error {
	x := b.idx
	if x == nil {
		return nil // told already
	}
	last := x.lastMark()
	if s.epoch != x.epoch || s.first[i] != x.timeUS[0] || s.keys[i] != last.timeUS || s.seq[i] != last.seq || s.op[i] != last.op || int(s.events[i]) != x.events() {
		return fmt.Errorf("it says stamps %d to %d, seq %d, op %d of epoch %d, %d events; those are %d to %d, seq %d, op %d of epoch %d, %d", s.first[i], s.keys[i],
			s.seq[i], s.op[i], s.epoch, s.events[i], x.timeUS[0], last.timeUS, last.seq, last.op, x.epoch, x.events())
	}
	present := make([]bool, s.collections.len())
	for c := range x.collections.len() {
		n, ok := names[x.collections.at(c)]
		if !ok {
			return fmt.Errorf("its collection %.*q is not among the span's", maxNamed, x.collections.at(c))
		}
		present[n] = true
	}
	for n, is := range present {
		if said := s.present[n].has(i); said != is {
			return fmt.Errorf("whether it has collection %.*q: the span says %t", maxNamed, s.collections.at(n), said)
		}
	}
	if said := s.identityIn.has(i); said != (x.kinds&Kinds(translate.KindIdentity) != 0) {
		return fmt.Errorf("whether it has identity events: the span says %t", said)
	}
	if said := s.accountIn.has(i); said != (x.kinds&Kinds(translate.KindAccount) != 0) {
		return fmt.Errorf("whether it has account events: the span says %t", said)
	}
	return nil
}

// checkCounts compares the span's numbers of events.
func (c *spanCheck) checkCounts(s *span) {
	counts := make(map[string]uint32, s.collections.len())
	var identities, accounts uint32
	for _, b := range c.blocks {
		if b.idx == nil {
			return
		}
		for i := range b.idx.events() {
			switch b.idx.kindOf(i) {
			case translate.KindIdentity:
				identities++
			case translate.KindAccount:
				accounts++
			default:
				if n := b.idx.collection[i]; n > 0 {
					counts[b.idx.collections.at(int(n)-1)]++
				}
			}
		}
	}
	if s.identities != identities || s.accounts != accounts {
		c.v.fault(format.RangeSpan, s.key(), "it says %d identity and %d account events; there are %d and %d", s.identities, s.accounts, identities, accounts)
	}
	for i := range s.collections.len() {
		if name := s.collections.at(i); s.counts[i] != counts[name] {
			c.v.fault(format.RangeSpan, s.key(), "it says %d events of collection %.*q; there are %d", s.counts[i], maxNamed, name, counts[name])
		}
	}
}

// value returns a value of the span's, without its trailer; nil if it cannot be had, which is noted.
func (c *spanCheck) value(r format.Range, key int64) []byte {
	return c.valueAt(format.TimeKey(r, key), r, key)
}

// valueAt is value of what is at storeKey.
func (c *spanCheck) valueAt(storeKey []byte, r format.Range, key int64) []byte {
	sealed, err := c.v.get(storeKey)
	if err == nil && sealed == nil {
		err = format.ErrMissing
	}
	var b []byte
	if err == nil {
		b, err = format.OpenTrailer(sealed, r, key)
	}
	if err != nil {
		c.v.fault(r, key, "%v", err)
		return nil
	}
	return b
}

// checkDIDs looks up each DID of each block, as a reader would, and that no other blocks are named.
func (c *spanCheck) checkDIDs(s *span, trimmed int) {
	key := s.key()
	var shards [format.DIDShards]didShard
	named := 0
	for i := range shards {
		b := c.valueAt(format.ShardKey(key, i), format.RangeSpanDIDs, key)
		if b == nil {
			return
		}
		var err error
		if shards[i], err = openShard(b, i); err != nil {
			c.v.fault(format.RangeSpanDIDs, key, "%v", err)
			return
		}
		named += len(shards[i].numbers)
	}
	if !c.hasKey {
		return
	}
	var pairs []uint32 // shard, entry, block
	whole := trimmed == 0
	for i, b := range c.blocks {
		if b.idx == nil {
			whole = false
			continue
		}
		for d := range b.idx.dids.len() {
			did := b.idx.dids.at(d)
			fingerprint := c.key.of(did)
			shard := shardOf(fingerprint)
			e := shards[shard].find(fingerprint)
			if e < 0 {
				c.v.fault(format.RangeSpanDIDs, key, "%.*q of block %d is not in it", maxNamed, did, b.key)
				return
			}
			var set blockSet
			if err := shards[shard].addTo(&set, e); err != nil || !set.has(trimmed+i) {
				c.v.fault(format.RangeSpanDIDs, key, "%.*q of block %d: the block is not in its list (%v)", maxNamed, did, b.key, err)
				return
			}
			pairs = append(pairs, uint32(shard)<<24|uint32(e)<<8|uint32(i))
		}
	}
	slices.Sort(pairs)
	if n := len(slices.Compact(pairs)); whole && n != named {
		c.v.fault(format.RangeSpanDIDs, key, "its lists name %d blocks; of the DIDs there are %d", named, n)
	}
}

// checkOthers compares the copies of identity and account events with the events.
func (c *spanCheck) checkOthers(s *span) {
	key := s.key()
	sealed, plain, zstd := c.value(format.RangeCopiesIndex, key), c.value(format.RangeCopiesPlain, key), c.value(format.RangeCopiesZstd, key)
	if sealed == nil || plain == nil || zstd == nil {
		return
	}
	x, err := decodeIndex(sealed)
	if err != nil {
		c.v.fault(format.RangeCopiesIndex, key, "%v", err)
		return
	}
	if plain, err = unpack(plain, x.plainEnd, nil); err != nil {
		c.v.fault(format.RangeCopiesPlain, key, "%v", err)
		return
	}
	n := x.events()
	if int(x.plainEnd[n-1]) != len(plain) || int(x.zstdEnd[n-1]) != len(zstd) {
		c.v.fault(format.RangeCopiesIndex, key, "its frames end at %d and %d; the parts have %d and %d bytes", x.plainEnd[n-1], x.zstdEnd[n-1], len(plain), len(zstd))
		return
	}
	i := 0
	if len(c.blocks) > 0 {
		i = x.firstAt(c.v.state.floor.timeUS + 1) // what was trimmed has copies still
	}
	for _, b := range c.blocks {
		if b.idx == nil || b.plain == nil && b.idx.kinds&otherKinds != 0 {
			return // told already
		}
		n := 0
		for e := range b.idx.events() {
			if otherKinds&(1<<b.idx.kindOf(e)) == 0 {
				continue
			}
			if err := copyDiffers(x, i, b.idx, e); err != nil {
				c.v.note(Problem{Part: format.RangeCopiesIndex.String(), Block: key, Event: i, Offset: -1, Text: fmt.Sprintf("the copy of block %d's event %d: %v", b.key, e, err)})
				return
			}
			for _, p := range []struct {
				r         format.Range
				copy, own []byte
				at        uint32
			}{
				{format.RangeCopiesPlain, plain[startOf(x.plainEnd, i):x.plainEnd[i]], b.plain[n], startOf(x.plainEnd, i)},
				{format.RangeCopiesZstd, zstd[startOf(x.zstdEnd, i):x.zstdEnd[i]], b.zstd[n], startOf(x.zstdEnd, i)},
			} {
				if !bytes.Equal(p.copy, p.own) {
					c.v.note(Problem{Part: p.r.String(), Block: key, Event: i, Offset: int64(p.at),
						Text: fmt.Sprintf("the copy is not what event %d of block %d is", e, b.key)})
				}
			}
			i++
			n++
		}
	}
	if i != x.events() {
		c.v.fault(format.RangeCopiesIndex, key, "it has %d events; there are %d", x.events(), i)
	}
}

// copyDiffers compares the columns of a copy with those of the event.
func copyDiffers(x *index, i int, y *index, k int) error {
	if i >= x.events() {
		return format.ErrMissing
	}
	same := x.timeUS[i] == y.timeUS[k] && x.place(i) == y.place(k) && x.kind[i] == y.kind[k] && x.collection[i] == 0 &&
		x.dids.at(int(x.did[i])) == y.dids.at(int(y.did[k])) && uidAt(x.didUID, i) == uidAt(y.didUID, k) && uidAt(x.uriUID, i) == uidAt(y.uriUID, k) &&
		x.dictionary == y.dictionary
	if !same {
		return fmt.Errorf("its columns differ: it is of time_us %d, seq %d, %.*q", x.timeUS[i], x.seq[i], maxNamed, x.dids.at(int(x.did[i])))
	}
	return nil
}

// leftovers notes what belongs to no span, once all blocks were seen.
func (c *spanCheck) leftovers() error {
	for ; c.spans.ok; c.spans.next() {
		c.v.fault(format.RangeSpan, c.spans.key, "its last block is not there")
		c.seen[c.spans.key] = false
	}
	for _, r := range []format.Range{format.RangeSpanDIDs, format.RangeCopiesIndex, format.RangeCopiesPlain, format.RangeCopiesZstd} {
		it, err := c.v.db.NewIter(&pebble.IterOptions{LowerBound: r.Start(), UpperBound: r.End()})
		if err != nil {
			return fmt.Errorf("read the %s range: %w", r.String(), err)
		}
		for it.First(); it.Valid(); it.Next() {
			key, ok := format.ParseTimeKey(it.Key())
			if r == format.RangeSpanDIDs {
				key, ok = format.ParseShardKey(it.Key())
			}
			if others, spanned := c.seen[key]; !ok || !spanned || r >= format.RangeCopiesIndex && !others {
				c.v.fault(r, key, "no span has it")
			}
		}
		if err := it.Close(); err != nil {
			c.v.fault(r, 0, "what follows cannot be read: %v", err)
		}
	}
	return nil
}
