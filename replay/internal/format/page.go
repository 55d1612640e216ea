package format

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sort"

	"github.com/minio/minlz"
)

// Pages are the frames of a plain part, as they are stored: what pagePacker packed. It aliases the
// values and the ends that it was made of, and changes neither. A copy of it is as good.
type Pages struct {
	bytes      int    // of the frames
	heads      []byte // nil: the frames as they are, as one page
	substreams int    // 0: the frames as they are
	of         []byte // the substream of each event, if there are several
	ends       []uint32
	bodies     [MaxSubstreams][]byte // by substream; nil, but for the first: not set yet
}

// RawPages returns the pages of frames that are not packed: one.
func RawPages(frames []byte) Pages {
	return Pages{bytes: len(frames), bodies: [MaxSubstreams][]byte{frames}}
}

// OpenPages opens the first value of a plain part, without its trailer. ends are where its frames
// end. It checks all that methods index with.
func OpenPages(b []byte, ends []uint32) (p Pages, err error) {
	d := &decoder{b: b}
	coding := d.byte()
	p.substreams = int(d.byte())
	n := int(d.uint16())
	p.bytes = int(d.uint32())
	if coding == pagesMinLZ {
		p.heads = d.take(pageHeadBytes(p.substreams) * n)
		if p.substreams > 1 {
			p.of, p.ends = d.take(len(ends)), ends
		}
	}
	p.bodies[0] = d.b
	switch {
	case d.err != nil:
		return p, d.err
	case p.bytes > MaxBlockBytes:
		return p, fmt.Errorf("it states that its frames have %d bytes, which are too many", p.bytes)
	case coding == pagesRaw && p.substreams == 0 && n == 0 && len(d.b) == p.bytes:
		return p, nil
	case coding != pagesMinLZ || p.substreams == 0 || p.substreams > MaxSubstreams || n == 0:
		return p, fmt.Errorf("it holds %d bytes with coding %d in %d pages of %d substreams, which cannot be %d bytes of events", len(d.b), coding, n, p.substreams, p.bytes)
	case p.substreams > 1 && (len(ends) == 0 || int(ends[len(ends)-1]) != p.bytes):
		return p, fmt.Errorf("it has %d bytes in %d substreams, but the last event does not end there", p.bytes, p.substreams)
	}
	return p, p.checkHeads(n)
}

// checkHeads checks where the n pages end.
func (p *Pages) checkHeads(n int) error {
	var from int
	var at [MaxSubstreams]int
	for i := range n {
		to := p.head(i, 0)
		if to <= from || to-from > maxPageBytes {
			return fmt.Errorf("its page %d goes from byte %d to %d: it is empty or too long", i, from, to)
		}
		some := false
		for s := range p.substreams {
			end := p.head(i, 1+s)
			if end < at[s] {
				return fmt.Errorf("substream %d of its page %d ends at %d, before %d", s, i, end, at[s])
			}
			some = some || end > at[s]
			at[s] = end
		}
		if !some {
			return fmt.Errorf("its page %d is empty", i)
		}
		from = to
	}
	if at[0] != len(p.bodies[0]) || from != p.bytes {
		return fmt.Errorf("its pages use %d of %d stored bytes, and give %d of %d bytes of frames", at[0], len(p.bodies[0]), from, p.bytes)
	}
	return nil
}

// Size returns how many bytes the frames have.
func (p *Pages) Size() int { return p.bytes }

// Raw says whether the frames are stored as they are.
func (p *Pages) Raw() bool { return p.heads == nil }

// FirstValue returns the first value without what precedes the frames: all frames if they are raw,
// else what is packed of the first substream.
func (p *Pages) FirstValue() []byte { return p.bodies[0] }

// NumSubstreams returns the number of substreams; 0: the frames are stored as they are.
func (p *Pages) NumSubstreams() int { return p.substreams }

// SubstreamOf returns the substream of an event; 0 if there are not several.
func (p *Pages) SubstreamOf(event int) int {
	if p.substreams < 2 {
		return 0
	}
	return int(p.of[event])
}

