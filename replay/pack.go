package replay

import (
	"encoding/binary"
	"fmt"

	"github.com/minio/minlz"
)

// The plain part is compressed as a whole, by us and not by Pebble: it then takes a copy less to read
// it, checksums run over half the bytes, and what the store caches is the small form.
const (
	packedRaw   byte = iota // the frames as they are
	packedMinLZ             // chunks of packedChunk bytes of them, the last shorter
)

const (
	packedChunk     = 1 << 20
	minPacked       = 4 << 10 // a smaller part is not compressed
	packedHeadBytes = 8
)

// appendPacked appends the value of a plain part, without trailer: coding, three zero bytes, the number of
// bytes of the frames, and the frames, or for each chunk the length of its compressed form and that.
func appendPacked(dst, frames []byte) []byte {
	coding := packedRaw
	if len(frames) >= minPacked {
		coding = packedMinLZ
	}
	dst = append(dst, coding, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(frames)))
	if coding == packedRaw {
		return append(dst, frames...)
	}
	for len(frames) > 0 {
		n := min(len(frames), packedChunk)
		at := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		free := dst[len(dst):cap(dst)]
		chunk, err := minlz.Encode(free, frames[:n], minlz.LevelFastest)
		if err != nil {
			panic(fmt.Sprintf("compress %d bytes: %v", n, err)) // only if they are too many
		}
		dst = append(dst, chunk...) // onto itself if they fitted
		binary.LittleEndian.PutUint32(dst[at:], uint32(len(chunk)))
		frames = frames[n:]
	}
	return dst
}

// maxPackedLen is how much appendPacked and a trailer append at most for n bytes.
func maxPackedLen(n int) int {
	size := packedHeadBytes + trailerBytes
	if n < minPacked {
		return size + n
	}
	for ; n > 0; n -= packedChunk {
		size += 4 + minlz.MaxEncodedLen(min(n, packedChunk))
	}
	return size
}

// unpack returns the frames of a value that appendPacked made. The result is the caller's.
func unpack(b []byte) ([]byte, error) {
	d := &decoder{b: b}
	coding := d.byte()
	d.take(3)
	n := int(d.uint32())
	switch {
	case d.err != nil:
		return nil, d.err
	case n > MaxBlockBytes:
		return nil, fmt.Errorf("it says that it has %d bytes", n)
	case coding == packedRaw && len(d.b) == n:
		return append(make([]byte, 0, n), d.b...), nil
	case coding != packedMinLZ:
		return nil, fmt.Errorf("%d bytes with coding %d, for %d bytes", len(d.b), coding, n)
	}
	out := make([]byte, n)
	for rest := out; len(rest) > 0; {
		chunk := d.take(int(d.uint32()))
		if d.err != nil {
			return nil, d.err
		}
		size := min(len(rest), packedChunk)
		got, err := minlz.Decode(rest[:size:size], chunk)
		if err != nil || len(got) != size {
			return nil, fmt.Errorf("decompress: %d bytes, not %d: %w", len(got), size, err)
		}
		rest = rest[size:]
	}
	return out, d.end()
}
