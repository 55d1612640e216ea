package replay

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
)

// Frames of a block on disk go straight from what Pebble holds in its cache to the memory of the chunk that they
// are given in: unpacked, or copied. That memory is used again for the next chunk. So a reader of everything costs no
// allocation and no more memory than its chunk, and stays in the processor's caches. What several readers unpack
// goes to the log's cache, from the second one on: see storedPart.unpacked. What was unpacked ahead for a reader is
// given to the chunk as it is: see ready.go.

// arena is memory of a chunk, or for a piece of which not all is wanted.
type arena struct{ b []byte }

// arenas are those that nobody uses. They are all of about the same size: a chunk's, or a piece's.
var arenas = sync.Pool{New: func() any { return new(arena) }}

// maxKeptArena bounds what goes back to arenas.
const maxKeptArena = 1 << 20

// newArena returns an empty one with room for n bytes.
func newArena(n int) *arena {
	a := arenas.Get().(*arena)
	if cap(a.b) < n {
		a.b = make([]byte, 0, n)
	}
	a.b = a.b[:0]
	return a
}

func (a *arena) free() {
	if a != nil && cap(a.b) <= maxKeptArena {
		arenas.Put(a)
	}
}

// loan is an arena that is taken when it is needed.
type loan struct{ a *arena }

// bytes returns n bytes, good until the next call or free.
func (l *loan) bytes(n int) []byte {
	if l.a == nil || cap(l.a.b) < n {
		l.a.free()
		l.a = newArena(max(n, pieceBytes))
	}
	return l.a.b[:n]
}

func (l *loan) free() {
	l.a.free()
	l.a = nil
}

// sparseShare: matches that are less than this share of their block do not get an arena, but memory of their own.
const sparseShare = 64

// room returns n bytes for frames of a block of so many bytes; maxBytes is the chunk's bound. What is written there is
// the chunk's only with add. own says whether they are of its arena.
func (c *Chunk) room(n, blockBytes, maxBytes int) (b []byte, own bool) {
	if c.arena == nil && n >= blockBytes/sparseShare {
		c.arena = newArena(max(maxBytes, n))
	}
	if c.arena == nil || cap(c.arena.b)-len(c.arena.b) < n { // few, or one large event
		return make([]byte, n), false
	}
	start := len(c.arena.b)
	return c.arena.b[start : start+n : start+n], true
}

// add adds what room returned to the frames: to the last slice of them, if it ends there.
func (c *Chunk) add(b []byte, own bool) {
	last := len(c.Frames) - 1
	if own {
		a := c.arena
		a.b = a.b[:len(a.b)+len(b)]
		if c.grows {
			c.Frames[last] = a.b[len(a.b)-len(b)-len(c.Frames[last]) : len(a.b) : len(a.b)]
			return
		}
	}
	c.Frames, c.grows = append(c.Frames, b), own
}

// storedPart is a plain or zstd part of a block that is not in the tail, for as long as a call of Next takes, or until the next
// one comes for it where it was parked: its memory is Pebble's.
type storedPart struct {
	l       *Log
	x       *index
	r       format.Range
	key     int64
	closers [format.MaxSubstreams]io.Closer // of the values that it has
	packed  packed                          // a zstd part is one piece as it is
	ready   []*arena                        // the pieces that were unpacked ahead; nil: none were
	err     error                           // why something that it has not could not be had; told
}

// openPart opens a part of n bytes of frames; x is its index. Close it, or leave it in l.parked.
func (l *Log) openPart(x *index, r format.Range, key int64, n int) (p storedPart, err error) {
	if p, ok := l.parked.take(r, key); ok {
		if p.x = x; p.packed.bytes == n && l.store.Err() == nil {
			x.checked.Or(p.checkedBit())
			return p, nil
		}
		p.close()
	}
	p = storedPart{l: l, x: x, r: r, key: key}
	sealed, closer, err := l.open(format.TimeKey(r, key), r, key)
	if err != nil {
		return p, err
	}
	p.closers[0] = closer
	if err := p.check(sealed, n); err != nil {
		p.close()
		return p, l.corrupt(r, key, err)
	}
	return p, nil
}

