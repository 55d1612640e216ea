package dict

import "slices"

// Encoder compresses events one by one. It is safe for concurrent use.
type Encoder struct {
	d *Dictionary
	c coder
}

// coder is one of the two implementations. Its append may assume that src is not empty and that dst
// has maxCompressedLen(len(src)) bytes of room. It reports false, with dst as it was, if it failed
// or was closed.
type coder interface {
	append(dst, src []byte) ([]byte, bool)
	close()
}

// NewEncoder returns an encoder with d, or without a dictionary if d is nil. Close it after use: it
// may own memory outside of Go's heap.
func NewEncoder(d *Dictionary) (*Encoder, error) {
	c, err := newCoder(d)
	if err != nil {
		return nil, err
	}
	return &Encoder{d: d, c: c}, nil
}

// Append appends src as one zstd frame (see the package comment) to dst and returns the extended
// slice. It keeps neither; they must not overlap. It never fails: should the encoder run out of
// memory, or be closed already, the frame holds src uncompressed.
func (e *Encoder) Append(dst, src []byte) []byte {
	dst = slices.Grow(dst, maxCompressedLen(len(src)))
	if len(src) > 0 {
		if out, ok := e.c.append(dst, src); ok {
			return out
		}
	}
	return appendStored(dst, src, idOf(e.d))
}

// Close frees what the encoder owns, once calls that still run are done. It is safe to call twice.
func (e *Encoder) Close() { e.c.close() }
