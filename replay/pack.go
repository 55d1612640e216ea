package replay

import (
	"encoding/binary"
	"fmt"
	"sort"

	"github.com/minio/minlz"
)

// The plain part is compressed by us and not by Pebble, in pieces of whole frames that can be had one by one: a
// reader unpacks them into memory that it uses again and again and that a core's own cache holds, those of few
// matches only the pieces that have one, checksums run over half the bytes, and what the store caches is the small form.
const (
	packedRaw   byte = iota // the frames as they are
	packedMinLZ             // pieces
)

const (
	// pieceBytes is how large a piece is at most, but for one of a single larger frame. With half as much a block has
	// 4 % more bytes, more than its zstd part; with twice as much 4 % less, but a piece and what it is unpacked
	// from do not fit into half of a core's own cache any more.
	pieceBytes = 128 << 10
	// maxPieceBytes is how large a piece is in any case: a larger frame is in several.
	maxPieceBytes   = 1 << 20
	minPacked       = 4 << 10 // a smaller part is not compressed
	packedHeadBytes = 8
	pieceHeadBytes  = 8
)

// appendPacked appends the value of a plain part, without trailer: of frames, that end at ends.
func appendPacked(dst, frames []byte, ends []uint32) []byte {
	if len(frames) < minPacked {
		dst = append(dst, packedRaw, 0, 0, 0)
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(frames)))
		return append(dst, frames...)
	}
	pieces := cutPieces(len(frames), ends)
	dst = append(dst, packedMinLZ, 0)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(pieces)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(frames)))
	head := len(dst)
	dst = append(dst, make([]byte, pieceHeadBytes*len(pieces))...)
	body := len(dst)
	from := uint32(0)
	for i, to := range pieces {
		packed, err := minlz.Encode(dst[len(dst):cap(dst)], frames[from:to], minlz.LevelFastest)
		if err != nil {
			panic(fmt.Sprintf("compress %d bytes: %v", to-from, err)) // only if they are too many
		}
		dst = append(dst, packed...) // onto itself if they fitted
		binary.LittleEndian.PutUint32(dst[head+pieceHeadBytes*i:], uint32(len(dst)-body))
		binary.LittleEndian.PutUint32(dst[head+pieceHeadBytes*i+4:], to)
		from = to
	}
	return dst
}

// cutPieces returns where the pieces of n bytes of frames end: about equally large ones.
func cutPieces(n int, ends []uint32) (pieces []uint32) {
	count := (n + pieceBytes - 1) / pieceBytes
	enough := uint32((n + count - 1) / count)
	var from, last uint32 // of the piece, and where the last frame of it ends
	cut := func() {
		for ; last-from > maxPieceBytes; from += maxPieceBytes {
			pieces = append(pieces, from+maxPieceBytes)
		}
		pieces = append(pieces, last)
		from = last
	}
	for _, end := range ends {
		if last > from && end-from > pieceBytes {
			cut()
		}
		if last = end; last-from >= enough {
			cut()
		}
	}
	if last = uint32(n); last > from {
		cut()
	}
	return pieces
}

// maxPackedLen is how much appendPacked and a trailer append at most for n bytes.
func maxPackedLen(n int) int {
	// Two neighbours are together more than pieceBytes.
	pieces := 2*(n/pieceBytes) + n/maxPieceBytes + 2
	return packedHeadBytes + trailerBytes + n + pieces*(pieceHeadBytes+minlz.MaxEncodedLen(0)+16)
}

// packed looks at a value that appendPacked made.
type packed struct {
	bytes int    // of the frames
	heads []byte // nil: the frames as they are, one piece
	body  []byte
}

// openPacked takes nothing on trust that its methods would index with.
func openPacked(b []byte) (p packed, err error) {
	d := &decoder{b: b}
	coding := d.byte()
	d.take(1)
	pieces := int(d.uint16())
	p.bytes = int(d.uint32())
	if coding == packedMinLZ {
		p.heads = d.take(pieceHeadBytes * pieces)
	}
	p.body = d.b
	switch {
	case d.err != nil:
		return p, d.err
	case p.bytes > MaxBlockBytes:
		return p, fmt.Errorf("it says that it has %d bytes", p.bytes)
	case coding == packedRaw && pieces == 0 && len(p.body) == p.bytes:
		return p, nil
	case coding != packedMinLZ || pieces == 0:
		return p, fmt.Errorf("%d bytes with coding %d in %d pieces, for %d bytes", len(p.body), coding, pieces, p.bytes)
	}
	var at, from int
	for i := range pieces {
		end, to := p.head(i)
		if end <= at || to <= from || to-from > maxPieceBytes {
			return p, fmt.Errorf("its piece %d is of bytes %d to %d, for %d to %d", i, at, end, from, to)
		}
		at, from = end, to
	}
	if at != len(p.body) || from != p.bytes {
		return p, fmt.Errorf("its pieces have %d of %d bytes, for %d of %d", at, len(p.body), from, p.bytes)
	}
	return p, nil
}

// head returns where piece i ends in the body, and in the frames.
func (p *packed) head(i int) (end, to int) {
	h := p.heads[pieceHeadBytes*i:]
	return int(binary.LittleEndian.Uint32(h)), int(binary.LittleEndian.Uint32(h[4:]))
}

// pieceAt returns the piece that the frames' byte at offset is in.
func (p *packed) pieceAt(offset int) int {
	if p.heads == nil {
		return 0
	}
	return sort.Search(len(p.heads)/pieceHeadBytes, func(i int) bool { _, to := p.head(i); return to > offset })
}

// piece returns where piece i of the frames begins and ends.
func (p *packed) piece(i int) (from, to int) {
	if p.heads == nil {
		return 0, p.bytes
	}
	_, to = p.head(i)
	if i > 0 {
		_, from = p.head(i - 1)
	}
	return from, to
}

// unpack writes piece i to dst, which is as long as the piece.
func (p *packed) unpack(dst []byte, i int) error {
	if p.heads == nil {
		copy(dst, p.body)
		return nil
	}
	end, _ := p.head(i)
	start := 0
	if i > 0 {
		start, _ = p.head(i - 1)
	}
	got, err := minlz.Decode(dst[:len(dst):len(dst)], p.body[start:end])
	if err == nil && len(got) != len(dst) {
		err = fmt.Errorf("%d bytes, not %d", len(got), len(dst))
	}
	if err != nil {
		return fmt.Errorf("unpack piece %d: %w", i, err)
	}
	return nil
}

// appendAll appends the frames to dst.
func (p *packed) appendAll(dst []byte) ([]byte, error) {
	start := len(dst)
	dst = append(dst, make([]byte, p.bytes)...)
	for at, i := 0, 0; at < p.bytes; i++ {
		from, to := p.piece(i)
		if err := p.unpack(dst[start+from:start+to], i); err != nil {
			return nil, err
		}
		at = to
	}
	return dst, nil
}

// unpack returns the frames of a value that appendPacked made. The result is the caller's.
func unpack(b []byte) ([]byte, error) {
	p, err := openPacked(b)
	if err != nil {
		return nil, err
	}
	return p.appendAll(nil)
}
