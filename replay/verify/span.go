package verify

import (
	"bytes"
	"fmt"
	"iter"
	"math"
	"slices"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
	"millrace/translate"
)

// spannedBlock is what a span says something about: a block's index, and its identity and account
// events' frames.
type spannedBlock struct {
	key         int64
	idx         *format.Index // nil: it cannot be read
	refs        *format.References
	plain, zstd [][]byte
}

// spanCheck compares spans with the blocks that they are of.
type spanCheck struct {
	v      *verifier
	spans  *rangeScan
	key    format.FingerprintKey
	hasKey bool
	blocks []spannedBlock      // since the last span
	seen   map[int64]spanParts // by key of a span
}

// spanParts says which of the optional parts a span has.
type spanParts struct{ copies, subjects bool }

// maxSpannedBlocks bounds spanCheck.blocks: more than a span ever has, and all that may be after
// the last one.
const maxSpannedBlocks = 4 * format.MaxSpanBlocks

func (c *spanCheck) open(v *verifier) (err error) {
	c.v, c.seen = v, make(map[int64]spanParts)
	v.metaValue(format.MetaFingerprintKey, true, func(b []byte) (err error) {
		c.key, err = format.DecodeFingerprintKey(b)
		c.hasKey = err == nil
		return err
	})
	c.spans, err = v.scan(format.RangeSpan)
	return err
}

