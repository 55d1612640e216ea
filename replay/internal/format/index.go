package format

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// Index is the decoded index of a block, or of a span's copies. It is the slim index, and what
// filters by DID and extended events need beside it. Columns have one entry for each event. It is
// immutable.
type Index struct {
	SlimIndex
	DID    []uint16 // index into DIDs
	DIDUID []uint64 // nil: all 0
	URIUID []uint64 // nil: all 0
	DIDs   NameTable

	Unverified []uint8 // verify.Reason of the event's frame; nil: all 0
}

// Memory returns about how many bytes the index takes, with what HashDIDs returns.
func (x *Index) Memory() int64 {
	perEvent := 2
	if x.DIDUID != nil {
		perEvent += 8
	}
	if x.URIUID != nil {
		perEvent += 8
	}
	if x.Unverified != nil {
		perEvent++
	}
	return x.SlimIndex.Memory() + int64(perEvent*x.Events()+x.DIDs.bytes()+8*x.DIDs.Len())
}

// HashDIDs returns xxhash64 of each entry of DIDs. The result is the caller's.
func (x *Index) HashDIDs() []uint64 {
	hashes := make([]uint64, x.DIDs.Len())
	for i := range hashes {
		hashes[i] = xxhash.Sum64String(x.DIDs.At(i))
	}
	return hashes
}

// UIDs returns the UIDs of event i's DID and URI; 0: none.
func (x *Index) UIDs(i int) (did, uri uint64) {
	if x.DIDUID != nil {
		did = x.DIDUID[i]
	}
	if x.URIUID != nil {
		uri = x.URIUID[i]
	}
	return did, uri
}

// UnverifiedAt returns why event i is unverified, a verify.Reason; 0: it is not.
func (x *Index) UnverifiedAt(i int) uint8 {
	if x.Unverified == nil {
		return 0
	}
	return x.Unverified[i]
}

// AppendIndex appends the encoded index, without trailer.
func AppendIndex(dst []byte, x *Index) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(x.Events()))
	dst = binary.LittleEndian.AppendUint32(dst, x.Epoch)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(x.FirstSeq))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(x.LastSeq))
	dst = binary.LittleEndian.AppendUint32(dst, x.Dictionary)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(x.Collections.Len()))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(x.DIDs.Len()))
	dst = append(dst, x.kindsByte(), columnLast-columnTime+1, 0, 0)

	dst = appendTable(dst, columnCollectionEnds, &x.Collections)
	dst = appendTable(dst, columnDIDEnds, &x.DIDs)

	dst = appendColumn(dst, columnTime, true, x.TimeUS)
	dst = appendColumn(dst, columnSeq, true, x.Seq)
	dst = appendColumn(dst, columnOp, false, x.Op)
	dst = appendColumn(dst, columnKind, false, x.Kind)
	dst = appendColumn(dst, columnCollection, false, x.Collection)
	dst = appendColumn(dst, columnDID, false, x.DID)
	dst = appendColumn(dst, columnDIDUID, false, x.DIDUID)
	dst = appendColumn(dst, columnURIUID, false, x.URIUID)
	dst = appendColumn(dst, columnPlainEnd, true, x.PlainEnd)
	dst = appendColumn(dst, columnZstdEnd, true, x.ZstdEnd)
	return appendColumn(dst, columnUnverified, false, x.Unverified)
}

// DecodeIndex decodes what AppendIndex appended. It keeps nothing of b. It checks all that users
// index with, so that no bytes make it, or a user of what it returns, panic.
func DecodeIndex(b []byte) (*Index, error) {
	d := &decoder{b: b}
	n := int(d.uint32())
	x := &Index{}
	x.Epoch, x.FirstSeq, x.LastSeq, x.Dictionary = d.uint32(), d.int64(), d.int64(), d.uint32()
	collections, dids := int(d.uint16()), int(d.uint16())
	x.setKindsByte(d.byte())
	columns := int(d.byte())
	d.take(2)
	d.checkEvents(n)
	x.Collections = d.table(columnCollectionEnds, collections)
	x.DIDs = d.table(columnDIDEnds, dids)
	if d.err != nil {
		return nil, d.err
	}
	x.allocate(n)
	if err := decodeColumns(d, n, columns, 1<<(columnLast-columnTime+1)-1, x.set); err != nil {
		return nil, err
	}
	if err := x.check(); err != nil {
		return nil, err
	}
	return x, nil
}

// allocate makes the columns of n events, but for UIDs, out of few allocations.
func (x *Index) allocate(n int) {
	x.SlimIndex.allocate(n)
	narrow := make([]uint16, 2*n)
	x.Collection, x.DID = narrow[:n:n], narrow[n:]
}

// set decodes one column into its slice. Columns that this version does not know are left out.
func (x *Index) set(c column) {
	switch c.id {
	case columnDID:
		decode(c, x.DID)
	case columnDIDUID:
		x.DIDUID = decodeOptional[uint64](c, x.Events())
	case columnURIUID:
		x.URIUID = decodeOptional[uint64](c, x.Events())
	case columnUnverified:
		x.Unverified = decodeOptional[uint8](c, x.Events())
	default:
		x.SlimIndex.set(c)
	}
}

// decodeOptional decodes a column of n values; nil if all are 0.
func decodeOptional[T number](c column, n int) []T {
	if c.allZero() {
		return nil
	}
	v := make([]T, n)
	decode(c, v)
	return v
}

// check makes sure of what users rely on.
func (x *Index) check() error {
	for i, did := range x.DID {
		if int(did) >= x.DIDs.Len() {
			return fmt.Errorf("event %d: DID %d is not in the table", i, did)
		}
	}
	return x.SlimIndex.check()
}
