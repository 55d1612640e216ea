package replay

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// Gap says that the relay may have withheld events: all between From (the last one that came before
// it) and To (the frame that came after it) may be missing from the log.
type Gap struct {
	From, To translate.Position
	// TimeUS is the gap's own place in the log: it lies before every event stamped TimeUS or
	// later and after every earlier one. Take it from the Stamper, before the batch's events.
	// 0: directly before the batch's first event (which must then exist).
	TimeUS int64
}

// Input is what one block is sealed from: the events of consecutive whole frames of one epoch.
type Input struct {
	Epoch    uint32
	FirstSeq int64            // of the frames covered, also those that gave no event
	LastSeq  int64            // >= FirstSeq
	Gap      *Gap             // lies before the block's first frame; nil: none
	Batch    *translate.Batch // stamped, UIDs set; nil or empty: the block only moves the position
}

// Block is a sealed run of events, ready to be appended. It is immutable, but for what Append, its
// only user then, strips off it before it shows it to readers.
type Block struct {
	epoch    uint32
	firstSeq int64
	lastSeq  int64
	gap      *Gap // with its TimeUS set

	idx   *index // nil: the block has no event
	plain []byte // frames back to back
	zstd  []byte

	// What is stored: the parts with their trailers, in sealing's memory but for zstd, which aliases the last of them.
	sealing                                *sealBuffer
	sealedIndex, sealedZstd, sealedOutline []byte
	sealedPlain                            [][]byte // by strand
	strands                                int      // how many those are
	stranded                               int      // from how many bytes on they are several; 0: minStranded
	storedBytes                            int64    // of all
}

// Events returns how many events the block holds.
func (b *Block) Events() int {
	if b.idx == nil {
		return 0
	}
	return b.idx.events()
}

// Bytes returns how much memory the block takes, for the caller's budget.
func (b *Block) Bytes() int {
	n := int(b.memory())
	if b.sealing != nil {
		n += cap(b.sealing.b)
	}
	return n
}

// memory is what the block takes in the tail.
func (b *Block) memory() int64 {
	n := int64(128 + cap(b.plain) + cap(b.zstd))
	if b.idx != nil {
		n += b.idx.memory()
	}
	return n
}

// stored is how many bytes the block's parts have, before Pebble compresses them.
func (b *Block) stored() int64 { return b.storedBytes }

// startUS returns the first stamp of the block or its gap; 0 if it has neither.
func (b *Block) startUS() int64 {
	if b.gap != nil {
		return b.gap.TimeUS
	}
	if b.idx != nil {
		return b.idx.timeUS[0]
	}
	return 0
}

// Seal makes a block of in: frames and compresses each event, and encodes the columns. It is safe
// for concurrent use, touches no disk, and keeps nothing of in. More than MaxBlockEvents or
// MaxBlockBytes is an error.
func (l *Log) Seal(in Input) (*Block, error) {
	if in.FirstSeq < 1 || in.LastSeq < in.FirstSeq {
		return nil, fmt.Errorf("seal block: frames %d to %d are not a run", in.FirstSeq, in.LastSeq)
	}
	b := &Block{epoch: in.Epoch, firstSeq: in.FirstSeq, lastSeq: in.LastSeq, stranded: l.cfg.stranded}
	if in.Batch != nil && len(in.Batch.Events) > 0 {
		s := newSealer(in.Epoch, l.encoder, l.stored.ID(), len(in.Batch.Events), len(in.Batch.JSON))
		for i := range in.Batch.Events {
			e := &in.Batch.Events[i]
			err := s.add(event{
				place:      place{in.Epoch, e.Seq, e.Op},
				timeUS:     e.TimeUS,
				kind:       e.Kind,
				operation:  e.Operation,
				collection: in.Batch.Collection(i),
				did:        in.Batch.DID(i),
				didUID:     e.DIDUID,
				uriUID:     e.URIUID,
				payload:    in.Batch.Payload(i),
			})
			if err != nil {
				return nil, fmt.Errorf("seal block of frames %d to %d: %w", in.FirstSeq, in.LastSeq, err)
			}
		}
		if err := s.finish(b); err != nil {
			return nil, fmt.Errorf("seal block of frames %d to %d: %w", in.FirstSeq, in.LastSeq, err)
		}
	}
	if in.Gap != nil {
		g := *in.Gap
		if g.TimeUS == 0 && b.idx != nil {
			g.TimeUS = b.idx.timeUS[0]
		}
		if g.TimeUS <= 0 || b.idx != nil && g.TimeUS > b.idx.timeUS[0] {
			return nil, fmt.Errorf("seal block of frames %d to %d: its gap's time_us %d is not before its events",
				in.FirstSeq, in.LastSeq, g.TimeUS)
		}
		b.gap = &g
	}
	l.metrics.sealed.Inc()
	return b, nil
}

