package replay

import (
	"fmt"
	"sort"

	"millrace/dict"
	"millrace/replay/internal/ahead"
	"millrace/replay/internal/format"
)

// A chunk may keep blocks alive, by aliasing them, of pinFactor times its own bound. Beyond that,
// matches that are less than 1/pinFactor of their block are copied.
const pinFactor = 4

// selection is which of a block's frames go into the chunk next.
type selection struct {
	runs    []format.Run // where they lie; frames side by side are one run
	events  int
	bytes   int
	through int // the first event that was not looked at
}

// reset selects nothing, from event i on.
func (s *selection) reset(i int) { *s = selection{runs: s.runs[:0], through: i} }

// add selects the frames of events from i on and before through; ends is where frames end.
func (s *selection) add(ends []uint32, i, through int) {
	from, to := format.FrameStart(ends, i), ends[through-1]
	if n := len(s.runs); n > 0 && s.runs[n-1].To == from {
		s.runs[n-1].To = to
	} else {
		s.runs = append(s.runs, format.Run{From: from, To: to})
	}
	s.events += through - i
	s.bytes += int(to - from)
	s.through = through
}

// match puts the matching frames from event i on and before end into the chunk, as far as they fit.
// It returns the first event it did not look at.
func (p *nextCall) match(cand candidate, i, end int) (through int, err error) {
	r, x := p.r, cand.idx
	if cand.blk != nil {
		return p.matchTail(cand.blk, i, end)
	}
	v, limit := r.variant, r.filter.Limit()
	ends := v.storedEnds(x)
	built := ends == nil
	if built { // of the plain ones, whose sizes say nothing of its own
		v, ends, limit = variant{}, x.PlainEnd, 0
	}
	p.choose(frames{ends: ends[:end]}, i, r.maxBytes-p.c.Bytes, limit)
	if r.sel.events == 0 {
		return r.sel.through, nil
	}
	size := int(ends[len(ends)-1])
	if cand.others == 0 {
		r.parts.reached.Store(x.Key())
	}
	sparse := !built && v.dictionary == 0 && cand.others == 0 && r.passing != nil && r.matcher.Sparse()
	part := cand.part(v)
	if sparse {
		part, size = format.RangeZstd, int(x.ZstdEnd[x.Events()-1])
	}
	begun := r.log.blocks.cfg.Monotonic()
	stored, err := r.parts.open(x, part, cand.key(), size)
	if err != nil {
		return i, err
	}
	defer func() {
		// stored stays open otherwise: the next call goes on in it
		if err != nil || through == len(ends) || !r.log.blocks.charge(stored) {
			stored.close()
		}
	}()
	if p.span != nil && cand.others == 0 {
		r.sawLookup(ahead.Lookup{Took: r.log.blocks.cfg.Monotonic() - begun, Bytes: len(stored.pages.FirstValue())}.Slow())
	}
	if sparse {
		return r.sel.through, p.giveSparse(cand, stored, i)
	}
	if p.trimToPages(stored, ends[:end], i); r.sel.events == 0 {
		return r.sel.through, nil
	}
	if built {
		return p.matchBuilt(cand, stored, i, end)
	}
	return r.sel.through, p.give(cand, stored)
}

// matchTail is match for a block that is in the tail.
func (p *nextCall) matchTail(blk *Block, i, end int) (through int, err error) {
	r := p.r
	if r.passing != nil && r.matcher.Next(i) >= end {
		return end, nil
	}
	f, err := p.frames(blk)
	if err != nil {
		return i, err
	}
	f.ends = f.ends[:end]
	p.choose(f, i, r.maxBytes-p.c.Bytes, r.filter.Limit())
	if r.sel.events > 0 {
		p.emit(f.data)
	}
	return r.sel.through, nil
}

// choose selects frames that are wanted, from event i on, as far as they fit in room. limit, if it
// is not 0, is that of a payload's size.
func (p *nextCall) choose(f frames, i, room, limit int) {
	r, must := p.r, p.c.Events == 0
	r.sel.reset(i)
	if r.passing != nil {
		r.choosePassing(f, i, room, limit, must)
	} else if through := fit(f.ends, i, room, must); through > i {
		r.sel.add(f.ends, i, through)
	}
}

// fit returns how far one can go from event i on within room bytes. If must is set, one event
// always fits.
func fit(ends []uint32, i, room int, must bool) (through int) {
	start := int(format.FrameStart(ends, i))
	n := sort.Search(len(ends)-i, func(k int) bool { return int(ends[i+k])-start > room })
	if n == 0 && must {
		n = 1
	}
	return i + n
}

