package replay

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"sync"

	"github.com/minio/minlz"

	"millrace/replay/internal/format"
)

// The plain part is compressed by us and not by Pebble, in pieces of whole frames that can be had one by one: a
// reader unpacks them into memory that it uses again and again and that a core's own cache holds, those of few
// matches only the pieces that have one, checksums run over half the bytes, and what the store caches is the small form.
//
// Within a piece, the frames of a collection that has much of the block are compressed as a strand of their own, and all
// others' as another. Who reads the posts among the likes unpacks the posts; who reads everything puts the strands' frames
// back into their order, which takes him less time than a twentieth of the whole. Strands are values of their own, so that who
// wants one does not read the others.
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

	strandShare = 16         // a collection has its own if it has such a part of the bytes
	minStranded = pieceBytes // a smaller part has one: its strands would be smaller than minBlobValue
)

// packer packs a plain part into the values it is stored as: one, or one for each strand.
type packer struct {
	frames  int // bytes of them
	pieces  []uint32
	strands int

	bytes []int   // by collection
	own   []uint8 // the strand of each collection
	of    []uint8 // the strand of each event, if there are several

	parts [format.MaxSubstreams][]byte   // of the piece that is packed
	out   [format.MaxSubstreams][]byte   // of the strands: what is packed
	ends  [format.MaxSubstreams][]uint32 // and where the pieces end in it
}

var packers = sync.Pool{New: func() any { return new(packer) }}

// maxKeptStrand bounds what goes back to packers, in each of a strand's buffers.
const maxKeptStrand = 2 * pieceBytes

// pack packs frames that end at ends, each of its collection; collections nil: they are all of one. It returns how many
// values that makes, which appendValue has. From stranded bytes on they may be several.
func (k *packer) pack(frames []byte, ends []uint32, collections []uint16, stranded int) (values int) {
	k.frames = len(frames)
	for s := range k.out {
		k.out[s], k.ends[s] = k.out[s][:0], k.ends[s][:0]
	}
	if len(frames) < min(minPacked, stranded) {
		k.out[0] = append(k.out[0], frames...)
		k.strands, k.pieces, k.of = 0, nil, k.of[:0]
		return 1
	}
	k.strands = 1
	if k.of = k.of[:0]; len(frames) >= stranded && collections != nil {
		k.strands = k.divide(len(frames), ends, collections)
	}
	k.pieces = cutPieces(len(frames), ends)
	from := uint32(0)
	for _, to := range k.pieces {
		if k.strands == 1 {
			k.put(0, frames[from:to])
		} else {
			k.part(frames, ends, from, to)
			for s := range k.strands {
				k.put(s, k.parts[s])
			}
		}
		from = to
	}
	return k.strands
}

// put packs a strand of the next piece.
func (k *packer) put(s int, b []byte) {
	k.out[s] = appendMinLZ(k.out[s], b)
	k.ends[s] = append(k.ends[s], uint32(len(k.out[s])))
}

// appendValue appends value s, without trailer.
func (k *packer) appendValue(dst []byte, s int) []byte {
	if s > 0 {
		return append(append(dst, byte(s)), k.out[s]...)
	}
	coding := packedMinLZ
	if k.strands == 0 {
		coding = packedRaw
	}
	dst = append(dst, coding, byte(k.strands))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(k.pieces)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(k.frames))
	for i, end := range k.pieces {
		dst = binary.LittleEndian.AppendUint32(dst, end)
		for s := range k.strands {
			dst = binary.LittleEndian.AppendUint32(dst, k.ends[s][i])
		}
	}
	dst = append(dst, k.of...)
	return append(dst, k.out[0]...)
}

// free gives k back.
func (k *packer) free() {
	for s := range k.parts {
		if cap(k.parts[s]) > maxKeptStrand {
			k.parts[s] = nil
		}
		if cap(k.out[s]) > maxKeptStrand {
			k.out[s] = nil
		}
	}
	packers.Put(k)
}

// appendPacked appends the value, without trailer, of a part that is one.
func appendPacked(dst, frames []byte, ends []uint32) []byte {
	k := packers.Get().(*packer)
	defer k.free()
	k.pack(frames, ends, nil, minStranded)
	return k.appendValue(dst, 0)
}

