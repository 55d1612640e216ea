package replay

import (
	"sync/atomic"

	"millrace/replay/internal/format"
)

// A reader of everything that unpacks all that it sends keeps one core busy, and those who read ahead for it only a
// part of another. So they unpack for it as well, pages that its chunk takes over without copying. They begin at the end of
// a block and end when the reader has come to it: he begins at the other end, and finds the rest ready.

// prepare unpacks a part's pages, the last first, until reached says that their reader has come to the block. The part must
// have all substreams.
func (p *storedPart) prepare(reached *atomic.Int64) {
	n := p.pages.NumPages()
	if n == 0 {
		return
	}
	var mem scratch
	defer mem.free()
	if p.ready == nil {
		p.ready = make([]*pooledBuffer, n)
	}
	for i := n - 1; i >= 0 && reached.Load() < p.x.Key(); i-- {
		if p.ready[i] != nil {
			continue // another reader's
		}
		from, to := p.pages.Page(i)
		a := takeBuffer(to - from)
		a.b = a.b[:to-from]
		if p.pages.Unpack(a.b, i, &mem, nil) != nil {
			a.free()
			return // the reader meets it itself
		}
		p.ready[i] = a
	}
}

// readyPage returns page i, if it is ready.
func (p *storedPart) readyPage(i int) *pooledBuffer {
	if p.ready == nil {
		return nil
	}
	return p.ready[i]
}

// lend gives the pages of a run to c, if it is of whole ones that are ready.
func (p *storedPart) lendReady(c *Chunk, r format.Run) bool {
	if p.ready == nil {
		return false
	}
	first := p.pages.PageAt(int(r.From))
	i, at := first, int(r.From)
	for ; at < int(r.To); i++ {
		from, to := p.pages.Page(i)
		if p.ready[i] == nil || from != at || to > int(r.To) {
			return false
		}
		at = to
	}
	for ; first < i; first++ {
		a := p.ready[first]
		p.ready[first] = nil
		c.borrowed = append(c.borrowed, a)
		c.Frames, c.grows = append(c.Frames, a.b), false
	}
	return true
}

// takeReady takes what from, which is of the same part, has ready.
func (p *storedPart) takeReady(from *storedPart) {
	if p.ready == nil {
		p.ready, from.ready = from.ready, nil
	}
	for i, a := range from.ready {
		if p.ready[i] == nil {
			p.ready[i], from.ready[i] = a, nil
		}
	}
}

// dropReady gives up what is ready, and says whether anything was.
func (p *storedPart) dropReady() (some bool) {
	for _, a := range p.ready {
		some = some || a != nil
		a.free()
	}
	p.ready = nil
	return some
}
