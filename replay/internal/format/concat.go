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
	x.Kinds |= o.Kinds
	x.TimeUS = append(x.TimeUS, o.TimeUS...)
	x.Seq = append(x.Seq, o.Seq...)
	x.Op = append(x.Op, o.Op...)
	x.Kind = append(x.Kind, o.Kind...)
	for i := range o.Events() {
		x.Collection = append(x.Collection, collections[o.Collection[i]])
		x.DID = append(x.DID, dids[o.DID[i]])
		x.PlainEnd = append(x.PlainEnd, plain+o.PlainEnd[i])
		x.ZstdEnd = append(x.ZstdEnd, zstd+o.ZstdEnd[i])
	}
	x.DIDUID = appendOptional(x.DIDUID, o.DIDUID, o.Events())
	x.URIUID = appendOptional(x.URIUID, o.URIUID, o.Events())
	x.Unverified = appendOptional(x.Unverified, o.Unverified, o.Events())
}

// appendOptional appends n values; nil stands for zeros.
func appendOptional[T number](dst, values []T, n int) []T {
	if values != nil {
		return append(dst, values...)
	}
	start := len(dst)
	dst = slices.Grow(dst, n)[:start+n]
	clear(dst[start:])
	return dst
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
