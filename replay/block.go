package replay

import (
	"fmt"
	"sync/atomic"
	"time"

	"millrace/replay/internal/filter"
	"millrace/replay/internal/format"
	"millrace/translate"
)

// Limits of a block. Seal refuses more, so a caller that fills a batch from many frames splits it
// before. (A frame must not be split: a position covers whole frames.)
const (
	// MaxBlockEvents is how many events a block holds at most.
	MaxBlockEvents = format.MaxBlockEvents
	// MaxBlockBytes is how large each of a block's plain and zstd parts may be. Both hold a few
	// bytes more per event than its JSON: a batch with half as much JSON always fits.
	MaxBlockBytes = format.MaxBlockBytes
	// MaxBlockReferences is how many references a block's events have at most, together.
	MaxBlockReferences = format.MaxBlockReferences
	// MaxEventReferences is how many an event has at most.
	MaxEventReferences = format.MaxEventReferences
)

// Gap says that the relay may have withheld events. Its TimeUS is taken from the Stamper, before
// the batch's events. In an Input it may be 0: directly before the batch's first event, which must
// then exist.
type Gap = format.Gap

// Input is what one block is sealed from: the events of consecutive whole frames of one epoch.
type Input struct {
	Epoch    uint32
	FirstSeq int64            // of the frames covered, also those that gave no event
	LastSeq  int64            // >= FirstSeq
	Gap      *Gap             // lies before the block's first frame; nil: none
	Batch    *translate.Batch // stamped, UIDs set; nil or empty: the block only moves the position

	References *EventReferences // of the batch's events; nil: none has any
}

// Reference is one reference of an event, in numbers. See Log.SourceNumber for its Source.
type Reference = format.Reference

// EventReferences are the references of a batch's events. A create has those of its record, a
// delete those that the record had, an update both.
type EventReferences struct {
	List []Reference // of all events, in their order
	Ends []uint32    // by event: where its references end in List
	// by event: the operation came again and changed nothing; nil: none did
	Repeated []bool
}

// check makes sure that r is of so many events.
func (r *EventReferences) check(events int) error {
	if len(r.Ends) != events || r.Repeated != nil && len(r.Repeated) != events {
		return fmt.Errorf("references of %d events, marks of %d, for %d", len(r.Ends), len(r.Repeated), events)
	}
	var from uint32
	for i, end := range r.Ends {
		if end < from || int(end) > len(r.List) {
			return fmt.Errorf("the references of event %d end at %d, after %d, of %d", i, end, from, len(r.List))
		}
		from = end
	}
	return nil
}

// of returns what event i has of r, which may be nil.
func (r *EventReferences) of(i int) (refs []Reference, repeated bool) {
	if r == nil {
		return nil, false
	}
	return r.List[format.FrameStart(r.Ends, i):r.Ends[i]], r.Repeated != nil && r.Repeated[i]
}

// Block is a sealed run of events, ready to be appended. It is immutable, but for what Append, its
// only user then, strips off it before it shows it to readers.
type Block struct {
	epoch    uint32
	firstSeq int64
	lastSeq  int64
	gap      *Gap // with its TimeUS set

	idx   *blockIndex // nil: the block has no event
	refs  *format.References
	plain []byte // frames back to back
	zstd  []byte

	values      *format.BlockValues // what must be stored; nil: it was appended, or has no event
	substreams  int                 // of the plain part, as stored
	storedBytes int64               // of its values, before Pebble compresses them
}

// take makes the block the one of s.
func (b *Block) take(s format.SealedBlock) {
	b.idx, b.refs, b.plain, b.zstd = newBlockIndex(s.Index), s.References, s.Plain, s.Zstd
	b.values, b.substreams, b.storedBytes = s.Values, len(s.Values.Plain), s.Values.Bytes()
}

// blockEvents returns what is merged of the block.
func (b *Block) blockEvents() format.BlockEvents {
	return format.BlockEvents{Index: b.idx.full, References: b.refs, Plain: b.plain, Zstd: b.zstd}
}

// strip drops the values, once they are in the store. Tests have them scribbled over.
func (b *Block) strip(scribble bool) {
	if b.values != nil {
		b.values.Free(scribble)
		b.values = nil
	}
}

// Events returns how many events the block holds.
func (b *Block) Events() int {
	if b.idx == nil {
		return 0
	}
	return b.idx.Events()
}

// Bytes returns how much memory the block takes, for the caller's budget.
func (b *Block) Bytes() int {
	n := int(b.memory())
	if b.values != nil {
		n += b.values.Memory()
	}
	return n
}

// memory is what the block takes in the tail.
func (b *Block) memory() int64 {
	n := int64(128+cap(b.plain)+cap(b.zstd)) + b.refs.Memory()
	if b.idx != nil {
		n += b.idx.memory()
	}
	return n
}

// totals counts the block.
func (b *Block) totals() format.Totals {
	return format.Totals{Blocks: 1, Events: int64(b.Events()), Bytes: b.storedBytes}
}

// startUS returns the first stamp of the block or its gap; 0 if it has neither.
func (b *Block) startUS() int64 {
	if b.gap != nil {
		return b.gap.TimeUS
	}
	if b.idx != nil {
		return b.idx.TimeUS[0]
	}
	return 0
}