// event is one event on its way into a block. The sealer copies what it keeps.
type event struct {
	place
	timeUS     int64
	kind       translate.Kind
	operation  translate.Operation
	collection []byte
	did        []byte
	didUID     uint64
	uriUID     uint64
	payload    []byte // one JSON object
}

// sealBuffer is memory for the sealed parts but zstd, until they are in the store.
type sealBuffer struct{ b []byte }

// sealBuffers are those that nobody uses. A third of what a block takes is garbage else.
var sealBuffers = sync.Pool{New: func() any { return new(sealBuffer) }}

// maxKeptSealed bounds what goes back to sealBuffers.
const maxKeptSealed = 4 << 20

// room returns an empty slice with room for n bytes.
func (s *sealBuffer) room(n int) []byte {
	s.b = slices.Grow(s.b[:0], n)
	return s.b
}

// cut returns the slice, without the room behind it, and that room.
func cut(b []byte) (used, rest []byte) { return b[:len(b):len(b)], b[len(b):] }

// strip drops what is in the store. Tests have it scribbled over.
func (b *Block) strip(scribble bool) {
	if s := b.sealing; s != nil && cap(s.b) <= maxKeptSealed {
		if scribble {
			for i := range s.b[:cap(s.b)] {
				s.b[:cap(s.b)][i] = 0xdb
			}
		}
		sealBuffers.Put(s)
	}
	b.sealing, b.sealedIndex, b.sealedPlain, b.sealedZstd, b.sealedOutline = nil, nil, nil, nil, nil
}

// scratch is memory that a sealer needs only while it works.
type scratch struct {
	zstd              []byte
	collections, dids nameTable
}

// scratches keeps the tables and the compression buffer from one Seal to the next: together they are
// larger than the block (BenchmarkSeal).
var scratches = sync.Pool{New: func() any { return new(scratch) }}

// maxKeptZstd bounds the buffer that goes back to scratches.
const maxKeptZstd = 4 << 20

// nameTable numbers distinct names. It is an open hash table without deletions, at most half full.
type nameTable struct {
	text   []byte
	ends   []uint32
	hashes []uint64
	slots  []uint16 // 1 + number; 0: free
	name   []byte   // of numberString
}

func (t *nameTable) reset() {
	t.text, t.ends, t.hashes = t.text[:0], t.ends[:0], t.hashes[:0]
	clear(t.slots)
}

// number returns the number of a name, which it enters if it is new.
func (t *nameTable) number(name []byte) uint16 {
	if 2*len(t.ends) >= len(t.slots) {
		t.grow()
	}
	h := xxhash.Sum64(name)
	mask := uint64(len(t.slots) - 1)
	for at := h & mask; ; at = (at + 1) & mask {
		n := t.slots[at]
		if n == 0 {
			t.text = append(t.text, name...)
			t.ends = append(t.ends, uint32(len(t.text)))
			t.hashes = append(t.hashes, h)
			t.slots[at] = uint16(len(t.ends))
			return uint16(len(t.ends) - 1)
		}
		if t.hashes[n-1] == h && bytes.Equal(t.text[startOf(t.ends, int(n-1)):t.ends[n-1]], name) {
			return n - 1
		}
	}
}

// numberString is number for a name that is a string.
func (t *nameTable) numberString(name string) uint16 {
	t.name = append(t.name[:0], name...)
	return t.number(t.name)
}

func (t *nameTable) grow() {
	t.slots = make([]uint16, max(64, 2*len(t.slots)))
	mask := uint64(len(t.slots) - 1)
	for i, h := range t.hashes {
		at := h & mask
		for t.slots[at] != 0 {
			at = (at + 1) & mask
		}
		t.slots[at] = uint16(i + 1)
	}
}

// table returns a copy that is the caller's.
func (t *nameTable) table() table { return table{string(t.text), slices.Clone(t.ends)} }

// sealer builds one block.
type sealer struct {
	idx   *index
	enc   format.Compressor
	plain []byte
	*scratch
	uids [2]bool // whether any DID, URI has a UID
}

func newSealer(epoch uint32, enc format.Compressor, dictionary uint32, events, jsonBytes int) *sealer {
	s := &sealer{
		idx:     newIndex(epoch, dictionary, min(events, MaxBlockEvents)),
		enc:     enc,
		plain:   make([]byte, 0, jsonBytes+4*events+format.MaxFrameHeaderBytes),
		scratch: scratches.Get().(*scratch),
	}
	s.zstd = s.zstd[:0]
	s.collections.reset()
	s.dids.reset()
	return s
}

// newIndex makes an index to append to, with room for so many events.
func newIndex(epoch, dictionary uint32, events int) *index {
	x := &index{epoch: epoch, dictionary: dictionary}
	x.allocate(events)
	x.didUID = make([]uint64, 0, events)
	x.uriUID = make([]uint64, 0, events)
	x.timeUS, x.seq, x.op = x.timeUS[:0], x.seq[:0], x.op[:0]
	x.plainEnd, x.zstdEnd = x.plainEnd[:0], x.zstdEnd[:0]
	x.collection, x.did, x.kind = x.collection[:0], x.did[:0], x.kind[:0]
	return x
}

