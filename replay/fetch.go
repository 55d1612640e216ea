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

// arena is memory of a chunk, or for a page of which not all is wanted.
type arena struct{ b []byte }

// arenas are those that nobody uses. They are all of about the same size: a chunk's, or a page's.
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

// pooled is an arena that is taken when it is needed.
type pooled struct{ a *arena }

// Take returns n bytes, good until the next call or free.
func (l *pooled) Take(n int) []byte {
	if l.a == nil || cap(l.a.b) < n {
		l.a.free()
		l.a = newArena(max(n, format.PageBytes))
	}
	return l.a.b[:n]
}

func (l *pooled) free() {
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
	bs      *blockStore
	x       *blockIndex
	r       format.Range
	key     int64
	closers [format.MaxSubstreams]io.Closer // of the values that it has
	pages   format.Pages                    // a zstd part is one page as it is
	ready   []*arena                        // the pages that were unpacked ahead; nil: none were
	err     error                           // why something that it has not could not be had; told
}

// openPart opens a part of n bytes of frames; x is its index. Close it, or leave it in l.blocks.parked.
func (bs *blockStore) openPart(x *blockIndex, r format.Range, key int64, n int) (p storedPart, err error) {
	if p, ok := bs.parked.take(r, key); ok {
		if p.x = x; p.pages.Size() == n && bs.store.Err() == nil {
			x.checked.Or(p.checkedBit())
			return p, nil
		}
		p.close()
	}
	p = storedPart{bs: bs, x: x, r: r, key: key}
	sealed, closer, err := bs.open(format.TimeKey(r, key), r, key)
	if err != nil {
		return p, err
	}
	p.closers[0] = closer
	if err := p.check(sealed, n); err != nil {
		p.close()
		return p, bs.corrupt(r, key, err)
	}
	return p, nil
}

