package dict

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// pureCoder is the coder in Go. Both encoders below hold up to GOMAXPROCS states, each made when
// first needed; EncodeAll waits for one that is free.
type pureCoder struct {
	segment *zstd.Encoder // frames of a single segment
	// for content over maxWindowBytes: made when first needed
	long func() (enc *zstd.Encoder, err error)
}

var _ coder = (*pureCoder)(nil)

func newPureCoder(d *Dictionary) (*pureCoder, error) {
	build := func(singleSegment bool) (*zstd.Encoder, error) {
		opts := []zstd.EOption{
			zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)),
			zstd.WithWindowSize(maxWindowBytes),
			zstd.WithEncoderCRC(false),
			zstd.WithSingleSegment(singleSegment),
		}
		if d != nil {
			opts = append(opts, zstd.WithEncoderDict(d.raw))
		}
		enc, err := zstd.NewWriter(nil, opts...)
		if err != nil {
			return nil, fmt.Errorf("make encoder with dictionary %d: %w", idOf(d), err)
		}
		return enc, nil
	}
	segment, err := build(true)
	if err != nil {
		return nil, err
	}
	return &pureCoder{
		segment: segment,
		long:    sync.OnceValues(func() (*zstd.Encoder, error) { return build(false) }),
	}, nil
}

func (c *pureCoder) append(dst, src []byte) ([]byte, bool) {
	if len(src) <= maxWindowBytes {
		return c.segment.EncodeAll(src, dst), true
	}
	enc, err := c.long()
	if err != nil {
		return dst, false
	}
	return enc.EncodeAll(src, dst), true
}

// close has nothing to do: encoders that only ever saw EncodeAll hold nothing but Go memory.
func (c *pureCoder) close() {}