// open returns the sealed value at storeKey, whose trailer names r and key. It is good until closer is closed.
func (l *Log) open(storeKey []byte, r format.Range, key int64) (sealed []byte, closer io.Closer, err error) {
	sealed, closer, err = l.store.Get(storeKey)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, nil, l.missing(r, key)
	case err != nil:
		return nil, nil, l.readError(r, key, err)
	case len(sealed) == 0:
		return nil, nil, l.corrupt(r, key, errors.New("it is empty"))
	}
	return sealed, closer, nil
}

// check looks at the first value.
func (p *storedPart) check(sealed []byte, n int) error {
	checked := p.checkedBit()
	body, err := p.openTrailer(sealed, checked)
	if err != nil {
		return err
	}
	p.packed = packed{bytes: len(body), bodies: [format.MaxSubstreams][]byte{body}}
	if p.r == format.RangePlain || p.r == format.RangeCopiesPlain {
		if p.packed, err = openPacked(body, p.x.plainEnd); err != nil {
			return err
		}
	}
	if p.packed.bytes != n {
		return fmt.Errorf("it has %d bytes, the index says %d", p.packed.bytes, n)
	}
	p.x.checked.Or(checked)
	return nil
}

// checkedBit is the part's bit in its index's checked.
func (p *storedPart) checkedBit() uint32 { return 1 << (p.r & 0xf) }

// OpenTrailer is OpenTrailer for a value with the given bit in the index's checked. Its checksum, which is over all of it, is
// computed once for as long as the index is in the cache: Pebble has one of its own for what comes from the disk again.
func (p *storedPart) openTrailer(sealed []byte, checked uint32) ([]byte, error) {
	if p.x.checked.Load()&checked != 0 && len(sealed) >= format.TrailerBytes {
		return sealed[:len(sealed)-format.TrailerBytes], nil
	}
	return format.OpenTrailer(sealed, p.r, p.key)
}

// strandChecked is the bit of strand 0 in an index's checked; those of the others follow.
const strandChecked = 1 << 16

// load reads a strand that has a value of its own, unless it was read.
func (p *storedPart) load(s int) error {
	if p.packed.bodies[s] != nil {
		return nil
	}
	sealed, closer, err := p.l.open(format.SubstreamKey(p.key, s), p.r, p.key)
	if err != nil {
		p.err = err
		return err
	}
	p.closers[s] = closer
	checked := uint32(strandChecked) << s
	body, err := p.openTrailer(sealed, checked)
	if err == nil {
		err = p.packed.setStrand(s, body)
	}
	if err != nil {
		return p.corrupt(err)
	}
	p.x.checked.Or(checked)
	return nil
}

// loadFor reads what a reader with that filter will want of it; p.err says whether it could.
func (p *storedPart) loadFor(f *Filter) {
	var m matcher
	if p.packed.strands < 2 || f != nil && !m.reset(f, p.x) {
		return
	}
	var wanted [format.MaxSubstreams]bool
	for i := 0; f != nil && i < len(p.packed.of); i++ {
		if i = m.next(i); i < len(p.packed.of) {
			wanted[p.packed.of[i]%format.MaxSubstreams] = true
		}
	}
	for s := range p.packed.strands {
		if (f == nil || wanted[s]) && p.load(s) != nil {
			return
		}
	}
}

func (p *storedPart) close() {
	p.dropReady()
	for i, c := range p.closers {
		if c != nil {
			_ = c.Close() // the value was read
			p.closers[i] = nil
		}
	}
}

// sharedStrands is how many strands of a part the cache may have: the first.
const sharedStrands = 64