// SetSubstream takes the value of a substream but the first, without its trailer.
func (p *Pages) SetSubstream(s int, b []byte) error {
	switch want := p.head(p.NumPages()-1, 1+s); {
	case len(b) == 0 || b[0] != byte(s):
		return fmt.Errorf("what is stored as substream %d is something else", s)
	case len(b)-1 != want:
		return fmt.Errorf("substream %d has %d bytes, not %d", s, len(b)-1, want)
	}
	p.bodies[s] = b[1:]
	return nil
}

// HasSubstream says whether the value of a substream is there.
func (p *Pages) HasSubstream(s int) bool { return p.bodies[s] != nil }

// StoredBytes returns how many bytes all substreams have as they are stored.
func (p *Pages) StoredBytes() int {
	n := len(p.bodies[0])
	for s := 1; s < p.substreams; s++ {
		n += p.head(p.NumPages()-1, 1+s)
	}
	return n
}

// NumPages returns the number of pages that are packed; 0 if the frames are stored as they are.
func (p *Pages) NumPages() int { return len(p.heads) / pageHeadBytes(p.substreams) }

// head returns number n of page i's head: 0 is where the page ends in the frames, those from 1 on
// are where its substreams end in the bodies.
func (p *Pages) head(i, n int) int {
	return int(binary.LittleEndian.Uint32(p.heads[pageHeadBytes(p.substreams)*i+4*n:]))
}

// PageAt returns the page that has the frames' byte at offset.
func (p *Pages) PageAt(offset int) int {
	if p.heads == nil {
		return 0
	}
	return sort.Search(p.NumPages(), func(i int) bool { return p.head(i, 0) > offset })
}

// Page returns where page i begins and ends in the frames.
func (p *Pages) Page(i int) (from, to int) {
	if p.heads == nil {
		return 0, p.bytes
	}
	if i > 0 {
		from = p.head(i-1, 0)
	}
	return from, p.head(i, 0)
}

// SubstreamSource has substreams that a Pages lacks.
type SubstreamSource interface {
	// Unpacked returns what a page has of a substream, of size bytes, if it is at hand; else nil.
	// It stays the source's.
	Unpacked(page, substream, size int) ([]byte, error)
	// Load calls SetSubstream for a substream, unless it was called.
	Load(substream int) error
}

// Scratch is memory that methods of Pages borrow.
type Scratch interface {
	// Take returns n bytes, good until the next call.
	Take(n int) []byte
}

// unpack writes page i to dst, which is as long as the page.
func (p *Pages) unpack(dst []byte, i int, mem Scratch) error {
	switch {
	case p.heads == nil:
		copy(dst, p.bodies[0])
		return nil
	case p.substreams == 1:
		return p.UnpackSubstream(dst, i, 0)
	}
	from, to := p.Page(i)
	_, err := p.Gather(dst, i, []Run{{uint32(from), uint32(to)}}, mem, nil)
	return err
}

// UnpackSubstream writes what page i has of a substream to dst, which is as long.
func (p *Pages) UnpackSubstream(dst []byte, i, substream int) error {
	body := p.bodies[substream]
	if body == nil {
		return fmt.Errorf("substream %d: %w", substream, ErrMissing)
	}
	start := 0
	if i > 0 {
		start = p.head(i-1, 1+substream)
	}
	got, err := minlz.Decode(dst[:len(dst):len(dst)], body[start:p.head(i, 1+substream)])
	if err == nil && len(got) != len(dst) {
		err = fmt.Errorf("it has %d bytes, not %d", len(got), len(dst))
	}
	if err != nil {
		return fmt.Errorf("unpack substream %d of page %d: %w", substream, i, err)
	}
	return nil
}

