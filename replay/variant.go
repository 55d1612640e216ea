package replay

import (
	"fmt"
	"slices"

	"millrace/replay/internal/buffer"
	"millrace/replay/internal/format"
)

// variant is one of the forms that a block's events are sent in.
type variant struct {
	extended   bool
	references bool   // extended, too, or v2
	v2         bool   // of Jetstream v2's wire; not extended
	dictionary uint32 // 0: uncompressed
}

// candidate is a block that a reader looks at: its index and, if it is in the tail, the rest of it.
type candidate struct {
	idx *blockIndex
	blk *Block // nil: not in the tail

	// others is the key of the span whose copies of identity and account events idx is of; 0: of a
	// block. Of them only those before event end are looked at; what comes next is at stamp next.
	others int64
	end    int
	next   int64

	// skip, if idx is nil, is the point up to which nothing passes the filter; zero: the log ends
	// here.
	skip format.Point
}

// bounds returns how many of the events must be looked at, and the stamp where to go on after
// them.
func (s candidate) bounds() (end int, next int64) {
	if s.others != 0 {
		return s.end, s.next
	}
	return s.idx.Events(), s.idx.Key() + 1
}

// key is the key that the parts are stored under.
func (s candidate) key() int64 {
	if s.others != 0 {
		return s.others
	}
	return s.idx.Key()
}

// storedEnds returns where the frames of a stored variant end; nil if v is not one of the block's.
func (v variant) storedEnds(x *blockIndex) []uint32 {
	switch {
	case v.extended, v.v2:
		return nil
	case v.dictionary == 0:
		return x.PlainEnd
	case v.dictionary == x.Dictionary:
		return x.ZstdEnd
	}
	return nil
}

// part is the range of the part that has the frames of a stored variant.
func (s candidate) part(v variant) format.Range {
	r := format.RangePlain
	if v.dictionary != 0 {
		r = format.RangeZstd
	}
	if s.others != 0 {
		r += format.RangeCopiesPlain - format.RangePlain
	}
	return r
}

// frames returns the frames of a block of the tail. A variant that is not stored comes from the
// cache. The first reader that wants one builds it. The result is immutable and shared.
func (p *nextCall) frames(blk *Block) (frames, error) {
	l, v, x := p.r.log, p.r.variant, blk.idx
	v.references = v.references && blk.refs != nil
	switch ends := v.storedEnds(x); {
	case ends != nil && v.dictionary == 0:
		return frames{data: blk.plain, ends: ends}, nil
	case ends != nil:
		return frames{data: blk.zstd, ends: ends}, nil
	}
	shared, err := l.blocks.cache.Get(cacheKey{block: x.Key(), first: x.TimeUS[0], variant: v}, func() (built cached, err error) {
		b, err := p.newFrameBuilder(x)
		if err == nil && v.references {
			b.References = p.frameReferences(blk.refs)
			err = p.readStrings(b.References, x, 0, x.Events(), func(i int) int { return i })
		}
		if err != nil {
			return built, err
		}
		built.data, built.ends = b.All(blk.plain)
		built.payloads = b.Payloads
		l.metrics.variants.Inc()
		l.metrics.v2Dropped.Add(float64(b.Dropped))
		return built, nil
	})
	return shared.frames, err
}

// newFrameBuilder returns one of the reader's variant.
func (p *nextCall) newFrameBuilder(x *blockIndex) (b format.FrameBuilder, err error) {
	v := p.r.variant
	b = format.FrameBuilder{Ends: x.PlainEnd, Stream: p.s.streams.Tag(x.Epoch)}
	if v.extended {
		b.Extended = x.full
	}
	if v.v2 {
		b.V2, b.SeqBase = x.SlimIndex, p.s.streams.SeqBase(x.Epoch)
	}
	if v.dictionary != 0 {
		if b.Compressor, err = p.r.log.cfg.Dictionaries.Encoder(v.dictionary); err != nil {
			return b, fmt.Errorf("build a variant of block %d: %w", x.Key(), err)
		}
	}
	return b, nil
}

// frameReferences returns the references of a block as frames have them, without strings.
func (p *nextCall) frameReferences(refs *format.References) *format.FrameReferences {
	return format.NewFrameReferences(refs, func(number uint32) string {
		source, _ := p.r.log.blocks.sources.Source(number) // the log has given the number
		return source
	})
}

// stringsStep is how many UIDs Config.Strings is given at once, at most.
const stringsStep = 10_000

