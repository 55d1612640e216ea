package format

import (
	"fmt"
	"slices"
	"sync"

	"millrace/translate"
)

// Event is one event on its way into a block. The sealer copies what it keeps.
type Event struct {
	Place
	TimeUS     int64
	Kind       translate.Kind
	Operation  translate.Operation
	Collection []byte
	DID        []byte
	DIDUID     uint64
	URIUID     uint64
	Payload    []byte // one JSON object
	References []Reference
	Repeated   bool  // the operation came again and changed nothing
	Unverified uint8 // verify.Reason of its frame
}

// BlockEvents are the events of a block: the index, and the frames back to back. All is immutable.
type BlockEvents struct {
	Index      *Index
	References *References // nil: none
	Plain      []byte
	Zstd       []byte
}

// SealedBlock is a block of events, and the values that it is stored as.
type SealedBlock struct {
	BlockEvents
	Values *BlockValues
}

// BlockValues are the values that a block is stored as, with trailers. They are in memory of a
// pool, but for zstd, which the frames of the block alias.
type BlockValues struct {
	Index, SlimIndex, Zstd []byte
	Plain                  [][]byte // by substream
	References             []byte   // nil: there are none

	buffer []byte // has all but zstd
}

// blockValuesPool keeps the memory of values from one block to the next: it is a third of what
// sealing takes.
var blockValuesPool = sync.Pool{New: func() any { return new(BlockValues) }}

// maxKeptValues bounds the buffer that goes back to blockValuesPool.
const maxKeptValues = 4 << 20

// Bytes returns how many bytes the values have.
func (v *BlockValues) Bytes() int64 {
	n := len(v.Index) + len(v.SlimIndex) + len(v.Zstd) + len(v.References)
	for _, b := range v.Plain {
		n += len(b)
	}
	return int64(n)
}

// Memory returns about how many bytes of memory the values take beside the block's frames.
func (v *BlockValues) Memory() int { return cap(v.buffer) }

// Free gives the memory back to the pool: v and its values must not be used afterwards. Tests have
// it scribbled over.
func (v *BlockValues) Free(scribble bool) {
	v.Index, v.SlimIndex, v.Zstd, v.Plain, v.References = nil, nil, nil, nil, nil
	if cap(v.buffer) > maxKeptValues {
		return
	}
	for i := 0; scribble && i < cap(v.buffer); i++ {
		v.buffer[:cap(v.buffer)][i] = 0xdb
	}
	blockValuesPool.Put(v)
}

// cut returns the slice, without the room after it, and that room.
func cut(b []byte) (used, rest []byte) { return b[:len(b):len(b)], b[len(b):] }

// sealScratch is memory that sealing needs for as long as it takes.
type sealScratch struct {
	zstd              []byte
	collections, dids nameTableBuilder
	references        ReferencesBuilder
}

// sealScratches keeps tables and compression buffers from one block to the next: together they are
// larger than the block.
var sealScratches = sync.Pool{New: func() any { return new(sealScratch) }}

// maxKeptZstd bounds the buffer that goes back to sealScratches.
const maxKeptZstd = 4 << 20

func newSealScratch() *sealScratch {
	t := sealScratches.Get().(*sealScratch)
	t.zstd = t.zstd[:0]
	t.collections.reset()
	t.dids.reset()
	t.references.reset()
	return t
}

func (t *sealScratch) free() {
	if cap(t.zstd) <= maxKeptZstd {
		sealScratches.Put(t)
	}
}

// Sealer makes one block out of events. It is for one goroutine.
type Sealer struct {
	idx   *Index
	enc   Compressor
	plain []byte
	*sealScratch
}

// NewSealer makes a sealer for a block of about so many events with so many bytes of JSON. enc
// compresses with the dictionary.
func NewSealer(epoch uint32, enc Compressor, dictionary uint32, events, jsonBytes int) *Sealer {
	return &Sealer{
		idx:         newIndex(epoch, dictionary, min(events, MaxBlockEvents)),
		enc:         enc,
		plain:       make([]byte, 0, jsonBytes+4*events+MaxFrameHeaderBytes),
		sealScratch: newSealScratch(),
	}
}

// newIndex makes an index to append to, with room for so many events.
func newIndex(epoch, dictionary uint32, events int) *Index {
	x := &Index{}
	x.Epoch, x.Dictionary = epoch, dictionary
	x.allocate(events)
	x.DIDUID = make([]uint64, 0, events)
	x.URIUID = make([]uint64, 0, events)
	x.Unverified = make([]uint8, 0, events)
	x.TimeUS, x.Seq, x.Op = x.TimeUS[:0], x.Seq[:0], x.Op[:0]
	x.PlainEnd, x.ZstdEnd = x.PlainEnd[:0], x.ZstdEnd[:0]
	x.Collection, x.DID, x.Kind = x.Collection[:0], x.DID[:0], x.Kind[:0]
	return x
}

