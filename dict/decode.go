package dict

import (
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// Decoder decompresses frames, of ours or of others. It is safe for concurrent use.
type Decoder struct{ dec *zstd.Decoder }

// NewDecoder returns a decoder for frames whose content, and window, has at most maxBytes. They are
// made with one of ds or without a dictionary. Close it after use.
func NewDecoder(maxBytes int, ds ...*Dictionary) (*Decoder, error) {
	raws := make([][]byte, len(ds))
	for i, d := range ds {
		raws[i] = d.raw
	}
	dec, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(0),
		zstd.WithDecoderMaxMemory(uint64(maxBytes)),
		zstd.WithDecoderDicts(raws...))
	if err != nil {
		return nil, fmt.Errorf("make decoder: %w", err)
	}
	return &Decoder{dec}, nil
}

// Append decompresses src, which must be a frame, and appends its content to dst, which counts for
// the limit. It returns dst extended, or as it was with an error. The slices must not overlap;
// neither is kept.
func (d *Decoder) Append(dst, src []byte) ([]byte, error) {
	out, err := d.dec.DecodeAll(src, dst)
	if err != nil {
		return dst, fmt.Errorf("decompress: %w", err)
	}
	return out, nil
}

// Close frees the decoder. No call may be running; Append fails afterwards.
func (d *Decoder) Close() { d.dec.Close() }