// readStrings reads the strings of the subjects that events of a block refer to: of those from i on
// and before through that next chooses.
func (p *nextCall) readStrings(refs *format.FrameReferences, x *blockIndex, i, through int, next func(i int) int) error {
	var wanted []uint32
	for i = next(i); i < through; i = next(i + 1) {
		for _, e := range refs.Entries(i) {
			if refs.Strings[e.Subject] == "" {
				wanted = append(wanted, e.Subject)
			}
		}
	}
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	for part := range slices.Chunk(wanted, stringsStep) {
		uids, strings := make([]uint64, len(part)), make([]string, len(part))
		for j, s := range part {
			uids[j] = refs.Subjects[s].UID
		}
		if err := p.r.log.cfg.Strings(uids, strings); err != nil {
			return fmt.Errorf("read what block %d refers to: %w", x.Key(), err)
		}
		for j, s := range part {
			refs.Strings[s] = strings[j]
		}
	}
	return nil
}

// nextPassing returns the first event of the matcher's block from i on that the filter passes,
// sizes apart.
func (r *Reader) nextPassing(i int) int {
	if r.passing == nil {
		return i
	}
	return r.matcher.Next(i)
}

// A chunk of a variant that is not stored takes pages of plain frames, as readers of the plain
// variant do, so that few are unpacked twice. Its own frames may be larger. So it holds up to
// half more than its bound, and is full when less than a quarter of that is left.
const minBuildShare = 4

// builtBound bounds a chunk of a variant that is not stored, but for a single larger event.
func (r *Reader) builtBound() int { return r.maxBytes + r.maxBytes/2 }

// matchBuilt is match for a variant that is not stored. It builds frames from the stored plain
// ones, into the chunk's own memory, so that the chunk keeps no large block. It begins with the
// plain frames that are selected.
func (p *nextCall) matchBuilt(cand candidate, stored *storedPart, i, end int) (int, error) {
	r := p.r
	b, err := p.newFrameBuilder(cand.idx)
	if err != nil {
		return i, err
	}
	defer func() { r.log.metrics.v2Dropped.Add(float64(b.Dropped)) }()
	if cand.others == 0 {
		p.lookAhead(cand.idx, stored.pages.StoredBytes())
	}
	if r.variant.references && cand.idx.HasReferences {
		refs, err := r.log.blocks.referencesOf(cand.idx)
		if err != nil {
			return i, err
		}
		b.References = p.frameReferences(refs)
	}
	first := i
	failed := func(err error) (int, error) {
		if i > first {
			err = nil // what was built is good; the error comes again with the next call
		}
		return i, err
	}
	mem := buffer.Scratch{Least: format.PageBytes}
	defer mem.Free()
	for {
		plain, through := mem.Take(r.sel.bytes), r.sel.through
		if err := stored.copyRuns(plain, r.sel.runs); err != nil {
			return failed(err)
		}
		if b.References != nil {
			if err := p.readStrings(b.References, cand.idx, i, through, r.nextPassing); err != nil {
				return failed(err)
			}
		}
		if i = p.buildFrames(&b, plain, i, through); i < through || i == end {
			return i, nil
		}
		if r.maxBytes-p.c.Bytes < r.maxBytes/minBuildShare {
			return i, nil
		}
		p.choose(frames{ends: b.Ends[:end]}, i, r.maxBytes, 0)
		if p.trimToPages(stored, b.Ends[:end], i); r.sel.events == 0 {
			return r.sel.through, nil
		}
	}
}

// buildFrames puts into the chunk the frames of those events from i on and before through that the
// filter passes, until one does not fit. Then it returns that. plain has their plain frames.
func (p *nextCall) buildFrames(b *format.FrameBuilder, plain []byte, i, through int) int {
	r, c := p.r, p.c
	if c.buffer == nil {
		c.buffer = buffer.Take(max(r.builtBound(), len(plain)+format.ExtraBytes))
	}
	for ; i < through; i++ {
		if i = r.nextPassing(i); i >= through {
			break
		}
		n := int(b.Ends[i] - format.FrameStart(b.Ends, i))
		room := c.buffer.B[len(c.buffer.B):cap(c.buffer.B)]
		frame := b.Append(room[:0], i, plain[:n])
		if c.Events > 0 && c.Bytes+len(frame) > r.builtBound() {
			return i
		}
		plain = plain[n:]
		if len(frame) == 0 || r.outsized(b, len(frame)) {
			continue
		}
		if len(frame) <= len(room) {
			if &frame[0] != &room[0] { // the encoder wanted more room
				copy(room, frame)
			}
			frame = room[:len(frame)]
		}
		c.add(frame, len(frame) <= len(room), 1)
	}
	return through
}

// outsized says whether a frame of size bytes that b has built is beyond the filter's limit.
func (r *Reader) outsized(b *format.FrameBuilder, size int) bool {
	limit := r.filter.Limit()
	if r.variant.v2 {
		return limit > 0 && b.PayloadBytes > limit
	}
	return tooLarge(size, limit)
}
