package verify

import (
	"fmt"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
)

// maxVerifiedDIDs bounds the DIDs whose UIDs are compared over the whole log, some 40 bytes each.
const maxVerifiedDIDs = 1 << 20

// chain is what is known of the blocks before the one that is looked at.
type chain struct {
	spans         spanCheck
	pointers      *rangeScan
	brokenPointer bool // a pointer could not be read; it may be that of the next block without one

	blocks   int64
	first    format.Point // of the first event; zero if the first block cannot be read
	lastKey  int64
	last     format.Point // of the last event that could be read
	lastSeq  int64        // of the last block that could be read
	totals   format.Totals
	hasTotal bool // totals are those up to the block before

	gap  int               // the first of the gaps that was not passed
	uids map[uint64]uint64 // by xxhash64 of the DID
}

func (c *chain) open(v *verifier) (err error) {
	c.uids = make(map[uint64]uint64)
	c.totals, c.hasTotal = v.state.Trimmed, v.hasState
	if c.pointers, err = v.scan(format.RangeSeq); err != nil {
		return err
	}
	return c.spans.open(v)
}

// add compares a block with its neighbours, in the log's order.
func (c *chain) add(v *verifier, b *blockCheck) {
	c.spans.add(b)
	ptr, epoch, seq, hasPointer := c.pointerOf(v, b.key)
	if !hasPointer && !c.brokenPointer {
		v.fault(format.RangeSeq, b.key, "no block pointer leads to it")
	}
	c.brokenPointer = false
	x := b.idx
	if x == nil {
		c.blocks++
		c.lastKey = b.key
		c.totals, c.hasTotal = ptr.Totals, hasPointer
		return
	}
	c.follow(v, x)
	if hasPointer {
		c.checkPointer(v, b, ptr, epoch, seq)
	}
	c.checkGaps(v, x)
	c.checkUIDs(v, x)
	v.checkSources(b)
	if len(v.uses) > 0 && format.FindUse(v.uses, x.Dictionary) < 0 {
		v.fault(format.RangeIndex, b.key, "it is made with dictionary %d, which is not among those that the log says it uses", x.Dictionary)
	}
	c.totals, c.hasTotal = ptr.Totals, hasPointer
	if c.blocks == 0 {
		c.first = x.FirstPoint()
	}
	c.blocks++
	c.lastKey, c.last, c.lastSeq = b.key, x.LastPoint(), x.LastSeq
}

// follow checks that x comes after the blocks before it.
func (c *chain) follow(v *verifier, x *format.Index) {
	key := x.Key()
	if x.TimeUS[0] <= c.lastKey {
		v.eventFault(format.RangeIndex, key, 0, "time_us %d is not after the block before, %d", x.TimeUS[0], c.lastKey)
	}
	if c.last != (format.Point{}) {
		switch p := x.PlaceAt(0); {
		case !c.last.Before(p):
			v.eventFault(format.RangeIndex, key, 0, "seq %d, op %d of epoch %d does not follow seq %d, op %d of epoch %d",
				p.Seq, p.Op, p.Epoch, c.last.Seq, c.last.Op, c.last.Epoch)
		case x.Epoch == c.last.Epoch && x.FirstSeq <= c.lastSeq:
			v.fault(format.RangeIndex, key, "its frames begin with %d, those of a block before end with %d", x.FirstSeq, c.lastSeq)
		}
	}
	known := func(s format.Stream) bool { return s.Epoch == x.Epoch }
	if len(v.streams) > 0 && !slices.ContainsFunc(v.streams, known) {
		v.fault(format.RangeIndex, key, "it is of epoch %d, which the log does not know", x.Epoch)
	}
}

// pointerOf returns the block pointer that leads to the block. Those before it, to blocks that are
// not there, are noted.
func (c *chain) pointerOf(v *verifier, key int64) (ptr format.BlockPointer, epoch uint32, seq int64, ok bool) {
	for ; c.pointers.ok; c.pointers.next() {
		epoch, seq, _ = format.ParseSeqKey(c.pointers.lastKey)
		ptr, err := format.OpenBlockPointer(c.pointers.value, seq)
		switch {
		case err != nil:
			v.fault(format.RangeSeq, seq, "%v", err)
			c.brokenPointer = true
			continue
		case ptr.Key > key:
			return format.BlockPointer{}, 0, 0, false
		case ptr.Key < key:
			v.fault(format.RangeSeq, seq, "it leads to block %d, which is not there", ptr.Key)
			continue
		}
		c.pointers.next()
		return ptr, epoch, seq, true
	}
	return format.BlockPointer{}, 0, 0, false
}

// checkPointer compares a block pointer with its block.
func (c *chain) checkPointer(v *verifier, b *blockCheck, ptr format.BlockPointer, epoch uint32, seq int64) {
	last := b.idx.LastPoint()
	if epoch != b.idx.Epoch || seq != b.idx.LastSeq {
		v.fault(format.RangeSeq, seq, "the pointer to block %d is under seq %d of epoch %d, but the block ends with seq %d of epoch %d",
			b.key, seq, epoch, b.idx.LastSeq, b.idx.Epoch)
	}
	if ptr.Seq != last.Seq || ptr.Op != last.Op {
		v.fault(format.RangeSeq, seq, "it says that block %d ends with seq %d, op %d; it ends with seq %d, op %d", b.key, ptr.Seq, ptr.Op, last.Seq, last.Op)
	}
	want := c.totals
	want.Blocks++
	want.Events += int64(b.idx.Events())
	want.Bytes += b.bytes
	if c.hasTotal && b.whole && ptr.Totals != want {
		v.fault(format.RangeSeq, seq, "its totals are %d blocks, %d events, %d bytes; counted: %d, %d, %d",
			ptr.Blocks, ptr.Events, ptr.Bytes, want.Blocks, want.Events, want.Bytes)
	}
}