// unpacked returns a strand of piece i from the cache, if somebody looked at it before, as far as the index remembers. Who
// comes first unpacks it for himself, nil: he may well be the only one.
func (p *storedPart) unpacked(i, strand, size int) ([]byte, error) {
	n := i*p.packed.strands + strand
	if n >= sharedStrands {
		return nil, nil
	}
	if bit := uint64(1) << n; p.x.touched.Or(bit)&bit == 0 {
		return nil, nil
	}
	e, mine := p.l.cache.find(cacheKey{block: p.key, part: p.r, strand: n})
	if !mine {
		if e.err == nil && len(e.data) != size {
			return nil, p.corrupt(fmt.Errorf("strand %d of piece %d has %d bytes, the index says %d", strand, i, len(e.data), size))
		}
		p.err = e.err
		return e.data, e.err
	}
	defer func() { p.l.cache.fill(e, int64(len(e.data))) }()
	if e.err = p.load(strand); e.err != nil {
		return nil, e.err
	}
	e.data = make([]byte, size)
	e.err = p.corrupt(p.packed.unpackStrand(e.data, i, strand))
	return e.data, e.err
}

// corrupt fails the log for an error, if it is one, of what the part holds, unless it was told already.
func (p *storedPart) corrupt(err error) error {
	if err != nil && p.err == nil {
		p.err = p.l.corrupt(p.r, p.key, err)
	}
	if err != nil {
		return p.err
	}
	return nil
}

// copyRuns copies the runs, which are of whole frames and ascend, to dst, which is as long as they are together. It
// changes runs.
func (p *storedPart) copyRuns(dst []byte, runs []run) error {
	var mem loan
	defer mem.free()
	for len(runs) > 0 {
		i := p.packed.pieceAt(int(runs[0].from))
		n, err := p.copyPiece(dst, i, runs, &mem)
		if err != nil {
			return err
		}
		dst = dst[n:]
		_, to := p.packed.piece(i)
		for len(runs) > 0 && int(runs[0].to) <= to {
			runs = runs[1:]
		}
		if len(runs) > 0 && int(runs[0].from) < to {
			runs[0].from = uint32(to) // it goes on in the next piece
		}
	}
	return nil
}

// copyPiece copies to dst what the runs, the first of which is in piece i, want of it, and returns how much that is.
func (p *storedPart) copyPiece(dst []byte, i int, runs []run, mem *loan) (n int, err error) {
	from, to := p.packed.piece(i)
	data := p.packed.bodies[0] // as it is, if it is not packed
	if a := p.readyPiece(i); a != nil {
		data = a.b
	} else if p.packed.strands > 1 {
		n, err = p.packed.gather(dst, i, runs, mem, p)
		return n, p.corrupt(err)
	} else if p.packed.heads != nil {
		if data, err = p.unpacked(i, 0, to-from); err != nil {
			return 0, p.corrupt(err)
		}
	}
	if data == nil && int(runs[0].from) == from && int(runs[0].to) >= to {
		return to - from, p.corrupt(p.packed.unpackStrand(dst[:to-from], i, 0))
	}
	if data == nil {
		data = mem.bytes(to - from)
		if err := p.corrupt(p.packed.unpackStrand(data, i, 0)); err != nil {
			return 0, err
		}
	}
	for _, r := range runs {
		if int(r.from) >= to {
			break
		}
		n += copy(dst[n:], data[int(r.from)-from:min(int(r.to), to)-from])
	}
	return n, nil
}

// wholePieces returns how many of the events from i on and before through end with a piece. A reader of everything takes
// those, so that it does not unpack a piece twice. If that were none of them, and must is set, it is all.
func (p *storedPart) wholePieces(ends []uint32, i, through int, must bool) int {
	if p.packed.heads == nil || through == len(ends) {
		return through
	}
	piece := p.packed.pieceAt(int(ends[through-1]))
	end, _ := p.packed.piece(piece)
	kept := through
	for kept > i && int(ends[kept-1]) > end {
		kept--
	}
	if kept == i && must || kept > 0 && int(ends[kept-1]) != end {
		return through // all of one piece, or of one large event
	}
	return kept
}
