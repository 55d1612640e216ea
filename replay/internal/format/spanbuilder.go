package format

import (
	"millrace/translate"
)

// Limits of a span. It ends before the block that would bring it over one of them, so a single
// larger block is a span of its own.
const (
	// fingerprints of so many DIDs have 16-bit places, even all in one shard
	maxSpanEvents      = 1<<16 - 1
	MaxSpanBlocks      = 256 // a block's number in its span has 8 bits
	maxSpanCollections = 4096
	// fingerprints of so many subjects and authorities, which a secret key spreads over the shards,
	// have 16-bit places in each. Two of each reference of a block are no more
	maxSpanSubjects = 2 * MaxBlockReferences
	// maxCopiesBytes bounds the copies of a span's identity and account events, plain and zstd
	// each. If they are more, the span has none, and readers find the events in their blocks.
	maxCopiesBytes = 1 << 20
)

// SpanBuilder gathers what is in blocks, to make a span of them. It is for one goroutine.
type SpanBuilder struct {
	Span
	fingerprints FingerprintKey
	bytes        int64 // of the blocks, as stored
	total        int   // events
	numbers      map[string]int
	// fingerprint of a DID (the upper 56 bits), number of a block that has it
	pairs    []uint64
	subjects []uint64       // likewise, of subjects and authorities
	text     []byte         // of the collections' table
	copies   *copiesBuilder // nil: they are too many, or their bytes are not at hand
}

// NewSpanBuilder makes a builder for a span of blocks of one epoch, at least one. k is the log's.
func NewSpanBuilder(epoch uint32, k FingerprintKey) *SpanBuilder {
	return &SpanBuilder{Span: Span{Epoch: epoch}, fingerprints: k, numbers: make(map[string]int), copies: &copiesBuilder{}}
}

// Fits says whether the span may have b, of so many bytes as stored, as one more block. b must be
// of the span's epoch, and the span stay within its limits, maxMicros in time and maxBytes (0: no
// limit) among them.
func (o *SpanBuilder) Fits(b BlockEvents, bytes, maxMicros, maxBytes int64) bool {
	x := b.Index
	return x.Epoch == o.Epoch && o.total+x.Events() <= maxSpanEvents && len(o.Keys) < MaxSpanBlocks &&
		len(o.Counts)+x.Collections.Len() <= maxSpanCollections &&
		len(o.subjects)+2*b.References.NumSubjects() <= maxSpanSubjects &&
		x.Key()-o.First[0] <= maxMicros && (maxBytes == 0 || o.bytes+bytes <= maxBytes)
}

// Add takes in a block of so many bytes as stored, the next one in the log. Its frames are nil if
// they are not at hand. It keeps nothing of b.
func (o *SpanBuilder) Add(b BlockEvents, bytes int64) {
	x := b.Index
	n := len(o.Keys)
	last := x.LastPoint()
	o.First = append(o.First, x.TimeUS[0])
	o.Keys = append(o.Keys, last.TimeUS)
	o.Seq = append(o.Seq, last.Seq)
	o.Op = append(o.Op, last.Op)
	o.Events = append(o.Events, uint32(x.Events()))
	o.total += x.Events()
	o.bytes += bytes
	numbers := make([]int, x.Collections.Len())
	for i := range numbers {
		name := x.Collections.At(i)
		c, ok := o.numbers[name]
		if !ok {
			c = len(o.Counts)
			o.numbers[name] = c
			o.text = append(o.text, name...)
			o.Collections.ends = append(o.Collections.ends, uint32(len(o.text)))
			o.Counts = append(o.Counts, 0)
			o.Present = append(o.Present, BlockSet{})
		}
		numbers[i] = c
	}
	for i := range x.Events() {
		if c := x.Collection[i]; c > 0 {
			o.Counts[numbers[c-1]]++
			o.Present[numbers[c-1]].Add(n)
		}
		switch x.KindAt(i) {
		case translate.KindIdentity:
			o.Identities++
			o.IdentityIn.Add(n)
		case translate.KindAccount:
			o.Accounts++
			o.AccountIn.Add(n)
		case translate.KindSync:
			o.Syncs++
			o.SyncIn.Add(n)
		}
	}
	for i := range x.DIDs.Len() {
		o.pairs = append(o.pairs, o.fingerprints.Fingerprint(x.DIDs.At(i))&^0xff|uint64(n))
	}
	for f := range b.References.Fingerprints(o.fingerprints) {
		o.subjects = append(o.subjects, f&^0xff|uint64(n))
	}
	if o.copies != nil && x.Kinds&CopiedKinds != 0 && !o.copies.add(x, b.Plain, b.Zstd) {
		o.copies = nil
	}
}

