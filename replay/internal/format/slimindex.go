package format

import (
	"encoding/binary"
	"fmt"
	"math"
	"sort"

	"millrace/translate"
)

// Columns and tables of an index, by ID, in the order in which they are written.
const (
	columnCollectionEnds byte = 1 // one value for each collection
	columnDIDEnds        byte = 2 // one value for each DID

	columnTime       byte = 16 // from here on: one value for each event
	columnSeq        byte = 17
	columnOp         byte = 18
	columnKind       byte = 19
	columnCollection byte = 20
	columnDID        byte = 21
	columnDIDUID     byte = 22
	columnURIUID     byte = 23
	columnPlainEnd   byte = 24
	columnZstdEnd    byte = 25
	columnUnverified byte = 26
	columnLast            = columnUnverified

	slimColumns = 7
)

const (
	// MaxBlockEvents is how many events a block holds at most.
	MaxBlockEvents = math.MaxUint16
	// MaxBlockBytes is how many bytes the frames of a block have at most, plain and zstd each.
	MaxBlockBytes = 1 << 30
)

// SlimIndex is the decoded slim index of a block: what readers need that neither look for DIDs nor
// want UIDs. Columns have one entry for each event. It is immutable.
type SlimIndex struct {
	Epoch      uint32
	FirstSeq   int64 // of the frames that the block covers
	LastSeq    int64
	Dictionary uint32  // ID of the dictionary of the zstd part
	Kinds      KindSet // of the events

	HasReferences bool // an event has references, or is marked as repeated

	TimeUS     []int64
	Seq        []int64
	Op         []uint32
	Kind       []uint8  // translate.Kind | translate.Operation << 4
	Collection []uint16 // 1 + index into Collections; 0: events of other kinds
	PlainEnd   []uint32 // end of the event's frame in the plain part
	ZstdEnd    []uint32

	Collections NameTable
}

// Events returns the number of events, at least 1.
func (x *SlimIndex) Events() int { return len(x.TimeUS) }

// Key is the block's key: the stamp of its last event.
func (x *SlimIndex) Key() int64 { return x.TimeUS[len(x.TimeUS)-1] }

// FirstPoint is the point of the block's first event.
func (x *SlimIndex) FirstPoint() Point { return Point{x.TimeUS[0], x.PlaceAt(0)} }

// LastPoint is the point of the block's last event.
func (x *SlimIndex) LastPoint() Point {
	i := len(x.TimeUS) - 1
	return Point{x.TimeUS[i], x.PlaceAt(i)}
}

// PlaceAt returns the place of event i.
func (x *SlimIndex) PlaceAt(i int) Place { return Place{x.Epoch, x.Seq[i], x.Op[i]} }

// KindAt returns the kind of event i.
func (x *SlimIndex) KindAt(i int) translate.Kind { return translate.Kind(x.Kind[i] & 0xf) }

// OperationAt returns the operation of event i.
func (x *SlimIndex) OperationAt(i int) translate.Operation {
	return translate.Operation(x.Kind[i] >> 4)
}

// FirstAt returns the first event stamped us or later; Events() if there is none.
func (x *SlimIndex) FirstAt(us int64) int {
	if us <= x.TimeUS[0] {
		return 0
	}
	return sort.Search(len(x.TimeUS), func(i int) bool { return x.TimeUS[i] >= us })
}

// FirstAfter returns the first event whose place is after p, which is of the block's epoch;
// Events() if there is none.
func (x *SlimIndex) FirstAfter(p Place) int {
	return sort.Search(len(x.Seq), func(i int) bool { return p.Before(x.PlaceAt(i)) })
}

// Memory returns about how many bytes the index takes.
func (x *SlimIndex) Memory() int64 {
	const perEvent = 8 + 8 + 4 + 1 + 2 + 4 + 4
	return int64(256 + perEvent*x.Events() + x.Collections.bytes())
}

// AppendSlimIndex appends the encoded slim index, without trailer.
func AppendSlimIndex(dst []byte, x *SlimIndex) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(x.Events()))
	dst = binary.LittleEndian.AppendUint32(dst, x.Epoch)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(x.FirstSeq))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(x.LastSeq))
	dst = binary.LittleEndian.AppendUint32(dst, x.Dictionary)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(x.Collections.Len()))
	dst = append(dst, x.kindsByte(), slimColumns)

	dst = appendTable(dst, columnCollectionEnds, &x.Collections)

	dst = appendColumn(dst, columnTime, true, x.TimeUS)
	dst = appendColumn(dst, columnSeq, true, x.Seq)
	dst = appendColumn(dst, columnOp, false, x.Op)
	dst = appendColumn(dst, columnKind, false, x.Kind)
	dst = appendColumn(dst, columnCollection, false, x.Collection)
	dst = appendColumn(dst, columnPlainEnd, true, x.PlainEnd)
	return appendColumn(dst, columnZstdEnd, true, x.ZstdEnd)
}

