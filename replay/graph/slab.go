package graph

import (
	"encoding/binary"
	"slices"
)

const (
	chunkBytes = 4 << 20
	unit       = 8 // bytes that a reference counts in
	chunkUnits = chunkBytes / unit
	maxChunks  = 1 << 31 / chunkUnits // a reference's top bit marks bitmaps
)

// slab has slots of some sizes, in chunks outside the Go heap.
type slab struct {
	chunks    [][]byte
	next, end int64    // units: the unused part of the last chunk
	sizes     []int    // bytes, by class
	free      []uint32 // the first free slot of each class; a free slot begins with the next one
}

func newSlab() *slab {
	a := &slab{next: 1, end: 1} // no slot has reference 0
	for size := unit; size <= maxPlace*5/4; size += max(unit, size/32/unit*unit) {
		a.sizes = append(a.sizes, size)
	}
	a.free = make([]uint32, len(a.sizes))
	return a
}

// class is the smallest with room for so many bytes. The first sizes are multiples of the unit.
func (a *slab) class(size int) int {
	if size <= 64*unit {
		return (size - 1) / unit
	}
	class, _ := slices.BinarySearch(a.sizes, size)
	return class
}

// ready says whether take works for so many slots of any class without a new chunk.
func (a *slab) ready(slots int) bool {
	return a.end-a.next >= int64(slots*a.sizes[len(a.sizes)-1]/unit)
}

// grow maps a chunk. The rest of the chunk before is never used.
func (a *slab) grow() error {
	if len(a.chunks) >= maxChunks {
		return errFull
	}
	chunk, err := mapBytes(chunkBytes)
	if err != nil {
		return err
	}
	a.chunks = append(a.chunks, chunk)
	a.next = int64(len(a.chunks)-1)*chunkUnits + 1
	a.end = int64(len(a.chunks)) * chunkUnits
	return nil
}

// take returns a slot; ready was true.
func (a *slab) take(class int) uint32 {
	if ref := a.free[class]; ref != 0 {
		a.free[class] = binary.LittleEndian.Uint32(a.at(ref))
		return ref
	}
	ref := a.next
	a.next += int64(a.sizes[class] / unit)
	return uint32(ref)
}

func (a *slab) give(ref uint32, class int) {
	binary.LittleEndian.PutUint32(a.at(ref), a.free[class])
	a.free[class] = ref
}

// slot returns the bytes of a slot in use, which begins with its class.
func (a *slab) slot(ref uint32) []byte {
	b := a.at(ref)
	return b[:a.sizes[b[0]]]
}

// at returns the bytes of a slot and of all after it in its chunk.
func (a *slab) at(ref uint32) []byte {
	return a.chunks[ref/chunkUnits][ref%chunkUnits*unit:]
}

func (a *slab) close() {
	for _, chunk := range a.chunks {
		unmapBytes(chunk)
	}
	a.chunks = nil
}
