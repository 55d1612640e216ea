package replay

import (
	"fmt"

	"millrace/replay/internal/cache"
	"millrace/replay/internal/format"
)

// cacheKey names one thing in the cache: a stored part of a block, or a variant of it.
type cacheKey struct {
	block     int64
	part      format.Range // its range; 0: a variant of a block of the tail
	substream int          // of a plain part, counted over its pages
	variant   variant
	// of a variant, the stamp of its first event. A merged block has the key of the last small
	// block in it, and both have variants
	first int64
}

// frames are a variant's frames, back to back.
type frames struct {
	data []byte
	ends []uint32 // one past each event's frame
	// sizes that events count with against a filter's limit; nil: those of the frames' payloads
	payloads []uint32
}

// cached is what the cache holds of a key: one of these.
type cached struct {
	idx  *blockIndex        // of part RangeIndex, RangeSlimIndex or RangeCopiesIndex
	span *format.Span       // of part RangeSpan
	refs *format.References // of part RangeReferences
	frames
}

func (v cached) memory() int64 {
	switch {
	case v.idx != nil:
		return v.idx.memory()
	case v.span != nil:
		return v.span.Memory()
	case v.refs != nil:
		return v.refs.Memory()
	}
	return int64(cap(v.data) + 4*cap(v.ends) + 4*cap(v.payloads))
}

// decode sets v to what b is: an index, a slim index or a span.
func (v *cached) decode(b []byte, r format.Range, key int64) (err error) {
	if r == format.RangeSpan {
		if v.span, err = format.DecodeSpan(b); err == nil && v.span.Key() != key {
			err = fmt.Errorf("its last block is %d", v.span.Key())
		}
		return err
	}
	if v.idx, err = decodeBlockIndex(r, b); err == nil && v.idx.Key() != key && r != format.RangeCopiesIndex {
		err = fmt.Errorf("its last event is stamped %d", v.idx.Key())
	}
	return err
}

// maxHeldParts is how many parts all readers together hold open between their calls of Next, at
// most. An open part keeps memory of Pebble's, and files that a trim has deleted. Its bytes are
// charged to the cache.
const maxHeldParts = 16

func newCache(maxBytes int64) *cache.Cache[cacheKey, cached] {
	return cache.New[cacheKey](cache.Config[cached]{MaxBytes: maxBytes, MaxCharges: maxHeldParts, Size: cached.memory})
}
