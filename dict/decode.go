package dict

import (
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// maxDecodeWindow is the largest window that a frame may declare. Others' encoders declare their
// usual window, some MiB, however short the content is; it costs nothing, as content is decoded in
// place.
const maxDecodeWindow = 1 << 29

// Decoder decompresses frames, of ours or of others. It is safe for concurrent use.
type Decoder struct {
	maxBytes int
	dec      *zstd.Decoder
}

// NewDecoder returns a decoder for frames of at most maxBytes of content, made with one of ds or
// without a dictionary. Close it after use.
func NewDecoder(maxBytes int, ds ...*Dictionary) (*Decoder, error) {
	if maxBytes < 1 {
		return nil, fmt.Errorf("maxBytes is %d, not at least 1", maxBytes)
	}
	raws := make([][]byte, len(ds))
	for i, d := range ds {
		raws[i] = d.raw
	}
	dec, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(0),
		zstd.WithDecoderMaxWindow(maxDecodeWindow),
		zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderDicts(raws...))
	if err != nil {
		return nil, fmt.Errorf("make decoder: %w", err)
	}
	return &Decoder{maxBytes: maxBytes, dec: dec}, nil
}

// Append decompresses src, which must be exactly one frame, and appends its content to dst. It
// returns dst extended, or as it was with an error. The slices must not overlap; neither is kept.
// An error wraps errTooLarge (content over the limit; if the frame states its size, nothing was
// allocated), errUnknownDictionary or ErrCorrupt.
func (d *Decoder) Append(dst, src []byte) ([]byte, error) {
	info, err := inspectFrame(src)
	if err != nil {
		return dst, err
	}
	if info.sized && info.maxBytes > uint64(d.maxBytes) {
		return dst, fmt.Errorf("%w: %d bytes, the decoder takes %d at most", errTooLarge, info.maxBytes, d.maxBytes)
	}
	room := int(min(info.maxBytes, uint64(d.maxBytes)))
	grown := slices.Grow(dst, room)
	// The capacity is the decoder's limit. It would also count what dst already holds against it.
	out, err := d.dec.DecodeAll(src, grown[len(dst):len(dst):len(dst)+room])
	switch {
	case errors.Is(err, zstd.ErrUnknownDictionary):
		return dst, fmt.Errorf("%w %d, which the frame is compressed with", errUnknownDictionary, info.id)
	case errors.Is(err, zstd.ErrDecoderSizeExceeded) && !info.sized:
		return dst, fmt.Errorf("%w: the decoder takes %d bytes at most", errTooLarge, d.maxBytes)
	case err != nil:
		return dst, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return grown[:len(dst)+len(out)], nil
}

// Close frees the decoder. No call may be running; Append fails afterwards.
func (d *Decoder) Close() { d.dec.Close() }
