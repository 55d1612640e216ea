package replay

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sort"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// Limits of a span. It ends before the block that would bring it over one of them, so a single larger
// block is a span of its own.
const (
	maxSpanEvents      = 1<<16 - 1 // the fingerprints of so many DIDs have 16-bit places, even all in one shard
	maxSpanBlocks      = 256       // a block's number in its span has 8 bits
	maxSpanCollections = 4096
	// maxOthersBytes bounds the copies of a span's identity and account events. If they are more, the
	// span has none, and readers find the events in their blocks.
	maxOthersBytes = 1 << 20
	// A span covers at most this share of the retention, in time and in bytes.
	spanRetentionShare = 64
)

// blockSet is a set of blocks of one span, by their number in it.
type blockSet [maxSpanBlocks / 64]uint64

func (s *blockSet) add(i int)      { s[i/64] |= 1 << (i % 64) }
func (s *blockSet) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

func (s *blockSet) empty() bool { return *s == blockSet{} }

func (s *blockSet) union(o *blockSet) {
	for i := range s {
		s[i] |= o[i]
	}
}

func (s *blockSet) intersect(o *blockSet) {
	for i := range s {
		s[i] &= o[i]
	}
}

// next returns the first member from i on, or maxSpanBlocks.
func (s *blockSet) next(i int) int {
	if i >= maxSpanBlocks {
		return maxSpanBlocks
	}
	word := s[i/64] >> (i % 64)
	if word != 0 {
		return i + bits.TrailingZeros64(word)
	}
	for w := i/64 + 1; w < len(s); w++ {
		if s[w] != 0 {
			return 64*w + bits.TrailingZeros64(s[w])
		}
	}
	return maxSpanBlocks
}

// count returns how many members there are from i on and before end.
func (s *blockSet) count(i, end int) (n int) {
	for i = s.next(i); i < min(end, maxSpanBlocks); i = s.next(i + 1) {
		n++
	}
	return n
}

// firstBlocks is the set of the first n blocks.
func firstBlocks(n int) (s blockSet) {
	for i := range n {
		s.add(i)
	}
	return s
}

// span says what is in a run of blocks, which are all of one epoch. It is the decoded value of a key of
// RangeSpan, and immutable.
type span struct {
	epoch uint32
	// By block:
	first  []int64 // stamp of its first event
	keys   []int64 // and of its last
	seq    []int64 // of its last event
	op     []uint32
	events []uint32

	collections table
	counts      []uint32   // events, by collection
	present     []blockSet // blocks, by collection

	// Identity and account events pass every collection filter.
	identities, accounts  uint32
	identityIn, accountIn blockSet
	others                bool // they are stored once more, apart, under RangeCopiesIndex and the next two
}

func (s *span) key() int64 { return s.keys[len(s.keys)-1] }

// lastMark is the mark of the span's last event.
func (s *span) lastMark() mark {
	i := len(s.keys) - 1
	return mark{s.keys[i], place{s.epoch, s.seq[i], s.op[i]}}
}

// firstWith returns the first block that has an event stamped us or later.
func (s *span) firstWith(us int64) int {
	return sort.Search(len(s.keys), func(i int) bool { return s.keys[i] >= us })
}

// memory returns about how many bytes the span takes.
func (s *span) memory() int64 {
	return int64(512 + 32*len(s.keys) + len(s.collections.text) + (4+4+len(blockSet{})*8)*s.collections.len())
}

// Columns of a span, by ID, in the order they are written.
const (
	columnSpanFirst byte = 32 + iota
	columnSpanKeys
	columnSpanSeq
	columnSpanOp
	columnSpanEvents
	columnSpanCounts
)

