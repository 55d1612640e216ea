package dict

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// NewFileReader returns a reader of the plain bytes of a file that may be compressed, with gzip or
// zstd, which its first bytes say. zstd may take maxWindow bytes of memory. Closing the reader does
// not close in.
func NewFileReader(in io.Reader, maxWindow uint64) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(in, 64<<10)
	switch start, _ := b.Peek(4); {
	case bytes.HasPrefix(start, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("read gzip: %w", err)
		}
		return z, nil
	case string(start) == "\x28\xb5\x2f\xfd":
		z, err := zstd.NewReader(b, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, fmt.Errorf("read zstd: %w", err)
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(b), nil
}