// checkGaps checks that no gap lies within the block.
func (c *chain) checkGaps(v *verifier, x *format.Index) {
	for ; c.gap < len(v.gaps) && v.gaps[c.gap].TimeUS <= x.Key(); c.gap++ {
		if us := v.gaps[c.gap].TimeUS; us > x.TimeUS[0] {
			v.fault(format.RangeGap, us, "it lies within block %d, which begins at %d", x.Key(), x.TimeUS[0])
		}
	}
}

// checkUIDs checks that a DID has the UID that it had in earlier blocks.
func (c *chain) checkUIDs(v *verifier, x *format.Index) {
	if x.DIDUID == nil {
		return
	}
	hashes := x.HashDIDs()
	for i, d := range x.DID {
		uid := x.DIDUID[i]
		if uid == 0 {
			continue
		}
		switch have, ok := c.uids[hashes[d]]; {
		case !ok && len(c.uids) < maxVerifiedDIDs:
			c.uids[hashes[d]] = uid
		case ok && have != uid:
			v.eventFault(format.RangeIndex, x.Key(), i, "%.*q has UID %d, and in an earlier block %d", maxNamed, x.DIDs.At(int(d)), uid, have)
		}
	}
}

// checkState compares the progress record with the blocks, once all were seen.
func (v *verifier) checkState(c *chain) {
	s := &v.state
	wrong := func(text string, args ...any) {
		v.fault(format.RangeMeta, 0, "%s: %s", format.MetaState, fmt.Sprintf(text, args...))
	}
	if n := len(v.streams); n > 0 && v.streams[n-1].Epoch != s.Epoch {
		wrong("its epoch is %d, that of the newest stream %d", s.Epoch, v.streams[n-1].Epoch)
	}
	if n := len(v.gaps); n > 0 && v.gaps[n-1].TimeUS <= s.Floor.TimeUS {
		wrong("it says that everything up to %d is dropped, but there are gaps from then", s.Floor.TimeUS)
	}
	if s.Newest.TimeUS > s.TimeUS {
		wrong("its newest event is of %d, its newest stamp %d", s.Newest.TimeUS, s.TimeUS)
	}
	if c.blocks == 0 {
		if s.Oldest != (format.Point{}) {
			wrong("it says that the oldest event is of %d, but there is no block", s.Oldest.TimeUS)
		}
		return
	}
	if c.first != (format.Point{}) && s.Oldest != c.first {
		wrong("it says that the oldest event is of %d (seq %d, op %d); it is of %d (seq %d, op %d)",
			s.Oldest.TimeUS, s.Oldest.Seq, s.Oldest.Op, c.first.TimeUS, c.first.Seq, c.first.Op)
	}
	if c.lastKey != s.Newest.TimeUS || c.last.TimeUS == c.lastKey && c.last != s.Newest {
		wrong("it says that the newest event is of %d (seq %d, op %d); it is of %d (seq %d, op %d)",
			s.Newest.TimeUS, s.Newest.Seq, s.Newest.Op, c.lastKey, c.last.Seq, c.last.Op)
	}
	if c.first.TimeUS != 0 && s.Floor.TimeUS >= c.first.TimeUS {
		wrong("it says that everything up to %d is dropped, but there are events from %d on", s.Floor.TimeUS, c.first.TimeUS)
	}
	if reached := (format.Place{Epoch: s.Epoch, Seq: s.Seq, Op: math.MaxUint32}); reached.Before(format.Place{Epoch: c.last.Epoch, Seq: c.lastSeq, Op: 0}) {
		wrong("the position is seq %d of epoch %d, but there are blocks up to seq %d of epoch %d", s.Seq, s.Epoch, c.lastSeq, c.last.Epoch)
	}
	if c.hasTotal && s.Total != c.totals {
		wrong("its totals are %d blocks, %d events, %d bytes; those of the last block are %d, %d, %d",
			s.Total.Blocks, s.Total.Events, s.Total.Bytes, c.totals.Blocks, c.totals.Events, c.totals.Bytes)
	}
}

// leftovers notes block pointers and spans to blocks that were not there.
func (c *chain) leftovers(v *verifier) error {
	_, _, _, _ = c.pointerOf(v, math.MaxInt64)
	return c.spans.leftovers()
}

// keys looks for keys in ranges that this version does not write.
func (v *verifier) keys() error {
	known := format.Ranges()
	var from []byte // nil: from the first key on
	for i := 0; i <= len(known); i++ {
		opts := &pebble.IterOptions{LowerBound: from}
		if i < len(known) {
			opts.UpperBound = known[i].Start()
			from = known[i].End()
		}
		it, err := v.db.NewIter(opts)
		if err != nil {
			return fmt.Errorf("look for unknown keys: %w", err)
		}
		if it.First() {
			v.storeFault(fmt.Sprintf("key %x is of no range that this version writes", it.Key()))
		}
		if err := it.Close(); err != nil {
			v.storeFault(err.Error())
		}
	}
	return nil
}