// appendSpan appends the encoded span, without trailer.
func appendSpan(dst []byte, s *span) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, s.epoch)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s.keys)))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(s.collections.len()))
	dst = binary.LittleEndian.AppendUint32(dst, s.identities)
	dst = binary.LittleEndian.AppendUint32(dst, s.accounts)
	others := byte(0)
	if s.others {
		others = 1
	}
	dst = append(dst, others, 0, 0, 0)
	dst = appendColumn(dst, columnSpanFirst, true, s.first)
	dst = appendColumn(dst, columnSpanKeys, true, s.keys)
	dst = appendColumn(dst, columnSpanSeq, true, s.seq)
	dst = appendColumn(dst, columnSpanOp, false, s.op)
	dst = appendColumn(dst, columnSpanEvents, false, s.events)
	dst = appendColumn(dst, columnCollectionEnds, true, s.collections.ends)
	dst = append(dst, s.collections.text...)
	dst = appendColumn(dst, columnSpanCounts, false, s.counts)
	n := (len(s.keys) + 7) / 8
	dst = appendBlockSet(dst, &s.identityIn, n)
	dst = appendBlockSet(dst, &s.accountIn, n)
	for i := range s.present {
		dst = appendBlockSet(dst, &s.present[i], n)
	}
	return dst
}

// appendBlockSet appends the first n bytes of the set, block 0 in the lowest bit of the first.
func appendBlockSet(dst []byte, s *blockSet, n int) []byte {
	for i := range n {
		dst = append(dst, byte(s[i/8]>>(8*(i%8))))
	}
	return dst
}

func (d *decoder) blockSet(n int) (s blockSet) {
	for i, b := range d.take(n) {
		s[i/8] |= uint64(b) << (8 * (i % 8))
	}
	return s
}