// pieceHeadBytes is how much the head of a piece takes.
func pieceHeadBytes(strands int) int { return 4 + 4*strands }

// appendMinLZ appends b packed; an empty one has no bytes.
func appendMinLZ(dst, b []byte) []byte {
	if len(b) == 0 {
		return dst
	}
	dst = slices.Grow(dst, minlz.MaxEncodedLen(len(b)))
	packed, err := minlz.Encode(dst[len(dst):cap(dst)], b, minlz.LevelFastest)
	if err != nil {
		panic(fmt.Sprintf("compress %d bytes: %v", len(b), err)) // only if they are too many
	}
	return append(dst, packed...) // onto itself
}

// divide chooses the strands of n bytes of frames, and says how many they are. If they are more than one, k.of has
// each event's, else it is empty.
func (k *packer) divide(n int, ends []uint32, collections []uint16) (strands int) {
	k.bytes = k.bytes[:0]
	from := uint32(0)
	for i, c := range collections {
		for len(k.bytes) <= int(c) {
			k.bytes = append(k.bytes, 0)
		}
		k.bytes[c] += int(ends[i] - from)
		from = ends[i]
	}
	strands = 1
	k.own = k.own[:0]
	rest := n
	for _, b := range k.bytes {
		own := 0
		if b >= n/strandShare && strands < format.MaxSubstreams {
			own = strands
			strands++
			rest -= b
		}
		k.own = append(k.own, uint8(own))
	}
	if strands == 1 || strands == 2 && rest == 0 {
		return 1
	}
	for _, c := range collections {
		k.of = append(k.of, k.own[c])
	}
	return strands
}

// part fills k.parts with the strands of the piece of the frames' bytes from from up to to.
func (k *packer) part(frames []byte, ends []uint32, from, to uint32) {
	for i := range k.parts {
		k.parts[i] = k.parts[i][:0]
	}
	for e := endingAfter(ends, from); from < to; e++ {
		end := min(ends[e], to)
		s := k.of[e]
		k.parts[s] = append(k.parts[s], frames[from:end]...)
		from = end
	}
}