// add takes the next block. Its frames are copied as far as they are needed.
func (c *spanCheck) add(b *blockCheck) {
	c.missed(b.key)
	s := spannedBlock{key: b.key, idx: b.idx, refs: b.refs}
	if x := b.idx; x != nil && b.plain != nil && b.zstd != nil {
		for i := range x.Events() {
			if format.CopiedKinds&(1<<x.KindAt(i)) != 0 {
				s.plain = append(s.plain, bytes.Clone(b.plain[format.FrameStart(x.PlainEnd, i):x.PlainEnd[i]]))
				s.zstd = append(s.zstd, bytes.Clone(b.zstd[format.FrameStart(x.ZstdEnd, i):x.ZstdEnd[i]]))
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

// missed reports each span before key: its last block, whose key the span has, is not there.
func (c *spanCheck) missed(key int64) {
	for ; c.spans.ok && c.spans.key < key; c.spans.next() {
		c.v.fault(format.RangeSpan, c.spans.key, "its last block is not there")
		c.seen[c.spans.key] = spanParts{}
	}
}

// check checks the span that the scan is at, whose last block was taken.
func (c *spanCheck) check() {
	key := c.spans.key
	c.v.report.Spans++
	c.seen[key] = spanParts{}
	s, err := format.Open(c.spans.value, format.RangeSpan, key, format.DecodeSpan)
	if err == nil && s.Key() != key {
		err = fmt.Errorf("its last block is %d", s.Key())
	}
	if err != nil {
		c.v.fault(format.RangeSpan, key, "%v", err)
		return
	}
	c.seen[key] = spanParts{s.Copied, s.HasSubjects}
	trimmed := len(s.Keys) - len(c.blocks)
	if trimmed < 0 || trimmed > 0 && (len(c.seen) > 1 || s.Keys[trimmed-1] > c.v.state.Floor.TimeUS) {
		c.v.fault(format.RangeSpan, key, "it is of %d blocks, but there are %d since the span before", len(s.Keys), len(c.blocks))
		return
	}
	names := make(map[string]int, s.Collections.Len())
	for i := range s.Collections.Len() {
		names[s.Collections.At(i)] = i
	}
	for i := range c.blocks {
		if err := checkSpannedBlock(s, trimmed+i, &c.blocks[i], names); err != nil {
			c.v.fault(format.RangeSpan, key, "block %d: %v", c.blocks[i].key, err)
		}
	}
	if trimmed == 0 {
		c.checkCounts(s)
	}
	c.checkDIDs(s, trimmed)
	c.checkSubjects(s, trimmed)
	if s.Copied {
		c.checkOthers(s)
	}
}

// checkSpannedBlock compares what the span says of its block i with the block. names are the span's
// collections.
func checkSpannedBlock(s *format.Span, i int, b *spannedBlock, names map[string]int) error {
	x := b.idx
	if x == nil {
		return nil // reported already
	}
	last := x.LastPoint()
	if s.Epoch != x.Epoch || s.First[i] != x.TimeUS[0] || s.Keys[i] != last.TimeUS || s.Seq[i] != last.Seq || s.Op[i] != last.Op || int(s.Events[i]) != x.Events() {
		return fmt.Errorf("it says stamps %d to %d, seq %d, op %d of epoch %d, %d events; those are %d to %d, seq %d, op %d of epoch %d, %d", s.First[i], s.Keys[i],
			s.Seq[i], s.Op[i], s.Epoch, s.Events[i], x.TimeUS[0], last.TimeUS, last.Seq, last.Op, x.Epoch, x.Events())
	}
	present := make([]bool, s.Collections.Len())
	for c := range x.Collections.Len() {
		n, ok := names[x.Collections.At(c)]
		if !ok {
			return fmt.Errorf("its collection %.*q is not among the span's", maxNamed, x.Collections.At(c))
		}
		present[n] = true
	}
	for n, is := range present {
		if said := s.Present[n].Has(i); said != is {
			return fmt.Errorf("whether it has collection %.*q: the span says %t, the block %t", maxNamed, s.Collections.At(n), said, is)
		}
	}
	for _, kind := range []struct {
		kind   translate.Kind
		blocks *format.BlockSet
	}{{translate.KindIdentity, &s.IdentityIn}, {translate.KindAccount, &s.AccountIn}, {translate.KindSync, &s.SyncIn}} {
		if said, is := kind.blocks.Has(i), x.Kinds&format.Kinds(kind.kind) != 0; said != is {
			return fmt.Errorf("whether it has %s events: the span says %t, the block %t", kind.kind, said, is)
		}
	}
	return nil
}

// checkCounts compares the span's numbers of events.
func (c *spanCheck) checkCounts(s *format.Span) {
	counts := make(map[string]uint32, s.Collections.Len())
	var identities, accounts, syncs uint32
	for _, b := range c.blocks {
		if b.idx == nil {
			return
		}
		for i := range b.idx.Events() {
			switch b.idx.KindAt(i) {
			case translate.KindIdentity:
				identities++
			case translate.KindAccount:
				accounts++
			case translate.KindSync:
				syncs++
			default:
				if n := b.idx.Collection[i]; n > 0 {
					counts[b.idx.Collections.At(int(n)-1)]++
				}
			}
		}
	}
	if s.Identities != identities || s.Accounts != accounts || s.Syncs != syncs {
		c.v.fault(format.RangeSpan, s.Key(), "it says %d identity, %d account and %d sync events; there are %d, %d and %d",
			s.Identities, s.Accounts, s.Syncs, identities, accounts, syncs)
	}
	for i := range s.Collections.Len() {
		if name := s.Collections.At(i); s.Counts[i] != counts[name] {
			c.v.fault(format.RangeSpan, s.Key(), "it says %d events of collection %.*q; there are %d", s.Counts[i], maxNamed, name, counts[name])
		}
	}
}

// value returns a value of the span's, without its trailer; nil if it cannot be had, which is
// noted.
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

// checkFingerprints looks up what each block has in the span's index in range r, as a reader would,
// and that no other blocks are named. of yields the fingerprints of a block, and what name names.
func (c *spanCheck) checkFingerprints(s *format.Span, trimmed int, r format.Range,
	of func(b *spannedBlock) iter.Seq2[uint64, int], name func(b *spannedBlock, i int) string) {
	key := s.Key()
	var shards [format.DIDShards]format.DIDShard
	named := 0
	for i := range shards {
		b := c.valueAt(format.ShardKey(r, key, i), r, key)
		if b == nil {
			return
		}
		var err error
		if shards[i], err = format.OpenDIDShard(b, i); err != nil {
			c.v.fault(r, key, "%v", err)
			return
		}
		named += shards[i].NumBlocks()
	}
	if !c.hasKey {
		return
	}
	var pairs []uint32 // shard, entry, block
	whole := trimmed == 0
	for i := range c.blocks {
		b := &c.blocks[i]
		if b.idx == nil || b.idx.HasReferences && b.refs == nil {
			whole = false
			continue
		}
		for fingerprint, n := range of(b) {
			shard := format.ShardOf(fingerprint)
			e := shards[shard].Find(fingerprint)
			if e < 0 {
				c.v.fault(r, key, "%s of block %d is not in it", name(b, n), b.key)
				return
			}
			var set format.BlockSet
			if err := shards[shard].AddTo(&set, e); err != nil || !set.Has(trimmed+i) {
				c.v.fault(r, key, "%s of block %d: the block is not in its list (%v)", name(b, n), b.key, err)
				return
			}
			pairs = append(pairs, uint32(shard)<<24|uint32(e)<<8|uint32(i))
		}
	}
	slices.Sort(pairs)
	if n := len(slices.Compact(pairs)); whole && n != named {
		c.v.fault(r, key, "its lists name %d blocks; there are %d", named, n)
	}
}

// checkDIDs checks the span's index of DIDs.
func (c *spanCheck) checkDIDs(s *format.Span, trimmed int) {
	of := func(b *spannedBlock) iter.Seq2[uint64, int] {
		return func(yield func(uint64, int) bool) {
			for d := range b.idx.DIDs.Len() {
				if !yield(c.key.Fingerprint(b.idx.DIDs.At(d)), d) {
					return
				}
			}
		}
	}
	c.checkFingerprints(s, trimmed, format.RangeSpanDIDs, of, func(b *spannedBlock, i int) string {
		return fmt.Sprintf("%.*q", maxNamed, b.idx.DIDs.At(i))
	})
}

// checkSubjects checks the span's index of subjects, and that there is one if it must.
func (c *spanCheck) checkSubjects(s *format.Span, trimmed int) {
	must, whole := false, trimmed == 0
	for _, b := range c.blocks {
		must = must || b.refs.NumSubjects() > 0
		whole = whole && b.idx != nil && b.idx.HasReferences == (b.refs != nil)
	}
	if must && !s.HasSubjects || whole && must != s.HasSubjects {
		c.v.fault(format.RangeSpan, s.Key(), "whether its events have references: it says %t", s.HasSubjects)
		return
	}
	if !s.HasSubjects {
		return
	}
	of := func(b *spannedBlock) iter.Seq2[uint64, int] { return b.refs.Fingerprints(c.key) }
	c.checkFingerprints(s, trimmed, format.RangeSpanSubjects, of, func(b *spannedBlock, i int) string {
		return fmt.Sprintf("subject %d, or its authority,", b.refs.Subjects[i].UID)
	})
}

// checkOthers compares the copies of identity and account events with the events.
func (c *spanCheck) checkOthers(s *format.Span) {
	key := s.Key()
	sealed, plain, zstd := c.value(format.RangeCopiesIndex, key), c.value(format.RangeCopiesPlain, key), c.value(format.RangeCopiesZstd, key)
	if sealed == nil || plain == nil || zstd == nil {
		return
	}
	x, err := format.DecodeIndex(sealed)
	if err != nil {
		c.v.fault(format.RangeCopiesIndex, key, "%v", err)
		return
	}
	if plain, err = format.UnpackFrames(plain, x.PlainEnd, nil); err != nil {
		c.v.fault(format.RangeCopiesPlain, key, "%v", err)
		return
	}
	n := x.Events()
	if int(x.PlainEnd[n-1]) != len(plain) || int(x.ZstdEnd[n-1]) != len(zstd) {
		c.v.fault(format.RangeCopiesIndex, key, "its frames end at %d and %d; the parts have %d and %d bytes", x.PlainEnd[n-1], x.ZstdEnd[n-1], len(plain), len(zstd))
		return
	}
	i := 0
	if len(c.blocks) > 0 {
		i = x.FirstAt(c.v.state.Floor.TimeUS + 1) // what was trimmed has copies still
	}
	for _, b := range c.blocks {
		if b.idx == nil || b.plain == nil && b.idx.Kinds&format.CopiedKinds != 0 {
			return // reported already
		}
		n := 0
		for e := range b.idx.Events() {
			if format.CopiedKinds&(1<<b.idx.KindAt(e)) == 0 {
				continue
			}
			if err := copyDiffers(x, i, b.idx, e); err != nil {
				c.v.eventFault(format.RangeCopiesIndex, key, i, "the copy of block %d's event %d: %v", b.key, e, err)
				return
			}
			for _, p := range []struct {
				r         format.Range
				copy, own []byte
				at        uint32
			}{
				{format.RangeCopiesPlain, plain[format.FrameStart(x.PlainEnd, i):x.PlainEnd[i]], b.plain[n], format.FrameStart(x.PlainEnd, i)},
				{format.RangeCopiesZstd, zstd[format.FrameStart(x.ZstdEnd, i):x.ZstdEnd[i]], b.zstd[n], format.FrameStart(x.ZstdEnd, i)},
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
	if i != x.Events() {
		c.v.fault(format.RangeCopiesIndex, key, "it has %d events; there are %d", x.Events(), i)
	}
}

// copyDiffers compares the columns of a copy with those of the event.
func copyDiffers(x *format.Index, i int, y *format.Index, k int) error {
	if i >= x.Events() {
		return format.ErrMissing
	}
	did, uri := x.UIDs(i)
	ownDID, ownURI := y.UIDs(k)
	same := x.TimeUS[i] == y.TimeUS[k] && x.PlaceAt(i) == y.PlaceAt(k) && x.Kind[i] == y.Kind[k] && x.Collection[i] == 0 &&
		x.DIDs.At(int(x.DID[i])) == y.DIDs.At(int(y.DID[k])) && did == ownDID && uri == ownURI &&
		x.Dictionary == y.Dictionary
	if !same {
		return fmt.Errorf("its columns differ: it is of time_us %d, seq %d, %.*q", x.TimeUS[i], x.Seq[i], maxNamed, x.DIDs.At(int(x.DID[i])))
	}
	return nil
}

// leftovers notes what belongs to no span, once all blocks were seen.
func (c *spanCheck) leftovers() error {
	c.missed(math.MaxInt64)
	for _, r := range []format.Range{format.RangeSpanDIDs, format.RangeSpanSubjects, format.RangeCopiesIndex, format.RangeCopiesPlain, format.RangeCopiesZstd} {
		err := c.v.each(r, r.String()+" range", func(it *pebbleguard.Iterator) {
			key, ok := format.ParseTimeKey(it.Key())
			if r == format.RangeSpanDIDs || r == format.RangeSpanSubjects {
				key, ok = format.ParseShardKey(it.Key())
			}
			parts, spanned := c.seen[key]
			switch r {
			case format.RangeSpanDIDs:
			case format.RangeSpanSubjects:
				ok = ok && parts.subjects
			default:
				ok = ok && parts.copies
			}
			if !ok || !spanned {
				c.v.fault(r, key, "no span has it")
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}