// decodeSpan decodes what appendSpan made, and keeps nothing of b.
func decodeSpan(b []byte) (*span, error) {
	d := &decoder{b: b}
	s := &span{epoch: d.uint32()}
	n, collections := int(d.uint16()), int(d.uint16())
	s.identities, s.accounts = d.uint32(), d.uint32()
	s.others = d.byte() != 0
	d.take(3)
	if d.err == nil && (n < 1 || n > maxSpanBlocks) {
		d.fail(fmt.Errorf("it has %d blocks", n))
	}
	if d.err != nil {
		return nil, d.err
	}
	s.first, s.keys, s.seq = make([]int64, n), make([]int64, n), make([]int64, n)
	s.op, s.events, s.counts = make([]uint32, n), make([]uint32, n), make([]uint32, collections)
	decodeNext(d, columnSpanFirst, s.first)
	decodeNext(d, columnSpanKeys, s.keys)
	decodeNext(d, columnSpanSeq, s.seq)
	decodeNext(d, columnSpanOp, s.op)
	decodeNext(d, columnSpanEvents, s.events)
	s.collections = d.table(columnCollectionEnds, collections)
	decodeNext(d, columnSpanCounts, s.counts)
	bytes := (n + 7) / 8
	s.identityIn, s.accountIn = d.blockSet(bytes), d.blockSet(bytes)
	s.present = make([]blockSet, collections)
	for i := range s.present {
		s.present[i] = d.blockSet(bytes)
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	all := firstBlocks(n)
	for _, set := range append(s.present, s.identityIn, s.accountIn) {
		if rest := set; func() bool { rest.intersect(&all); return rest != set }() {
			return nil, fmt.Errorf("it names a block beyond its %d", n)
		}
	}
	last := int64(0)
	for i := range s.keys {
		if s.first[i] <= last || s.keys[i] < s.first[i] {
			return nil, fmt.Errorf("block %d: its stamps do not ascend", i)
		}
		last = s.keys[i]
	}
	return s, nil
}

// decodeNext decodes the column that must come next.
func decodeNext[T number](d *decoder, id byte, dst []T) {
	c := d.column(len(dst))
	if d.err == nil && c.id != id {
		d.fail(fmt.Errorf("column %d where %d should be", c.id, id))
	}
	if d.err == nil {
		decode(c, dst)
	}
}

// openSpan gathers what is in the blocks since the last span, to make one of them. Log.mu guards it.
type openSpan struct {
	span
	bytes   int64          // of the blocks, as stored
	total   int            // events
	numbers map[string]int // of collections
	pairs   []uint64       // fingerprint of a DID (the upper 56 bits), number of a block that has it
	text    []byte         // of the collections' table
	copies  *othersBuilder // nil: they are too many, or their bytes are not at hand
}

func newOpenSpan(epoch uint32) *openSpan {
	return &openSpan{span: span{epoch: epoch}, numbers: make(map[string]int), copies: newOthersBuilder()}
}

// fits says whether a block may still join.
func (o *openSpan) fits(x *index, bytes, maxMicros, maxBytes int64) bool {
	return x.epoch == o.epoch && o.total+x.events() <= maxSpanEvents && len(o.keys) < maxSpanBlocks &&
		len(o.counts)+x.collections.len() <= maxSpanCollections &&
		x.key()-o.first[0] <= maxMicros && (maxBytes == 0 || o.bytes+bytes <= maxBytes)
}

// add takes a block in. plain and zstd are its parts, nil if they are not at hand.
func (o *openSpan) add(k fingerprintKey, x *index, plain, zstd []byte, bytes int64) {
	n := len(o.keys)
	last := x.lastMark()
	o.first = append(o.first, x.timeUS[0])
	o.keys = append(o.keys, last.timeUS)
	o.seq = append(o.seq, last.seq)
	o.op = append(o.op, last.op)
	o.events = append(o.events, uint32(x.events()))
	o.total += x.events()
	o.bytes += bytes
	numbers := make([]int, x.collections.len())
	for i := range numbers {
		name := x.collections.at(i)
		c, ok := o.numbers[name]
		if !ok {
			c = len(o.counts)
			o.numbers[name] = c
			o.text = append(o.text, name...)
			o.collections.ends = append(o.collections.ends, uint32(len(o.text)))
			o.counts = append(o.counts, 0)
			o.present = append(o.present, blockSet{})
		}
		numbers[i] = c
	}
	for i := range x.events() {
		if c := x.collection[i]; c > 0 {
			o.counts[numbers[c-1]]++
			o.present[numbers[c-1]].add(n)
		}
		switch x.kindOf(i) {
		case translate.KindIdentity:
			o.identities++
			o.identityIn.add(n)
		case translate.KindAccount:
			o.accounts++
			o.accountIn.add(n)
		}
	}
	for i := range x.dids.len() {
		o.pairs = append(o.pairs, k.of(x.dids.at(i))&^0xff|uint64(n))
	}
	if o.copies != nil && x.kinds&otherKinds != 0 && !o.copies.add(x, plain, zstd) {
		o.copies = nil
	}
}

// spanValue is one value that makes up a span, with its trailer, and where it is stored.
type spanValue struct{ key, value []byte }

// values returns what is to be stored for the span.
func (o *openSpan) values() []spanValue {
	o.collections.text = string(o.text)
	o.others = o.copies != nil && o.copies.idx != nil
	key := o.key()
	out := make([]spanValue, 0, 4+format.DIDShards)
	add := func(r format.Range, k, value []byte) {
		out = append(out, spanValue{k, format.AppendTrailer(value, r, key)})
	}
	add(format.RangeSpan, format.TimeKey(format.RangeSpan, key), appendSpan(nil, &o.span))
	for i, pairs := range shardsOf(o.pairs) {
		add(format.RangeSpanDIDs, format.ShardKey(key, i), appendShard(nil, i, pairs))
	}
	if o.others {
		x := o.copies.finish()
		add(format.RangeCopiesIndex, format.TimeKey(format.RangeCopiesIndex, key), appendIndex(nil, x))
		add(format.RangeCopiesPlain, format.TimeKey(format.RangeCopiesPlain, key), appendPacked(make([]byte, 0, maxPackedLen(len(o.copies.plain), x.events())), o.copies.plain, x.plainEnd))
		add(format.RangeCopiesZstd, format.TimeKey(format.RangeCopiesZstd, key), o.copies.zstd)
	}
	return out
}

// othersBuilder copies identity and account events out of blocks.
type othersBuilder struct {
	idx         *index // nil: none yet
	names       scratch
	plain, zstd []byte
}

func newOthersBuilder() *othersBuilder { return &othersBuilder{} }

// add copies those of one block. It returns false if they cannot be had: they are too many, or made
// with another dictionary than those before.
func (c *othersBuilder) add(x *index, plain, zstd []byte) bool {
	if plain == nil {
		return false
	}
	if c.idx == nil {
		c.idx = newIndex(x.epoch, x.dictionary, 64)
		c.names.collections.reset()
		c.names.dids.reset()
	}
	y := c.idx
	if y.dictionary != x.dictionary {
		return false
	}
	for i := range x.events() {
		if otherKinds&(1<<x.kindOf(i)) == 0 {
			continue
		}
		c.plain = append(c.plain, plain[startOf(x.plainEnd, i):x.plainEnd[i]]...)
		c.zstd = append(c.zstd, zstd[startOf(x.zstdEnd, i):x.zstdEnd[i]]...)
		if len(c.plain) > maxOthersBytes || len(c.zstd) > maxOthersBytes {
			return false
		}
		y.kinds |= 1 << x.kindOf(i)
		y.timeUS = append(y.timeUS, x.timeUS[i])
		y.seq = append(y.seq, x.seq[i])
		y.op = append(y.op, x.op[i])
		y.kind = append(y.kind, x.kind[i])
		y.collection = append(y.collection, 0)
		y.did = append(y.did, c.names.dids.numberString(x.dids.at(int(x.did[i]))))
		y.didUID = append(y.didUID, uidAt(x.didUID, i))
		y.uriUID = append(y.uriUID, uidAt(x.uriUID, i))
		y.plainEnd = append(y.plainEnd, uint32(len(c.plain)))
		y.zstdEnd = append(y.zstdEnd, uint32(len(c.zstd)))
	}
	return true
}

func uidAt(uids []uint64, i int) uint64 {
	if uids == nil {
		return 0
	}
	return uids[i]
}

// finish returns the index of the copies.
func (c *othersBuilder) finish() *index {
	x := c.idx
	x.firstSeq, x.lastSeq = x.seq[0], x.seq[len(x.seq)-1]
	x.dropZeroUIDs()
	x.dids = c.names.dids.table()
	return x
}

// The DIDs of a span are in shards, by the upper bits of their fingerprints, each a value of its own: who looks for a few
// reads a few KiB of each span.
func shardOf(fingerprint uint64) int { return int(fingerprint >> (64 - format.DIDShardBits)) }

// shardsOf sorts pairs and cuts them into those of each shard.
func shardsOf(pairs []uint64) (shards [format.DIDShards][]uint64) {
	slices.Sort(pairs)
	pairs = slices.Compact(pairs)
	for i := range shards {
		n := sort.Search(len(pairs), func(j int) bool { return shardOf(pairs[j]) > i })
		shards[i], pairs = pairs[:n], pairs[n:]
	}
	return shards
}

// appendShard appends the value of a shard of RangeSpanDIDs, without trailer. Its pairs ascend.
//
// The fingerprints are those of the DIDs without the shard's bits, cut to bucketBits + 16 bits, in ascending order; where
// those of two DIDs are equal then, they have one entry. An entry's blocks are those of its DIDs.
func appendShard(dst []byte, shard int, pairs []uint64) []byte {
	distinct := 0
	for i, p := range pairs {
		if i == 0 || p>>8 != pairs[i-1]>>8 {
			distinct++
		}
	}
	bucketBits := max(0, bits.Len(uint(distinct))-didBucketBits)
	cutOf := func(pair uint64) uint64 { return pair << format.DIDShardBits >> (64 - bucketBits - 16) }

	var lows []uint16
	starts := make([]uint16, 1<<bucketBits+1)
	var counts, numbers []byte
	var ends []uint32
	for i := 0; i < len(pairs); {
		cut := cutOf(pairs[i])
		var set blockSet
		for ; i < len(pairs) && cutOf(pairs[i]) == cut; i++ {
			set.add(int(pairs[i] & 0xff))
		}
		n := len(lows)
		if n > 0 && n%didGroup == 0 {
			ends = append(ends, uint32(len(numbers)))
		}
		starts[cut>>16+1]++
		lows = append(lows, uint16(cut))
		before := len(numbers)
		for b := set.next(0); b < maxSpanBlocks; b = set.next(b + 1) {
			numbers = append(numbers, byte(b))
		}
		counts = append(counts, byte(len(numbers)-before-1))
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(lows)))
	dst = append(dst, byte(bucketBits), byte(shard), 0, 0)
	at := uint16(0)
	for _, n := range starts {
		at += n
		dst = binary.LittleEndian.AppendUint16(dst, at)
	}
	for _, low := range lows {
		dst = binary.LittleEndian.AppendUint16(dst, low)
	}
	for _, e := range ends {
		dst = binary.LittleEndian.AppendUint32(dst, e)
	}
	dst = append(dst, counts...)
	return append(dst, numbers...)
}