// Add appends an event. It is an error if its stamp or its place does not ascend, or if the block
// would be larger than MaxBlockEvents, MaxBlockBytes or MaxBlockReferences. The sealer must not be
// used afterwards.
func (s *Sealer) Add(e Event) error {
	x := s.idx
	n := len(x.TimeUS)
	switch {
	case n == MaxBlockEvents:
		return fmt.Errorf("the block has more than %d events", MaxBlockEvents)
	case len(s.plain)+len(e.Payload) > MaxBlockBytes-MaxFrameHeaderBytes:
		return fmt.Errorf("the block has more than %d bytes", MaxBlockBytes)
	case n == 0 && e.TimeUS <= 0 || n > 0 && e.TimeUS <= x.TimeUS[n-1]:
		return fmt.Errorf("event %d: time_us %d is not above the last", n, e.TimeUS)
	case n > 0 && !x.PlaceAt(n-1).Before(e.Place):
		return fmt.Errorf("event %d: seq %d, op %d is not after the last", n, e.Seq, e.Op)
	}
	if err := s.references.Add(e.References, e.Repeated); err != nil {
		return err
	}
	s.plain = AppendFrameHeader(s.plain, OpcodeText, len(e.Payload))
	s.plain = append(s.plain, e.Payload...)
	if s.zstd = AppendCompressed(s.zstd, s.enc, e.Payload); len(s.zstd) > MaxBlockBytes {
		return fmt.Errorf("the block has more than %d bytes of compressed frames", MaxBlockBytes)
	}

	var collection uint16
	if e.Kind == translate.KindCommit {
		collection = 1 + s.collections.number(e.Collection)
	}
	x.TimeUS = append(x.TimeUS, e.TimeUS)
	x.Seq = append(x.Seq, e.Seq)
	x.Op = append(x.Op, e.Op)
	x.Kind = append(x.Kind, uint8(e.Kind)|uint8(e.Operation)<<4)
	x.Kinds |= Kinds(e.Kind)
	x.Collection = append(x.Collection, collection)
	x.DID = append(x.DID, s.dids.number(e.DID))
	x.DIDUID = append(x.DIDUID, e.DIDUID)
	x.URIUID = append(x.URIUID, e.URIUID)
	x.Unverified = append(x.Unverified, e.Unverified)
	x.PlainEnd = append(x.PlainEnd, uint32(len(s.plain)))
	x.ZstdEnd = append(x.ZstdEnd, uint32(len(s.zstd)))
	return nil
}

// Finish returns the block of the events, of which there must be one, which covers frames firstSeq
// to lastSeq. It is an error if an event is of another frame. A plain part of substreamsBytes may
// have several substreams; 0: of minSubstreamsBytes. The sealer must not be used afterwards.
func (s *Sealer) Finish(firstSeq, lastSeq int64, substreamsBytes int) (SealedBlock, error) {
	x := s.idx
	last := x.Events() - 1
	if x.Seq[0] < firstSeq || x.Seq[last] > lastSeq {
		return SealedBlock{}, fmt.Errorf("its events are of frames %d to %d, not all within the block's", x.Seq[0], x.Seq[last])
	}
	x.FirstSeq, x.LastSeq = firstSeq, lastSeq
	x.dropZeros()
	zstd := append(make([]byte, 0, len(s.zstd)+TrailerBytes), s.zstd...)
	b := seal(x, s.sealScratch, s.plain, zstd, substreamsBytes)
	s.sealScratch.free()
	s.sealScratch = nil
	return b, nil
}

// seal returns the block of x, to which it adds t's names, of t's references, and of the frames,
// which become the block's.
func seal(x *Index, t *sealScratch, plain, zstd []byte, substreamsBytes int) SealedBlock {
	if substreamsBytes == 0 {
		substreamsBytes = minSubstreamsBytes
	}
	x.Collections, x.DIDs = t.collections.table(), t.dids.table()
	refs := t.references.Finish()
	x.HasReferences = refs != nil
	key := x.Key()
	v := blockValuesPool.Get().(*BlockValues)
	v.Zstd = AppendTrailer(zstd, RangeZstd, key)
	v.buffer = slices.Grow(v.buffer[:0], maxPagesLen(len(plain), len(x.TimeUS))+(32+15)*len(x.TimeUS)+
		len(t.dids.text)+2*len(t.collections.text)+512+len(x.Unverified)+256+maxReferencesLen(refs))
	rest := v.buffer
	v.Index, rest = cut(AppendTrailer(AppendIndex(rest, x), RangeIndex, key))
	k := pagePackers.Get().(*pagePacker)
	v.Plain = make([][]byte, k.pack(plain, x.PlainEnd, x.Collection, substreamsBytes))
	for s := range v.Plain {
		v.Plain[s], rest = cut(AppendTrailer(k.appendValue(rest, s), RangePlain, key))
	}
	k.free()
	v.SlimIndex, rest = cut(AppendTrailer(AppendSlimIndex(rest, &x.SlimIndex), RangeSlimIndex, key))
	if refs != nil {
		v.References, _ = cut(AppendTrailer(AppendReferences(rest, refs), RangeReferences, key))
	}
	return SealedBlock{BlockEvents{x, refs, plain[:len(plain):len(plain)], v.Zstd[:len(zstd):len(zstd)]}, v}
}
