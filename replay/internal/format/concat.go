package format

import (
	"slices"
)

// Concat returns one block with the events of bs. These are at least one, of one epoch and one
// dictionary, in order, and with MaxBlockReferences at most. No event is compressed again: columns
// are concatenated, frames copied. A plain part of substreamsBytes may have several substreams; 0:
// of minSubstreamsBytes.
func Concat(bs []BlockEvents, substreamsBytes int) SealedBlock {
	first, last := bs[0].Index, bs[len(bs)-1].Index
	events, plainBytes, zstdBytes := 0, 0, 0
	for _, b := range bs {
		events += b.Index.Events()
		plainBytes += len(b.Plain)
		zstdBytes += len(b.Zstd)
	}
	x := newIndex(first.Epoch, first.Dictionary, events)
	x.FirstSeq, x.LastSeq = first.FirstSeq, last.LastSeq
	t := newSealScratch()
	defer t.free()
	plain := make([]byte, 0, plainBytes)
	zstd := make([]byte, 0, zstdBytes+TrailerBytes)
	for _, b := range bs {
		x.concat(b.Index, t, uint32(len(plain)), uint32(len(zstd)))
		t.references.addAll(b.References, b.Index.Events())
		plain = append(plain, b.Plain...)
		zstd = append(zstd, b.Zstd...)
	}
	x.dropZeros()
	return seal(x, t, plain, zstd, substreamsBytes)
}

// concat appends the events of o, whose frames begin at the given ends of the parts so far. Names
// get their numbers from t.
func (x *Index) concat(o *Index, t *sealScratch, plain, zstd uint32) {
	collections := make([]uint16, 1+o.Collections.Len()) // [0]: no collection
	for i := range o.Collections.Len() {
		collections[1+i] = 1 + t.collections.numberString(o.Collections.At(i))
	}
	dids := make([]uint16, o.DIDs.Len())
	for i := range dids {
		dids[i] = t.dids.numberString(o.DIDs.At(i))
	}
	for i := range o.Events() {
		x.appendEvent(o, i, collections[o.Collection[i]], dids[o.DID[i]], plain+o.PlainEnd[i], zstd+o.ZstdEnd[i])
	}
}

// appendEvent appends event i of o, with the numbers of its names and the ends of its frames in x.
func (x *Index) appendEvent(o *Index, i int, collection, did uint16, plainEnd, zstdEnd uint32) {
	x.Kinds |= 1 << o.KindAt(i)
	x.TimeUS = append(x.TimeUS, o.TimeUS[i])
	x.Seq = append(x.Seq, o.Seq[i])
	x.Op = append(x.Op, o.Op[i])
	x.Kind = append(x.Kind, o.Kind[i])
	x.Collection = append(x.Collection, collection)
	x.DID = append(x.DID, did)
	didUID, uriUID := o.UIDs(i)
	x.DIDUID = append(x.DIDUID, didUID)
	x.URIUID = append(x.URIUID, uriUID)
	x.Unverified = append(x.Unverified, o.UnverifiedAt(i))
	x.PlainEnd = append(x.PlainEnd, plainEnd)
	x.ZstdEnd = append(x.ZstdEnd, zstdEnd)
}

// dropZeros makes columns nil that may be, and are all 0.
func (x *Index) dropZeros() {
	dropZeros(&x.DIDUID)
	dropZeros(&x.URIUID)
	dropZeros(&x.Unverified)
}

func dropZeros[T number](column *[]T) {
	if !slices.ContainsFunc(*column, func(v T) bool { return v != 0 }) {
		*column = nil
	}
}