// DecodeSlimIndex decodes what AppendSlimIndex appended, as DecodeIndex does.
func DecodeSlimIndex(b []byte) (*SlimIndex, error) {
	d := &decoder{b: b}
	n := int(d.uint32())
	x := &SlimIndex{Epoch: d.uint32(), FirstSeq: d.int64(), LastSeq: d.int64(), Dictionary: d.uint32()}
	collections := int(d.uint16())
	x.setKindsByte(d.byte())
	columns := int(d.byte())
	d.checkEvents(n)
	x.Collections = d.table(columnCollectionEnds, collections)
	if d.err != nil {
		return nil, d.err
	}
	x.allocate(n)
	x.Collection = make([]uint16, n)
	err := decodeColumns(d, n, columns, columnBit(columnTime)|columnBit(columnSeq)|columnBit(columnOp)|
		columnBit(columnKind)|columnBit(columnCollection)|columnBit(columnPlainEnd)|columnBit(columnZstdEnd), x.set)
	if err != nil {
		return nil, err
	}
	return x, x.check()
}

// flagReferences is beside the kinds in their byte.
const flagReferences = 1 << 7

// kindsByte returns the byte of the kinds, with what else is in it.
func (x *SlimIndex) kindsByte() byte {
	if x.HasReferences {
		return byte(x.Kinds) | flagReferences
	}
	return byte(x.Kinds)
}

// setKindsByte is the inverse of kindsByte.
func (x *SlimIndex) setKindsByte(b byte) {
	x.Kinds, x.HasReferences = KindSet(b&^flagReferences), b&flagReferences != 0
}

// columnBit stands for a column in a set of those that have one value for each event.
func columnBit(id byte) uint32 { return 1 << (id - columnTime) }

// checkEvents fails for a number of events that no block has.
func (d *decoder) checkEvents(n int) {
	if d.err == nil && (n < 1 || n > MaxBlockEvents) {
		d.fail(fmt.Errorf("it states %d events, which no block has", n))
	}
}

// decodeColumns gives so many columns of n events, up to the end, to set. want has a bit for each
// that must be there.
func decodeColumns(d *decoder, n, columns int, want uint32, set func(column)) error {
	var seen uint32
	for range columns {
		c := d.column(n)
		if d.err != nil {
			return d.err
		}
		if c.id >= columnTime && c.id <= columnLast {
			seen |= columnBit(c.id)
		}
		set(c)
	}
	if seen != want {
		return fmt.Errorf("its columns are not those of a block: %b, not %b", seen, want)
	}
	return d.end()
}

// allocate makes the columns of n events, but for collection, out of few allocations.
func (x *SlimIndex) allocate(n int) {
	wide := make([]int64, 2*n)
	x.TimeUS, x.Seq = wide[:n:n], wide[n:]
	mid := make([]uint32, 3*n)
	x.Op, x.PlainEnd, x.ZstdEnd = mid[:n:n], mid[n:2*n:2*n], mid[2*n:]
	x.Kind = make([]uint8, n)
}

// set decodes one column into its slice. Columns that this version does not know are left out.
func (x *SlimIndex) set(c column) {
	switch c.id {
	case columnTime:
		decode(c, x.TimeUS)
	case columnSeq:
		decode(c, x.Seq)
	case columnOp:
		decode(c, x.Op)
	case columnKind:
		decode(c, x.Kind)
	case columnCollection:
		decode(c, x.Collection)
	case columnPlainEnd:
		decode(c, x.PlainEnd)
	case columnZstdEnd:
		decode(c, x.ZstdEnd)
	}
}

// check makes sure of what users rely on.
func (x *SlimIndex) check() error {
	var time int64
	var plain, zstd uint32
	for i := range x.TimeUS {
		switch {
		case x.TimeUS[i] <= time:
			return fmt.Errorf("event %d: its time_us is not above the last", i)
		case int(x.Collection[i]) > x.Collections.Len():
			return fmt.Errorf("event %d: collection %d is not in the table", i, x.Collection[i])
		case x.PlainEnd[i] < plain+2 || x.PlainEnd[i] > MaxBlockBytes:
			return fmt.Errorf("event %d: its plain frame ends at %d, too early or beyond the largest part", i, x.PlainEnd[i])
		case x.ZstdEnd[i] < zstd+2 || x.ZstdEnd[i] > MaxBlockBytes:
			return fmt.Errorf("event %d: its compressed frame ends at %d, too early or beyond the largest part", i, x.ZstdEnd[i])
		}
		time, plain, zstd = x.TimeUS[i], x.PlainEnd[i], x.ZstdEnd[i]
	}
	return nil
}