// add appends one event.
func (s *sealer) add(e event) error {
	x := s.idx
	n := len(x.timeUS)
	switch {
	case n == MaxBlockEvents:
		return fmt.Errorf("more than %d events", MaxBlockEvents)
	case len(s.plain)+len(e.payload) > MaxBlockBytes-format.MaxFrameHeaderBytes:
		return fmt.Errorf("more than %d bytes", MaxBlockBytes)
	case n == 0 && e.timeUS <= 0 || n > 0 && e.timeUS <= x.timeUS[n-1]:
		return fmt.Errorf("event %d: time_us %d does not ascend", n, e.timeUS)
	case n > 0 && !x.place(n-1).before(e.place):
		return fmt.Errorf("event %d: seq %d, op %d does not ascend", n, e.seq, e.op)
	}
	s.plain = format.AppendFrameHeader(s.plain, format.OpcodeText, len(e.payload))
	s.plain = append(s.plain, e.payload...)
	if s.zstd = format.AppendCompressed(s.zstd, s.enc, e.payload); len(s.zstd) > MaxBlockBytes {
		return fmt.Errorf("more than %d bytes, compressed", MaxBlockBytes)
	}

	var collection uint16
	if e.kind == translate.KindCommit {
		collection = 1 + s.collections.number(e.collection)
	}
	x.timeUS = append(x.timeUS, e.timeUS)
	x.seq = append(x.seq, e.seq)
	x.op = append(x.op, e.op)
	x.kind = append(x.kind, uint8(e.kind)|uint8(e.operation)<<4)
	x.kinds |= Kinds(e.kind)
	x.collection = append(x.collection, collection)
	x.did = append(x.did, s.dids.number(e.did))
	x.didUID = append(x.didUID, e.didUID)
	x.uriUID = append(x.uriUID, e.uriUID)
	s.uids[0] = s.uids[0] || e.didUID != 0
	s.uids[1] = s.uids[1] || e.uriUID != 0
	x.plainEnd = append(x.plainEnd, uint32(len(s.plain)))
	x.zstdEnd = append(x.zstdEnd, uint32(len(s.zstd)))
	return nil
}

// finish fills b. The sealer must not be used afterwards.
func (s *sealer) finish(b *Block) error {
	x := s.idx
	last := x.events() - 1
	if x.seq[0] < b.firstSeq || x.seq[last] > b.lastSeq {
		return fmt.Errorf("its events are of frames %d to %d", x.seq[0], x.seq[last])
	}
	x.firstSeq, x.lastSeq = b.firstSeq, b.lastSeq
	if !s.uids[0] {
		x.didUID = nil
	}
	if !s.uids[1] {
		x.uriUID = nil
	}
	b.seal(x, s.scratch, s.plain, append(make([]byte, 0, len(s.zstd)+format.TrailerBytes), s.zstd...))
	if cap(s.zstd) <= maxKeptZstd {
		scratches.Put(s.scratch)
	}
	s.scratch = nil
	return nil
}

// seal fills b with x, to which it adds t's names, and the parts, which become b's.
func (b *Block) seal(x *index, t *scratch, plain, zstd []byte) {
	x.collections, x.dids = t.collections.table(), t.dids.table()
	hashes := slices.Clone(t.dids.hashes)
	x.didHashes.Store(&hashes)
	key := x.key()
	b.idx = x
	b.sealedZstd = format.AppendTrailer(zstd, format.RangeZstd, key)
	b.sealing = sealBuffers.Get().(*sealBuffer)
	rest := b.sealing.room(32*len(x.timeUS) + len(t.dids.text) + len(t.collections.text) + 512 + maxPackedLen(len(plain), len(x.timeUS)) + 15*len(x.timeUS) + len(t.collections.text) + 256)
	b.sealedIndex, rest = cut(format.AppendTrailer(appendIndex(rest, x), format.RangeIndex, key))
	k := packers.Get().(*packer)
	b.strands = k.pack(plain, x.plainEnd, x.collection, cmp.Or(b.stranded, minStranded))
	b.sealedPlain = make([][]byte, b.strands)
	for s := range b.sealedPlain {
		b.sealedPlain[s], rest = cut(format.AppendTrailer(k.appendValue(rest, s), format.RangePlain, key))
		b.storedBytes += int64(len(b.sealedPlain[s]))
	}
	k.free()
	b.sealedOutline, _ = cut(format.AppendTrailer(appendOutline(rest, x), format.RangeSlimIndex, key))
	b.plain = plain[:len(plain):len(plain)]
	b.zstd = b.sealedZstd[:len(zstd):len(zstd)]
	b.storedBytes += int64(len(b.sealedIndex) + len(b.sealedZstd) + len(b.sealedOutline))
}
