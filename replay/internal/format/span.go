package format

import (
	"encoding/binary"
	"fmt"
	"sort"
)

// Span says what is in a run of blocks, which are all of one epoch. It is the decoded value of a
// key of RangeSpan, and immutable.
type Span struct {
	Epoch uint32
	// By block:
	First  []int64 // stamp of its first event
	Keys   []int64 // and of its last
	Seq    []int64 // of its last event
	Op     []uint32
	Events []uint32

	Collections NameTable
	Counts      []uint32   // events, by collection
	Present     []BlockSet // blocks, by collection

	// Identity, account and #sync events pass every collection filter.
	Identities, Accounts  uint32
	IdentityIn, AccountIn BlockSet
	Copied                bool // they are stored once more, under RangeCopiesIndex and the next two

	HasSubjects bool // there is an index of the subjects of references

	Syncs  uint32 // #sync events, which are for those who ask; there are no copies of them
	SyncIn BlockSet
}

// Key is the key that the span is stored under: that of its last block.
func (s *Span) Key() int64 { return s.Keys[len(s.Keys)-1] }

// LastPoint is the point of the span's last event.
func (s *Span) LastPoint() Point {
	i := len(s.Keys) - 1
	return Point{s.Keys[i], Place{s.Epoch, s.Seq[i], s.Op[i]}}
}

// FirstWith returns the first block that has an event stamped us or later.
func (s *Span) FirstWith(us int64) int {
	return sort.Search(len(s.Keys), func(i int) bool { return s.Keys[i] >= us })
}

// Memory returns about how many bytes the span takes.
func (s *Span) Memory() int64 {
	return int64(512 + 32*len(s.Keys) + len(s.Collections.text) + (4+4+len(BlockSet{})*8)*s.Collections.Len())
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

// The bits of a span's flags.
const (
	spanCopied   = 1 << 0
	spanSubjects = 1 << 1
	spanSyncs    = 1 << 2
)

func (s *Span) flags() (flags byte) {
	if s.Copied {
		flags |= spanCopied
	}
	if s.HasSubjects {
		flags |= spanSubjects
	}
	if s.Syncs > 0 {
		flags |= spanSyncs
	}
	return flags
}

// AppendSpan appends the encoded span, without trailer.
func AppendSpan(dst []byte, s *Span) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, s.Epoch)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(s.Keys)))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(s.Collections.Len()))
	dst = binary.LittleEndian.AppendUint32(dst, s.Identities)
	dst = binary.LittleEndian.AppendUint32(dst, s.Accounts)
	dst = append(dst, s.flags(), 0, 0, 0)
	dst = appendColumn(dst, columnSpanFirst, true, s.First)
	dst = appendColumn(dst, columnSpanKeys, true, s.Keys)
	dst = appendColumn(dst, columnSpanSeq, true, s.Seq)
	dst = appendColumn(dst, columnSpanOp, false, s.Op)
	dst = appendColumn(dst, columnSpanEvents, false, s.Events)
	dst = appendTable(dst, columnCollectionEnds, &s.Collections)
	dst = appendColumn(dst, columnSpanCounts, false, s.Counts)
	n := (len(s.Keys) + 7) / 8
	dst = appendBlockSet(dst, &s.IdentityIn, n)
	dst = appendBlockSet(dst, &s.AccountIn, n)
	for i := range s.Present {
		dst = appendBlockSet(dst, &s.Present[i], n)
	}
	if s.Syncs > 0 {
		dst = appendBlockSet(binary.LittleEndian.AppendUint32(dst, s.Syncs), &s.SyncIn, n)
	}
	return dst
}

// DecodeSpan decodes what AppendSpan made, and keeps nothing of b.
func DecodeSpan(b []byte) (*Span, error) {
	d := &decoder{b: b}
	s := &Span{Epoch: d.uint32()}
	n, collections := int(d.uint16()), int(d.uint16())
	s.Identities, s.Accounts = d.uint32(), d.uint32()
	flags := d.byte()
	s.Copied, s.HasSubjects = flags&spanCopied != 0, flags&spanSubjects != 0
	d.take(3)
	if d.err == nil && (n < 1 || n > MaxSpanBlocks) {
		d.fail(fmt.Errorf("it states %d blocks, which no span has", n))
	}
	if d.err != nil {
		return nil, d.err
	}
	s.First, s.Keys, s.Seq = make([]int64, n), make([]int64, n), make([]int64, n)
	s.Op, s.Events, s.Counts = make([]uint32, n), make([]uint32, n), make([]uint32, collections)
	decodeNext(d, columnSpanFirst, s.First)
	decodeNext(d, columnSpanKeys, s.Keys)
	decodeNext(d, columnSpanSeq, s.Seq)
	decodeNext(d, columnSpanOp, s.Op)
	decodeNext(d, columnSpanEvents, s.Events)
	s.Collections = d.table(columnCollectionEnds, collections)
	decodeNext(d, columnSpanCounts, s.Counts)
	bytes := (n + 7) / 8
	s.IdentityIn, s.AccountIn = d.blockSet(bytes), d.blockSet(bytes)
	s.Present = make([]BlockSet, collections)
	for i := range s.Present {
		s.Present[i] = d.blockSet(bytes)
	}
	if flags&spanSyncs != 0 {
		s.Syncs, s.SyncIn = d.uint32(), d.blockSet(bytes)
	}
	if err := d.end(); err != nil {
		return nil, err
	}
	for _, set := range append(s.Present, s.IdentityIn, s.AccountIn, s.SyncIn) {
		if set.Next(n) < MaxSpanBlocks {
			return nil, fmt.Errorf("it names a block after its last, %d", n)
		}
	}
	last := int64(0)
	for i := range s.Keys {
		if s.First[i] <= last || s.Keys[i] < s.First[i] {
			return nil, fmt.Errorf("block %d: its stamps do not ascend", i)
		}
		last = s.Keys[i]
	}
	return s, nil
}