const (
	// didBucketBits is how many bits fewer the number of buckets has than that of the DIDs: a bucket
	// has 2 to 4 entries on average.
	didBucketBits = 2
	// didGroup is how many entries share one offset into the lists of blocks.
	didGroup = 64
)

// didShard looks at a value of RangeSpanDIDs.
type didShard struct {
	n, bucketBits         int
	starts, lows          []byte
	ends, counts, numbers []byte
}

// openShard looks at the value of a shard.
func openShard(b []byte, shard int) (v didShard, err error) {
	d := &decoder{b: b}
	v.n, v.bucketBits = int(d.uint32()), int(d.byte())
	if of := int(d.byte()); d.err == nil && of != shard {
		d.fail(fmt.Errorf("it is of shard %d, not %d", of, shard))
	}
	d.take(2)
	if v.bucketBits > 16 {
		d.fail(fmt.Errorf("its buckets are named by %d bits", v.bucketBits))
	}
	v.starts = d.take(2 * (1<<min(v.bucketBits, 16) + 1))
	v.lows = d.take(2 * v.n)
	v.ends = d.take(4 * (max(v.n-1, 0) / didGroup))
	v.counts = d.take(v.n)
	v.numbers, d.b = d.b, nil
	return v, d.end()
}

// find returns the entry of a fingerprint; -1 if there is none, so that its DID is in none of the blocks.
func (v *didShard) find(fingerprint uint64) int {
	cut := fingerprint << format.DIDShardBits >> (64 - v.bucketBits - 16)
	low := uint16(cut)
	bucket := int(cut >> 16)
	from := int(binary.LittleEndian.Uint16(v.starts[2*bucket:]))
	to := min(int(binary.LittleEndian.Uint16(v.starts[2*bucket+2:])), v.n)
	for i := from; i < to; i++ {
		if binary.LittleEndian.Uint16(v.lows[2*i:]) == low {
			return i
		}
	}
	return -1
}

// addTo adds the blocks of entry i to the set.
func (v *didShard) addTo(set *blockSet, i int) error {
	at := 0
	if g := i / didGroup; g > 0 {
		at = int(binary.LittleEndian.Uint32(v.ends[4*(g-1):]))
	}
	for j := i - i%didGroup; j < i; j++ {
		at += int(v.counts[j]) + 1
	}
	end := at + int(v.counts[i]) + 1
	if end > len(v.numbers) {
		return errShort
	}
	for _, b := range v.numbers[at:end] {
		set.add(int(b))
	}
	return nil
}