// Seal makes a block of in: frames and compresses each event, and encodes the columns. It is safe
// for concurrent use, touches no disk, and keeps nothing of in. More than MaxBlockEvents,
// MaxBlockBytes, MaxBlockReferences or, of an event, MaxEventReferences is an error.
func (l *Log) Seal(in Input) (*Block, error) {
	if in.FirstSeq < 1 || in.LastSeq < in.FirstSeq {
		return nil, fmt.Errorf("seal block: frames %d to %d are not a run", in.FirstSeq, in.LastSeq)
	}
	b := &Block{epoch: in.Epoch, firstSeq: in.FirstSeq, lastSeq: in.LastSeq}
	if in.Batch != nil && len(in.Batch.Events) > 0 {
		sealed, err := l.sealEvents(&in)
		if err != nil {
			return nil, fmt.Errorf("seal block of frames %d to %d: %w", in.FirstSeq, in.LastSeq, err)
		}
		b.take(sealed)
	}
	if in.Gap != nil {
		g := *in.Gap
		if g.TimeUS == 0 && b.idx != nil {
			g.TimeUS = b.idx.TimeUS[0]
		}
		if g.TimeUS <= 0 || b.idx != nil && g.TimeUS > b.idx.TimeUS[0] {
			return nil, fmt.Errorf("seal block of frames %d to %d: its gap's time_us %d is not before its events",
				in.FirstSeq, in.LastSeq, g.TimeUS)
		}
		b.gap = &g
	}
	l.metrics.sealed.Inc()
	return b, nil
}

// sealEvents makes the block of in's events, of which there is one.
func (l *Log) sealEvents(in *Input) (b format.SealedBlock, err error) {
	if in.References != nil {
		if err := in.References.check(len(in.Batch.Events)); err != nil {
			return b, err
		}
	}
	s := format.NewSealer(in.Epoch, l.stored.encoder, l.stored.ID(), len(in.Batch.Events), len(in.Batch.JSON))
	for i := range in.Batch.Events {
		e := &in.Batch.Events[i]
		refs, repeated := in.References.of(i)
		err := s.Add(format.Event{
			Place:      format.Place{Epoch: in.Epoch, Seq: e.Seq, Op: e.Op},
			TimeUS:     e.TimeUS,
			Kind:       e.Kind,
			Operation:  e.Operation,
			Collection: in.Batch.Collection(i),
			DID:        in.Batch.DID(i),
			DIDUID:     e.DIDUID,
			URIUID:     e.URIUID,
			Payload:    in.Batch.Payload(i),
			References: refs,
			Repeated:   repeated,
			Unverified: e.Unverified,
		})
		if err != nil {
			return b, err
		}
	}
	return s.Finish(in.FirstSeq, in.LastSeq, l.cfg.hooks.substreamsBytes)
}

// Stamper gives out strictly increasing time_us stamps: the wall clock's where it moves forward,
// the last one + 1 where it does not. One goroutine uses it, in the order of the log.
type Stamper struct {
	last int64
	now  func() time.Time
}

// NewStamper continues after last (Progress.TimeUS). now is the wall clock; nil: time.Now.
func NewStamper(last int64, now func() time.Time) *Stamper {
	if now == nil {
		now = time.Now
	}
	return &Stamper{last: last, now: now}
}

// Next returns the next stamp, in Unix microseconds.
func (s *Stamper) Next() int64 {
	s.last = max(s.now().UnixMicro(), s.last+1, translate.MinTimeUS)
	return s.last
}

// StampBatch stamps all events of b in order, reading the clock once.
func (s *Stamper) StampBatch(b *translate.Batch) {
	if len(b.Events) == 0 {
		return
	}
	next := s.Next()
	for i := range b.Events {
		b.Stamp(i, next)
		s.last = next
		next++
	}
}

// blockIndex is the index of a block, or the slim index, and what readers of the block on disk
// learn about it.
type blockIndex struct {
	*format.SlimIndex
	full *format.Index // nil: only the slim index is at hand

	didHashes atomic.Pointer[[]uint64] // of a block of the tail; nil: no reader asked for them
	// of a block on disk, for the filter that it was matched with last; nil: with none yet
	wanted atomic.Pointer[filter.WantedDIDs]

	touched atomic.Uint64 // which substreams of the plain part's pages a reader unpacked
	after   atomic.Int64  // the key of the block after it; 0: not known
}

func newBlockIndex(x *format.Index) *blockIndex { return &blockIndex{SlimIndex: &x.SlimIndex, full: x} }

// decodeBlockIndex decodes a value of a range of indexes or slim indexes.
func decodeBlockIndex(r format.Range, b []byte) (*blockIndex, error) {
	if r == format.RangeSlimIndex {
		x, err := format.DecodeSlimIndex(b)
		return &blockIndex{SlimIndex: x}, err
	}
	x, err := format.DecodeIndex(b)
	if err != nil {
		return nil, err
	}
	return newBlockIndex(x), nil
}

// hashes returns xxhash64 of each DID of the full index. Readers that race compute the same.
func (x *blockIndex) hashes() []uint64 {
	if h := x.didHashes.Load(); h != nil {
		return *h
	}
	h := x.full.HashDIDs()
	x.didHashes.Store(&h)
	return h
}

// memory returns about how many bytes the index takes.
func (x *blockIndex) memory() int64 {
	if x.full != nil {
		return x.full.Memory()
	}
	return x.SlimIndex.Memory()
}