// choosePassing selects the frames that pass the filter, as choose does. If must is set, one of
// them always fits.
func (r *Reader) choosePassing(f frames, i, room, limit int, must bool) {
	ends := f.ends
	for i = r.matcher.Next(i); i < len(ends); i = r.matcher.Next(i + 1) {
		size := int(ends[i] - format.FrameStart(ends, i))
		if f.payloads != nil && limit > 0 && int(f.payloads[i]) > limit || f.payloads == nil && tooLarge(size, limit) {
			continue
		}
		if r.sel.bytes+size > room && !(must && r.sel.events == 0) {
			r.sel.through = i
			return
		}
		r.sel.add(ends, i, i+1)
	}
	r.sel.through = len(ends)
}

// tooLarge says whether the payload of a frame of size bytes is larger than limit, if that is not
// 0.
func tooLarge(size, limit int) bool { return limit > 0 && size-format.FrameHeaderBytes(size) > limit }

// trimToPages reduces what choose selected to whole pages (wholePages), if there is no filter.
func (p *nextCall) trimToPages(stored *storedPart, ends []uint32, i int) {
	r := p.r
	if r.passing != nil && r.passing != r.log.blocks.unfiltered || r.sel.events == 0 {
		return
	}
	switch whole := stored.wholePages(ends, i, r.sel.through, p.c.Events == 0); whole {
	case r.sel.through:
	case i:
		r.sel.reset(i)
	default:
		p.choose(frames{ends: ends[:whole]}, i, r.sel.bytes, 0)
	}
}

// give takes the selected frames out of a stored part.
func (p *nextCall) give(cand candidate, stored *storedPart) error {
	sel := &p.r.sel
	if cand.others == 0 {
		p.lookAhead(cand.idx, stored.pages.StoredBytes())
	}
	b, own := p.c.room(sel.bytes, stored.pages.Size(), p.r.maxBytes)
	if err := stored.copyRuns(b, sel.runs); err != nil {
		return err
	}
	p.c.add(b, own, sel.events)
	return nil
}

// emit adds the selected frames to the chunk. They alias data, or are copied if the chunk would
// keep much more memory alive than it sends.
func (p *nextCall) emit(data []byte) {
	c, sel := p.c, &p.r.sel
	c.Events += sel.events
	c.Bytes += sel.bytes
	c.grows = false
	if p.pinned+len(data) > pinFactor*p.r.maxBytes && sel.bytes < len(data)/pinFactor {
		own := make([]byte, 0, sel.bytes)
		for _, r := range sel.runs {
			own = append(own, data[r.From:r.To]...)
		}
		c.Frames = append(c.Frames, own)
		return
	}
	p.pinned += len(data)
	for _, r := range sel.runs {
		c.Frames = append(c.Frames, data[r.From:r.To:r.To])
	}
}

// A plain part is unpacked in pages. A reader of few events that lie anywhere in a block would
// unpack all of it. So it takes the zstd part, in which each event is by itself, and decompresses
// those.

// giveSparse takes the selected plain frames, of events from i on, out of a stored zstd part.
func (p *nextCall) giveSparse(cand candidate, stored *storedPart, i int) error {
	r, c, x := p.r, p.c, cand.idx
	p.lookAhead(x, stored.pages.StoredBytes())
	dec, err := r.log.cfg.Dictionaries.Decoder(x.Dictionary)
	if err != nil {
		return fmt.Errorf("decompress events of block %d: %w", x.Key(), err)
	}
	b, own := c.room(r.sel.bytes, int(x.PlainEnd[x.Events()-1]), r.maxBytes)
	at := 0
	for e := r.matcher.Next(i); e < r.sel.through; e = r.matcher.Next(e + 1) {
		size := int(x.PlainEnd[e] - format.FrameStart(x.PlainEnd, e))
		if tooLarge(size, r.filter.Limit()) {
			continue
		}
		frame := stored.pages.FirstValue()[format.FrameStart(x.ZstdEnd, e):x.ZstdEnd[e]]
		if err := plainFrame(b[at:at:at+size], frame, size, dec); err != nil {
			return stored.corrupt(fmt.Errorf("event %d: %w", e, err))
		}
		at += size
	}
	c.add(b, own, r.sel.events)
	return nil
}

// plainFrame writes to dst, which is empty and has room for it, the plain frame of size bytes that
// a compressed one is of.
func plainFrame(dst, compressed []byte, size int, dec *dict.Decoder) error {
	dst = format.AppendFrameHeader(dst, format.OpcodeText, size-format.FrameHeaderBytes(size))
	got, err := dec.Append(dst, format.FramePayload(compressed))
	if err == nil && len(got) != size {
		err = fmt.Errorf("it has %d bytes as a plain frame, the index says %d", len(got), size)
	}
	if err == nil {
		copy(dst[:size], got) // onto itself, unless the decoder wanted more room
	}
	return err
}