// Gather writes what the runs, which are of whole frames and ascend, have of page i to dst, one
// after the other. It returns how many bytes that is. It looks only at the substreams that have
// some of it, and unpacks only those that src, which may be nil, does not have unpacked. The pages
// must have several substreams.
func (p *Pages) Gather(dst []byte, i int, runs []Run, mem Scratch, src SubstreamSource) (n int, err error) {
	sizes, wanted, err := p.wanted(i, runs)
	if err != nil {
		return 0, err
	}
	from, to := p.Page(i)
	room := mem.Take(to - from)
	var left [MaxSubstreams][]byte // what is yet to be read of each substream
	for s := range p.substreams {
		if !wanted[s] {
			continue
		}
		if left[s], err = p.substream(room[:sizes[s]], i, s, src); err != nil {
			return 0, err
		}
		room = room[sizes[s]:]
	}
	wants := runCursor{runs: runs}
	for e, start := endingAfter(p.ends, uint32(from)), uint32(from); start < uint32(to); e++ {
		end := min(p.ends[e], uint32(to))
		if s, size := p.of[e], end-start; wanted[s] {
			if wants.has(start) {
				n += copy(dst[n:], left[s][:size])
			}
			left[s] = left[s][size:]
		}
		start = end
	}
	return n, nil
}

// wanted returns how many bytes of page i each substream has, and which have some of the runs.
func (p *Pages) wanted(i int, runs []Run) (sizes [MaxSubstreams]uint32, wanted [MaxSubstreams]bool, err error) {
	from, to := p.Page(i)
	wants := runCursor{runs: runs}
	for e, start := endingAfter(p.ends, uint32(from)), uint32(from); start < uint32(to); e++ {
		end := min(p.ends[e], uint32(to))
		s := p.of[e]
		if int(s) >= p.substreams {
			return sizes, wanted, fmt.Errorf("event %d is of substream %d, which does not exist", e, s)
		}
		sizes[s] += end - start
		wanted[s] = wanted[s] || wants.has(start)
		start = end
	}
	return sizes, wanted, nil
}

// substream returns what page i has of substream s, as long as dst: as src has it, or else unpacked
// to dst.
func (p *Pages) substream(dst []byte, i, s int, src SubstreamSource) ([]byte, error) {
	if src != nil {
		if b, err := src.Unpacked(i, s, len(dst)); b != nil || err != nil {
			return b, err
		}
		if err := src.Load(s); err != nil {
			return nil, err
		}
	}
	return dst, p.UnpackSubstream(dst, i, s)
}

// FrameStart returns where frame i begins, of frames that end at ends.
func FrameStart(ends []uint32, i int) uint32 {
	if i == 0 {
		return 0
	}
	return ends[i-1]
}

// Run is a run of neighbouring frames, as offsets into the frames.
type Run struct{ From, To uint32 }

// runCursor goes through runs that ascend.
type runCursor struct{ runs []Run }

// has says whether a run covers offset. Offsets ascend from call to call.
func (c *runCursor) has(offset uint32) bool {
	for len(c.runs) > 0 && c.runs[0].To <= offset {
		c.runs = c.runs[1:]
	}
	return len(c.runs) > 0 && c.runs[0].From <= offset
}

// grown is memory that pages borrow: as much as the largest so far.
type grown []byte

func (g *grown) Take(n int) []byte {
	*g = slices.Grow((*g)[:0], n)
	return (*g)[:n]
}

// UnpackFrames returns the frames that end at ends, of the values of a plain part without their
// trailers. They are the first, and those of the other substreams by number. These may be nil: then
// there are none. The result is the caller's.
func UnpackFrames(first []byte, ends []uint32, substreams *[MaxSubstreams][]byte) ([]byte, error) {
	p, err := OpenPages(first, ends)
	if err != nil {
		return nil, err
	}
	for s := 1; substreams != nil && s < MaxSubstreams; s++ {
		b := substreams[s]
		switch {
		case b == nil:
		case s >= p.NumSubstreams():
			return nil, fmt.Errorf("substream %d is given, but there are %d", s, p.NumSubstreams())
		default:
			if err := p.SetSubstream(s, b); err != nil {
				return nil, err
			}
		}
	}
	var mem grown
	frames := make([]byte, p.bytes)
	for at, i := 0, 0; at < p.bytes; i++ {
		from, to := p.Page(i)
		if err := p.unpack(frames[from:to], i, &mem); err != nil {
			return nil, err
		}
		at = to
	}
	return frames, nil
}
