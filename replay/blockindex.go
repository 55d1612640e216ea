package replay

import (
	"sync/atomic"

	"millrace/replay/internal/format"
)

// blockIndex is the index of a block, or the slim index, and what readers of the block on disk learn about it.
type blockIndex struct {
	*format.SlimIndex
	full *format.Index // nil: only the slim index is at hand

	didHashes atomic.Pointer[[]uint64] // of the full index; nil: no reader asked for them

	checked atomic.Uint32 // which values' checksums were right: a bit for each part, and for each substream
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