// SpanValue is one value of those that make up a span, with its trailer, and its key in the store.
type SpanValue struct{ Key, Value []byte }

// Finish returns the values of the span: itself, its indexes of DIDs and, if it has some, of
// subjects, and the copies. The builder must not be used afterwards.
func (o *SpanBuilder) Finish() []SpanValue {
	o.Collections.text = string(o.text)
	o.Copied = o.copies != nil && o.copies.idx != nil
	o.HasSubjects = len(o.subjects) > 0
	key := o.Key()
	out := make([]SpanValue, 0, 4+2*DIDShards)
	add := func(r Range, k, value []byte) {
		out = append(out, SpanValue{k, AppendTrailer(value, r, key)})
	}
	add(RangeSpan, TimeKey(RangeSpan, key), AppendSpan(nil, &o.Span))
	for i, pairs := range shardsOf(o.pairs) {
		add(RangeSpanDIDs, ShardKey(RangeSpanDIDs, key, i), appendDIDShard(nil, i, pairs))
	}
	for i, pairs := range shardsOf(o.subjects) {
		if o.HasSubjects {
			add(RangeSpanSubjects, ShardKey(RangeSpanSubjects, key, i), appendDIDShard(nil, i, pairs))
		}
	}
	if o.Copied {
		x := o.copies.finish()
		add(RangeCopiesIndex, TimeKey(RangeCopiesIndex, key), AppendIndex(nil, x))
		add(RangeCopiesPlain, TimeKey(RangeCopiesPlain, key), AppendPages(make([]byte, 0, maxPagesLen(len(o.copies.plain), x.Events())), o.copies.plain, x.PlainEnd))
		add(RangeCopiesZstd, TimeKey(RangeCopiesZstd, key), o.copies.zstd)
	}
	return out
}

// copiesBuilder copies identity and account events out of blocks.
type copiesBuilder struct {
	idx         *Index // nil: none yet
	dids        nameTableBuilder
	plain, zstd []byte
}

// add copies those of one block. It returns false if they cannot be had: they are too many, or made
// with another dictionary than those before.
func (c *copiesBuilder) add(x *Index, plain, zstd []byte) bool {
	if plain == nil {
		return false
	}
	if c.idx == nil {
		c.idx = newIndex(x.Epoch, x.Dictionary, 64)
	}
	y := c.idx
	if y.Dictionary != x.Dictionary {
		return false
	}
	for i := range x.Events() {
		if CopiedKinds&(1<<x.KindAt(i)) == 0 {
			continue
		}
		c.plain = append(c.plain, plain[FrameStart(x.PlainEnd, i):x.PlainEnd[i]]...)
		c.zstd = append(c.zstd, zstd[FrameStart(x.ZstdEnd, i):x.ZstdEnd[i]]...)
		if len(c.plain) > maxCopiesBytes || len(c.zstd) > maxCopiesBytes {
			return false
		}
		did := c.dids.numberString(x.DIDs.At(int(x.DID[i])))
		y.appendEvent(x, i, 0, did, uint32(len(c.plain)), uint32(len(c.zstd)))
	}
	return true
}

// finish returns the index of the copies.
func (c *copiesBuilder) finish() *Index {
	x := c.idx
	x.FirstSeq, x.LastSeq = x.Seq[0], x.Seq[len(x.Seq)-1]
	x.dropZeros()
	x.DIDs = c.dids.table()
	return x
}