// endingAfter returns the first event that ends after offset.
func endingAfter(ends []uint32, offset uint32) int {
	return sort.Search(len(ends), func(i int) bool { return ends[i] > offset })
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

// maxPackedLen is how much the values of n bytes of so many events take at most, with their trailers.
func maxPackedLen(n, events int) int {
	// Two neighbours are together more than pieceBytes.
	pieces := 2*(n/pieceBytes) + n/maxPieceBytes + 2
	return packedHeadBytes + format.MaxSubstreams*(1+format.TrailerBytes) + n + events + pieces*(pieceHeadBytes(format.MaxSubstreams)+format.MaxSubstreams*(minlz.MaxEncodedLen(0)+16))
}

// packed looks at what packer made.
type packed struct {
	bytes   int    // of the frames
	heads   []byte // nil: the frames as they are, one piece
	strands int
	of      []byte                       // the strand of each event, if there are several
	ends    []uint32                     // of the events
	bodies  [format.MaxSubstreams][]byte // what the values have of each strand; those but the first may be nil until they are needed
}

// openPacked opens the first value. It takes nothing on trust that its methods would index with. ends are those of the
// frames, which it keeps.
func openPacked(b []byte, ends []uint32) (p packed, err error) {
	d := &decoder{b: b}
	coding := d.byte()
	p.strands = int(d.byte())
	pieces := int(d.uint16())
	p.bytes = int(d.uint32())
	if coding == packedMinLZ {
		p.heads = d.take(pieceHeadBytes(p.strands) * pieces)
		if p.strands > 1 {
			p.of, p.ends = d.take(len(ends)), ends
		}
	}
	p.bodies[0] = d.b
	switch {
	case d.err != nil:
		return p, d.err
	case p.bytes > MaxBlockBytes:
		return p, fmt.Errorf("it says that it has %d bytes", p.bytes)
	case coding == packedRaw && p.strands == 0 && pieces == 0 && len(d.b) == p.bytes:
		return p, nil
	case coding != packedMinLZ || p.strands == 0 || p.strands > format.MaxSubstreams || pieces == 0:
		return p, fmt.Errorf("%d bytes with coding %d in %d pieces of %d strands, for %d bytes", len(d.b), coding, pieces, p.strands, p.bytes)
	case p.strands > 1 && (len(ends) == 0 || int(ends[len(ends)-1]) != p.bytes):
		return p, fmt.Errorf("it has %d bytes in %d strands, and other events", p.bytes, p.strands)
	}
	var from int
	var at [format.MaxSubstreams]int
	for i := range pieces {
		to := p.head(i, 0)
		if to <= from || to-from > maxPieceBytes {
			return p, fmt.Errorf("its piece %d is from %d to %d", i, from, to)
		}
		some := false
		for s := range p.strands {
			end := p.head(i, 1+s)
			if end < at[s] {
				return p, fmt.Errorf("strand %d of its piece %d ends at %d, before %d", s, i, end, at[s])
			}
			some = some || end > at[s]
			at[s] = end
		}
		if !some {
			return p, fmt.Errorf("its piece %d is empty", i)
		}
		from = to
	}
	if at[0] != len(d.b) || from != p.bytes {
		return p, fmt.Errorf("its pieces have %d of %d bytes, for %d of %d", at[0], len(d.b), from, p.bytes)
	}
	return p, nil
}

// setStrand takes the value of a strand but the first.
func (p *packed) setStrand(s int, b []byte) error {
	switch want := p.head(p.pieces()-1, 1+s); {
	case len(b) == 0 || b[0] != byte(s):
		return fmt.Errorf("what is stored as strand %d is something else", s)
	case len(b)-1 != want:
		return fmt.Errorf("strand %d has %d bytes, not %d", s, len(b)-1, want)
	}
	p.bodies[s] = b[1:]
	return nil
}

// stored is how many bytes all strands have.
func (p *packed) stored() int {
	n := len(p.bodies[0])
	for s := 1; s < p.strands; s++ {
		n += p.head(p.pieces()-1, 1+s)
	}
	return n
}

// pieces is how many there are of frames that are packed.
func (p *packed) pieces() int { return len(p.heads) / pieceHeadBytes(p.strands) }

// head returns a number of piece i's head: where it ends in the frames, and from 1 on where its strands end in the bodies.
func (p *packed) head(i, n int) int {
	return int(binary.LittleEndian.Uint32(p.heads[pieceHeadBytes(p.strands)*i+4*n:]))
}

// pieceAt returns the piece that the frames' byte at offset is in.
func (p *packed) pieceAt(offset int) int {
	if p.heads == nil {
		return 0
	}
	return sort.Search(p.pieces(), func(i int) bool { return p.head(i, 0) > offset })
}

// piece returns where piece i of the frames begins and ends.
func (p *packed) piece(i int) (from, to int) {
	if p.heads == nil {
		return 0, p.bytes
	}
	if i > 0 {
		from = p.head(i-1, 0)
	}
	return from, p.head(i, 0)
}

// strandSource is where strands come from that packed does not have.
type strandSource interface {
	// unpacked returns a strand of a piece, of size bytes, if it is at hand; else nil.
	unpacked(piece, strand, size int) ([]byte, error)
	// load makes packed have a strand's body.
	load(strand int) error
}

// unpack writes piece i to dst, which is as long as the piece. mem is for what it needs meanwhile; src may be nil.
func (p *packed) unpack(dst []byte, i int, mem *loan, src strandSource) error {
	switch {
	case p.heads == nil:
		copy(dst, p.bodies[0])
		return nil
	case p.strands == 1:
		return p.unpackStrand(dst, i, 0)
	}
	from, to := p.piece(i)
	_, err := p.gather(dst, i, []run{{uint32(from), uint32(to)}}, mem, src)
	return err
}

// unpackStrand writes a strand of piece i to dst, which is as long.
func (p *packed) unpackStrand(dst []byte, i, strand int) error {
	body := p.bodies[strand]
	if body == nil {
		return fmt.Errorf("strand %d: %w", strand, format.ErrMissing)
	}
	start := 0
	if i > 0 {
		start = p.head(i-1, 1+strand)
	}
	got, err := minlz.Decode(dst[:len(dst):len(dst)], body[start:p.head(i, 1+strand)])
	if err == nil && len(got) != len(dst) {
		err = fmt.Errorf("%d bytes, not %d", len(got), len(dst))
	}
	if err != nil {
		return fmt.Errorf("unpack strand %d of piece %d: %w", strand, i, err)
	}
	return nil
}

// gather writes what the runs, which are of whole frames and ascend, want of piece i to dst, one behind the other, and
// returns how much that is. It looks only at the strands that they want something of, and unpacks only those that src, which
// may be nil, does not have unpacked.
func (p *packed) gather(dst []byte, i int, runs []run, mem *loan, src strandSource) (n int, err error) {
	begin, limit := p.piece(i)
	from, to := uint32(begin), uint32(limit)
	first := endingAfter(p.ends, from)
	var at [format.MaxSubstreams]uint32 // first the sizes of the strands, then how far each is read
	var size uint32                     // of what is wanted
	var data [format.MaxSubstreams][]byte
	var wanted uint32 // a bit for each strand
	wants := runCursor{runs: runs}
	for e, start := first, from; start < to; e++ {
		end := min(p.ends[e], to)
		s := p.of[e]
		if int(s) >= p.strands {
			return 0, fmt.Errorf("event %d is of strand %d", e, s)
		}
		at[s] += end - start
		if wants.has(start) {
			wanted |= 1 << s
			size += end - start
		}
		start = end
	}
	whole := bits.OnesCount32(wanted) == 1 && size == at[bits.TrailingZeros32(wanted)] // of one strand: as it is
	room := mem.bytes(int(to - from))
	for s := range p.strands {
		size := int(at[s])
		at[s] = 0
		if wanted&(1<<s) == 0 {
			continue
		}
		if src != nil {
			if data[s], err = src.unpacked(i, s, size); err != nil {
				return 0, err
			}
		}
		if data[s] != nil {
			continue
		}
		if src != nil {
			if err := src.load(s); err != nil {
				return 0, err
			}
		}
		if whole {
			return size, p.unpackStrand(dst[:size], i, s)
		}
		data[s], room = room[:size], room[size:]
		if err := p.unpackStrand(data[s], i, s); err != nil {
			return 0, err
		}
	}
	wants = runCursor{runs: runs}
	for e, start := first, from; start < to; e++ {
		end := min(p.ends[e], to)
		s := p.of[e]
		if wants.has(start) {
			n += copy(dst[n:], data[s][at[s]:at[s]+end-start])
		}
		at[s] += end - start
		start = end
	}
	return n, nil
}

// runCursor goes through runs that ascend.
type runCursor struct{ runs []run }

// has says whether a run covers offset. Offsets ascend from call to call.
func (c *runCursor) has(offset uint32) bool {
	for len(c.runs) > 0 && c.runs[0].to <= offset {
		c.runs = c.runs[1:]
	}
	return len(c.runs) > 0 && c.runs[0].from <= offset
}

// appendAll appends the frames to dst. src may be nil.
func (p *packed) appendAll(dst []byte, src strandSource) ([]byte, error) {
	var mem loan
	defer mem.free()
	start := len(dst)
	dst = append(dst, make([]byte, p.bytes)...)
	for at, i := 0, 0; at < p.bytes; i++ {
		from, to := p.piece(i)
		if err := p.unpack(dst[start+from:start+to], i, &mem, src); err != nil {
			return nil, err
		}
		at = to
	}
	return dst, nil
}

// unpack returns the frames that end at ends, of the values that packer made: the first, and those of the other strands by
// number, which may be nil: then there are none. The result is the caller's.
func unpack(b []byte, ends []uint32, strands *[format.MaxSubstreams][]byte) ([]byte, error) {
	p, err := openPacked(b, ends)
	if err != nil {
		return nil, err
	}
	for s := 1; strands != nil && s < format.MaxSubstreams; s++ {
		b := strands[s]
		switch {
		case b == nil:
		case s >= p.strands:
			return nil, fmt.Errorf("there is a strand %d, of %d", s, p.strands)
		default:
			if err := p.setStrand(s, b); err != nil {
				return nil, err
			}
		}
	}
	return p.appendAll(nil, nil)
}
