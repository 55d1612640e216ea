package replay

import (
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
)

// maxVerifiedDIDs bounds the DIDs whose UIDs are compared over the whole log, some 40 bytes each.
const maxVerifiedDIDs = 1 << 20

// chain is what the collector knows of the blocks before the one it looks at.
type chain struct {
	spans     spanCheck
	refs      *rangeScan
	brokenRef bool // one could not be read: the block that lacks one may be its

	blocks   int64
	first    mark // of the first event; zero if the first block cannot be read
	lastKey  int64
	last     mark  // of the last event that could be read
	lastSeq  int64 // of the last block that could be read
	totals   totals
	hasTotal bool // totals are those up to the block before

	gap  int               // the first of the gaps that was not passed
	uids map[uint64]uint64 // by xxhash64 of the DID
}

func (c *chain) open(v *verifier) (err error) {
	c.uids = make(map[uint64]uint64)
	c.totals, c.hasTotal = v.state.trimmed, v.hasState
	if c.refs, err = v.scan(format.RangeSeq); err != nil {
		return err
	}
	if err = c.spans.open(v); err != nil {
		c.refs.close()
	}
	return err
}

func (c *chain) close() {
	c.refs.close()
	c.spans.close()
}

// add compares a block with its neighbours, in the log's order.
func (c *chain) add(v *verifier, b *blockCheck) {
	c.spans.add(b)
	ref, epoch, seq, hasRef := c.refOf(v, b.key)
	if !hasRef && !c.brokenRef {
		v.fault(format.RangeSeq, b.key, "no reference leads to the block")
	}
	c.brokenRef = false
	x := b.idx
	if x == nil {
		c.blocks++
		c.lastKey = b.key
		c.totals, c.hasTotal = ref.totals, hasRef
		return
	}
	c.follow(v, x)
	if hasRef {
		c.checkRef(v, b, ref, epoch, seq)
	}
	c.checkGaps(v, x)
	c.checkUIDs(v, x)
	if len(v.uses) > 0 && findUse(v.uses, x.dictionary) < 0 {
		v.fault(format.RangeIndex, b.key, "it is made with dictionary %d, which is not among those that the log says it uses", x.dictionary)
	}
	c.totals, c.hasTotal = ref.totals, hasRef
	if c.blocks == 0 {
		c.first = mark{x.timeUS[0], x.place(0)}
	}
	c.blocks++
	c.lastKey, c.last, c.lastSeq = b.key, x.lastMark(), x.lastSeq
}

// follow checks that x comes after the blocks before it.
func (c *chain) follow(v *verifier, x *index) {
	key := x.key()
	if x.timeUS[0] <= c.lastKey {
		v.note(Problem{Part: format.RangeIndex.String(), Block: key, Event: 0, Offset: -1,
			Text: fmt.Sprintf("time_us %d is not after the block before, %d", x.timeUS[0], c.lastKey)})
	}
	if c.last != (mark{}) {
		switch p := x.place(0); {
		case !c.last.before(p):
			v.note(Problem{Part: format.RangeIndex.String(), Block: key, Event: 0, Offset: -1,
				Text: fmt.Sprintf("seq %d, op %d of epoch %d does not follow seq %d, op %d of epoch %d", p.seq, p.op, p.epoch, c.last.seq, c.last.op, c.last.epoch)})
		case x.epoch == c.last.epoch && x.firstSeq <= c.lastSeq:
			v.fault(format.RangeIndex, key, "its frames begin with %d, those of a block before end with %d", x.firstSeq, c.lastSeq)
		}
	}
	known := len(v.streams) == 0
	for _, s := range v.streams {
		known = known || s.epoch == x.epoch
	}
	if !known {
		v.fault(format.RangeIndex, key, "it is of epoch %d, which the log does not know", x.epoch)
	}
}

// refOf returns the reference that leads to the block. Those before it, to blocks that are not there, are noted.
func (c *chain) refOf(v *verifier, key int64) (ref blockRef, epoch uint32, seq int64, ok bool) {
	for ; c.refs.ok; c.refs.next() {
		epoch, seq, _ = format.ParseSeqKey(c.refs.lastKey)
		ref, err := decodeBlockRef(c.refs.value, seq)
		switch {
		case err != nil:
			v.fault(format.RangeSeq, seq, "%v", err)
			c.brokenRef = true
			continue
		case ref.key > key:
			return blockRef{}, 0, 0, false
		case ref.key < key:
			v.fault(format.RangeSeq, seq, "it leads to block %d, which is not there", ref.key)
			continue
		}
		c.refs.next()
		return ref, epoch, seq, true
	}
	return blockRef{}, 0, 0, false
}

