package replay

import (
	"fmt"
	"io"

	"millrace/replay/internal/buffer"
	"millrace/replay/internal/filter"
	"millrace/replay/internal/format"
)

// storedPart is a plain or zstd part of a block that is not in the tail, while it is open: its
// memory is Pebble's. The zero storedPart is closed.
type storedPart struct {
	bs      *blockStore
	x       *blockIndex
	r       format.Range
	key     int64
	closers [format.MaxSubstreams]io.Closer // of the values that it has
	pages   format.Pages                    // a zstd part is one page as it is
	charged int64                           // bytes that the cache is charged; 0: it is not
	// why something that it has not could not be had; reported
	err error
}

// is says whether p is open, and is the part of n bytes of frames that has this range and key.
func (p *storedPart) is(r format.Range, key int64, n int) bool {
	return p.bs != nil && p.r == r && p.key == key && p.pages.Size() == n
}

// openPart opens a part of n bytes of frames; x is its index. Close it.
func (bs *blockStore) openPart(x *blockIndex, r format.Range, key int64, n int) (p storedPart, err error) {
	p = storedPart{bs: bs, x: x, r: r, key: key}
	if h := bs.cfg.hooks.openPart; h != nil {
		h(r, key)
	}
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

// check verifies the part's first value, and reads from it where pages begin.
func (p *storedPart) check(sealed []byte, n int) error {
	body, err := format.OpenTrailer(sealed, p.r, p.key)
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
	return nil
}

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
	body, err := format.OpenTrailer(sealed, p.r, p.key)
	if err == nil {
		err = p.pages.SetSubstream(s, body)
	}
	return p.corrupt(err)
}

// loadFor reads what a reader will want of it whose filter's matcher is m, or all if that is nil;
// p.err says whether it could.
func (p *storedPart) loadFor(m *filter.Matcher) {
	if p.pages.NumSubstreams() < 2 {
		return
	}
	var wanted [format.MaxSubstreams]bool
	for i := 0; m != nil && i < p.x.Events(); i++ {
		if i = m.Next(i); i < p.x.Events() {
			wanted[p.pages.SubstreamOf(i)%format.MaxSubstreams] = true
		}
	}
	for s := range p.pages.NumSubstreams() {
		if (m == nil || wanted[s]) && p.Load(s) != nil {
			return
		}
	}
}

func (p *storedPart) close() {
	for _, c := range p.closers {
		if c != nil {
			_ = c.Close() // the value was read
		}
	}
	if p.charged > 0 {
		p.bs.cache.Charge(-p.charged)
	}
	*p = storedPart{}
}

// sharedSubstreams is how many substreams of a part the cache may have: the first.
const sharedSubstreams = 64

// Unpacked returns a substream of page i from the cache, if a reader looked at it before, as far as
// the index remembers. The first reader gets nil and unpacks it itself: it may be the only one.
func (p *storedPart) Unpacked(i, substream, size int) ([]byte, error) {
	n := i*p.pages.NumSubstreams() + substream
	if n >= sharedSubstreams {
		return nil, nil
	}
	if bit := uint64(1) << n; p.x.touched.Or(bit)&bit == 0 {
		return nil, nil
	}
	mine := false
	v, err := p.bs.cache.Get(cacheKey{block: p.key, part: p.r, substream: n}, func() (v cached, err error) {
		mine = true
		if err := p.Load(substream); err != nil {
			return v, err
		}
		v.data = make([]byte, size)
		return v, p.corrupt(p.pages.UnpackSubstream(v.data, i, substream))
	})
	if mine {
		return v.data, err
	}
	if err == nil && len(v.data) != size {
		return nil, p.corrupt(fmt.Errorf("substream %d of page %d has %d bytes, the index says %d", substream, i, len(v.data), size))
	}
	p.err = err
	return v.data, err
}

// corrupt fails the log for an error, if it is one, of what the part holds, unless it was reported
// already.
func (p *storedPart) corrupt(err error) error {
	if err != nil && p.err == nil {
		p.err = p.bs.corrupt(p.r, p.key, err)
	}
	if err != nil {
		return p.err
	}
	return nil
}

// copyRuns copies the runs, which are of whole frames and ascend, to dst, which is as long as they
// are together. It changes runs.
func (p *storedPart) copyRuns(dst []byte, runs []format.Run) error {
	mem := buffer.Scratch{Least: format.PageBytes}
	defer mem.Free()
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
			runs[0].From = uint32(to) // the rest of the run is in the next page
		}
	}
	return nil
}

// copyPage copies to dst what the runs, the first of which is in page i, want of it, and returns
// how much that is.
func (p *storedPart) copyPage(dst []byte, i int, runs []format.Run, mem *buffer.Scratch) (n int, err error) {
	from, to := p.pages.Page(i)
	data := p.pages.FirstValue() // all frames, if they are stored as they are
	if p.pages.NumSubstreams() > 1 {
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

// wholePages returns how many of the events from i on and before through end with a page. A reader
// of everything takes those, so that it does not unpack a page twice. If that were none of them,
// and must is set, it is all.
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