// open returns the sealed value at storeKey, whose trailer names r and key. It is good until closer is closed.
func (bs *blockStore) open(storeKey []byte, r format.Range, key int64) (sealed []byte, closer io.Closer, err error) {
	sealed, closer, err = bs.store.Get(storeKey)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, nil, bs.missing(r, key)
	case err != nil:
		return nil, nil, bs.readError(r, key, err)
	case len(sealed) == 0:
		return nil, nil, bs.corrupt(r, key, errors.New("it is empty"))
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
	p.pages = format.RawPages(body)
	if p.r == format.RangePlain || p.r == format.RangeCopiesPlain {
		if p.pages, err = format.OpenPages(body, p.x.PlainEnd); err != nil {
			return err
		}
	}
	if p.pages.Size() != n {
		return fmt.Errorf("it has %d bytes, the index says %d", p.pages.Size(), n)
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

// substreamChecked is the bit of substream 0 in an index's checked; those of the others follow.
const substreamChecked = 1 << 16

// Load reads a substream that has a value of its own, unless it was read.
func (p *storedPart) Load(s int) error {
	if p.pages.HasSubstream(s) {
		return nil
	}
	sealed, closer, err := p.bs.open(format.SubstreamKey(p.key, s), p.r, p.key)
	if err != nil {
		p.err = err
		return err
	}
	p.closers[s] = closer
	checked := uint32(substreamChecked) << s
	body, err := p.openTrailer(sealed, checked)
	if err == nil {
		err = p.pages.SetSubstream(s, body)
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
	if p.pages.NumSubstreams() < 2 || f != nil && !m.reset(f, p.x) {
		return
	}
	var wanted [format.MaxSubstreams]bool
	for i := 0; f != nil && i < p.x.Events(); i++ {
		if i = m.next(i); i < p.x.Events() {
			wanted[p.pages.SubstreamOf(i)%format.MaxSubstreams] = true
		}
	}
	for s := range p.pages.NumSubstreams() {
		if (f == nil || wanted[s]) && p.Load(s) != nil {
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

// sharedSubstreams is how many substreams of a part the cache may have: the first.
const sharedSubstreams = 64

// Unpacked returns a substream of page i from the cache, if somebody looked at it before, as far as the index remembers. Who
// comes first unpacks it for himself, nil: he may well be the only one.
func (p *storedPart) Unpacked(i, substream, size int) ([]byte, error) {
	n := i*p.pages.NumSubstreams() + substream
	if n >= sharedSubstreams {
		return nil, nil
	}
	if bit := uint64(1) << n; p.x.touched.Or(bit)&bit == 0 {
		return nil, nil
	}
	e, mine := p.bs.cache.find(cacheKey{block: p.key, part: p.r, substream: n})
	if !mine {
		if e.err == nil && len(e.data) != size {
			return nil, p.corrupt(fmt.Errorf("substream %d of page %d has %d bytes, the index says %d", substream, i, len(e.data), size))
		}
		p.err = e.err
		return e.data, e.err
	}
	defer func() { p.bs.cache.fill(e, int64(len(e.data))) }()
	if e.err = p.Load(substream); e.err != nil {
		return nil, e.err
	}
	e.data = make([]byte, size)
	e.err = p.corrupt(p.pages.UnpackSubstream(e.data, i, substream))
	return e.data, e.err
}

// corrupt fails the log for an error, if it is one, of what the part holds, unless it was told already.
func (p *storedPart) corrupt(err error) error {
	if err != nil && p.err == nil {
		p.err = p.bs.corrupt(p.r, p.key, err)
	}
	if err != nil {
		return p.err
	}
	return nil
}

// copyRuns copies the runs, which are of whole frames and ascend, to dst, which is as long as they are together. It
// changes runs.
func (p *storedPart) copyRuns(dst []byte, runs []format.Run) error {
	var mem pooled
	defer mem.free()
	for len(runs) > 0 {
		i := p.pages.PageAt(int(runs[0].From))
		n, err := p.copyPage(dst, i, runs, &mem)
		if err != nil {
			return err
		}
		dst = dst[n:]
		_, to := p.pages.Page(i)
		for len(runs) > 0 && int(runs[0].To) <= to {
			runs = runs[1:]
		}
		if len(runs) > 0 && int(runs[0].From) < to {
			runs[0].From = uint32(to) // it goes on in the next page
		}
	}
	return nil
}

// copyPage copies to dst what the runs, the first of which is in page i, want of it, and returns how much that is.
func (p *storedPart) copyPage(dst []byte, i int, runs []format.Run, mem *pooled) (n int, err error) {
	from, to := p.pages.Page(i)
	data := p.pages.FirstValue() // as it is, if it is not packed
	if a := p.readyPage(i); a != nil {
		data = a.b
	} else if p.pages.NumSubstreams() > 1 {
		n, err = p.pages.Gather(dst, i, runs, mem, p)
		return n, p.corrupt(err)
	} else if !p.pages.Raw() {
		if data, err = p.Unpacked(i, 0, to-from); err != nil {
			return 0, p.corrupt(err)
		}
	}
	if data == nil && int(runs[0].From) == from && int(runs[0].To) >= to {
		return to - from, p.corrupt(p.pages.UnpackSubstream(dst[:to-from], i, 0))
	}
	if data == nil {
		data = mem.Take(to - from)
		if err := p.corrupt(p.pages.UnpackSubstream(data, i, 0)); err != nil {
			return 0, err
		}
	}
	for _, r := range runs {
		if int(r.From) >= to {
			break
		}
		n += copy(dst[n:], data[int(r.From)-from:min(int(r.To), to)-from])
	}
	return n, nil
}

// wholePages returns how many of the events from i on and before through end with a page. A reader of everything takes
// those, so that it does not unpack a page twice. If that were none of them, and must is set, it is all.
func (p *storedPart) wholePages(ends []uint32, i, through int, must bool) int {
	if p.pages.Raw() || through == len(ends) {
		return through
	}
	page := p.pages.PageAt(int(ends[through-1]))
	end, _ := p.pages.Page(page)
	kept := through
	for kept > i && int(ends[kept-1]) > end {
		kept--
	}
	if kept == i && must || kept > 0 && int(ends[kept-1]) != end {
		return through // all of one page, or of one large event
	}
	return kept
}