// checkRef compares the reference to a block with it.
func (c *chain) checkRef(v *verifier, b *blockCheck, ref blockRef, epoch uint32, seq int64) {
	last := b.idx.lastMark()
	if epoch != b.idx.epoch || seq != b.idx.lastSeq {
		v.fault(format.RangeSeq, seq, "the reference to block %d is under seq %d of epoch %d, but the block ends with seq %d of epoch %d",
			b.key, seq, epoch, b.idx.lastSeq, b.idx.epoch)
	}
	if ref.seq != last.seq || ref.op != last.op {
		v.fault(format.RangeSeq, seq, "it says that block %d ends with seq %d, op %d; it ends with seq %d, op %d", b.key, ref.seq, ref.op, last.seq, last.op)
	}
	want := c.totals
	want.blocks++
	want.events += int64(b.idx.events())
	want.bytes += b.bytes
	if c.hasTotal && b.whole && ref.totals != want {
		v.fault(format.RangeSeq, seq, "its totals are %d blocks, %d events, %d bytes; counted: %d, %d, %d",
			ref.blocks, ref.events, ref.bytes, want.blocks, want.events, want.bytes)
	}
}

// checkGaps checks that no gap lies within the block.
func (c *chain) checkGaps(v *verifier, x *index) {
	for ; c.gap < len(v.gaps) && v.gaps[c.gap].TimeUS <= x.key(); c.gap++ {
		if us := v.gaps[c.gap].TimeUS; us > x.timeUS[0] {
			v.fault(format.RangeGap, us, "it lies within block %d, which begins at %d", x.key(), x.timeUS[0])
		}
	}
}

// checkUIDs checks that a DID has the UID that it had in earlier blocks.
func (c *chain) checkUIDs(v *verifier, x *index) {
	if x.didUID == nil {
		return
	}
	hashes := x.hashes()
	for i, d := range x.did {
		uid := x.didUID[i]
		if uid == 0 {
			continue
		}
		switch have, ok := c.uids[hashes[d]]; {
		case !ok && len(c.uids) < maxVerifiedDIDs:
			c.uids[hashes[d]] = uid
		case ok && have != uid:
			v.note(Problem{Part: format.RangeIndex.String(), Block: x.key(), Event: i, Offset: -1,
				Text: fmt.Sprintf("%.*q has UID %d, and in an earlier block %d", maxNamed, x.dids.at(int(d)), uid, have)})
		}
	}
}

// checkState compares the progress record with the blocks, once all were seen.
func (v *verifier) checkState(c *chain) {
	s := &v.state
	wrong := func(text string, args ...any) {
		v.fault(format.RangeMeta, 0, "%s: %s", format.MetaState, fmt.Sprintf(text, args...))
	}
	if n := len(v.streams); n > 0 && v.streams[n-1].epoch != s.epoch {
		wrong("its epoch is %d, that of the newest stream %d", s.epoch, v.streams[n-1].epoch)
	}
	if n := len(v.gaps); n > 0 && v.gaps[n-1].TimeUS <= s.floor.timeUS {
		wrong("it says that everything up to %d is dropped, but there are gaps from then", s.floor.timeUS)
	}
	if s.newest.timeUS > s.timeUS {
		wrong("its newest event is of %d, its newest stamp %d", s.newest.timeUS, s.timeUS)
	}
	if c.blocks == 0 {
		if s.oldest != (mark{}) {
			wrong("it says that the oldest event is of %d, but there is no block", s.oldest.timeUS)
		}
		return
	}
	if c.first != (mark{}) && s.oldest != c.first {
		wrong("it says that the oldest event is of %d (seq %d, op %d); it is of %d (seq %d, op %d)",
			s.oldest.timeUS, s.oldest.seq, s.oldest.op, c.first.timeUS, c.first.seq, c.first.op)
	}
	if c.lastKey != s.newest.timeUS || c.last.timeUS == c.lastKey && c.last != s.newest {
		wrong("it says that the newest event is of %d (seq %d, op %d); it is of %d (seq %d, op %d)",
			s.newest.timeUS, s.newest.seq, s.newest.op, c.lastKey, c.last.seq, c.last.op)
	}
	if c.first.timeUS != 0 && s.floor.timeUS >= c.first.timeUS {
		wrong("it says that everything up to %d is dropped, but there are events from %d on", s.floor.timeUS, c.first.timeUS)
	}
	if reached := (place{s.epoch, s.seq, math.MaxUint32}); reached.before(place{c.last.epoch, c.lastSeq, 0}) {
		wrong("the position is seq %d of epoch %d, but there are blocks up to seq %d of epoch %d", s.seq, s.epoch, c.lastSeq, c.last.epoch)
	}
	if c.hasTotal && s.total != c.totals {
		wrong("its totals are %d blocks, %d events, %d bytes; those of the last block are %d, %d, %d",
			s.total.blocks, s.total.events, s.total.bytes, c.totals.blocks, c.totals.events, c.totals.bytes)
	}
}

// leftovers notes references and spans to blocks that were not there.
func (c *chain) leftovers(v *verifier) error {
	_, _, _, _ = c.refOf(v, math.MaxInt64)
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
			v.note(Problem{Part: "store", Event: -1, Offset: -1, Text: fmt.Sprintf("key %x is of no range that this version writes", it.Key())})
		}
		if err := it.Close(); err != nil {
			v.note(Problem{Part: "store", Event: -1, Offset: -1, Text: err.Error()})
		}
	}
	return nil
}
