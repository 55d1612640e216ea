package replay

import (
	"cmp"
	"errors"
	"fmt"

	"millrace/replay/internal/ahead"
	"millrace/replay/internal/filter"
	"millrace/replay/internal/format"
	"millrace/translate"
)

const (
	// defaultChunkBytes is a chunk's bound if ReaderConfig names none.
	defaultChunkBytes = 256 << 10
	// maxBlocksPerNext bounds the blocks that one call of Next looks at, so that the caller can
	// keep its deadlines though the filter passes little.
	maxBlocksPerNext = 256
	// maxKeptRuns bounds the scratch memory that a reader keeps between calls.
	maxKeptRuns = 1024
)

// ReaderConfig says what a reader starts with.
type ReaderConfig struct {
	Cursor     Cursor
	Filter     *Filter // nil: everything but #sync events
	Extended   bool    // events carry their cursor and UIDs
	V2         bool    // or are those of Jetstream v2's wire
	References bool    // their references, too, which takes Config.Strings; extended unless V2
	Dictionary uint32  // ID of the dictionary to compress with; 0: plain text frames
	// MaxChunkBytes bounds a chunk, but for a single larger event; 0: 256 KiB. Of a variant that is
	// not stored a chunk may hold half more.
	MaxChunkBytes int
}

// Reader reads the log from a cursor on. One goroutine uses it, and closes it. Between calls of
// Next it may hold the block open that the last one ended in: see Release.
type Reader struct {
	log      *Log
	filter   *Filter // nil: everything but #sync events passes
	passing  *Filter // applies to the block at hand; nil: all of that passes
	variant  variant
	maxBytes int

	readerPlace
	planner
	matcher filter.Matcher
	sel     selection // scratch of a call of Next
	parts   openParts
	block   int64 // key of the block on disk that it found last without a span; 0: none
	closed  bool
}

// readerPlace is where a reader is.
type readerPlace struct {
	next    int64 // the first stamp that was not looked at
	gapNext int64 // the first stamp whose gap was not given; next, or more after a gap was
	through Point

	// after is the position cursor's place. Nothing at or before it is given, even if it comes only
	// now, because the cursor was ahead of the log. Zero once it is of no use.
	after         format.Place
	afterPosition translate.Position

	clamped bool
	oldest  Point
	atFloor bool // nothing was looked at yet, and the reader started at the oldest event
}

// planner is where a selective reader goes next, and how far it is ahead of itself.
type planner struct {
	plan    plan   // for the span that the reader is in
	coming  []plan // for those after it, as far as it looked; at most ahead.MaxLookups
	depth   ahead.Depth
	aheadTo int64 // from where on the last block begins that was read ahead
}

// NewReader makes a reader, which the caller closes. Errors: ErrUnknownStream, ErrTooOld,
// ErrV2Seqs, errUnknownDictionary, ErrClosed, *CorruptionError.
func (l *Log) NewReader(cfg ReaderConfig) (*Reader, error) {
	l.blocks.storeMu.RLock()
	defer l.blocks.storeMu.RUnlock()
	s := l.snap.Load()
	if s.err != nil {
		return nil, s.err
	}
	if cfg.V2 && s.Newest.Seq > 0 && !s.streams.HasV2Seq(s.Newest.Place) {
		return nil, ErrV2Seqs
	}
	if cfg.Dictionary != 0 {
		if _, ok := l.cfg.Dictionaries.Get(cfg.Dictionary); !ok {
			return nil, fmt.Errorf("%w: %d (new events are stored with %d)", errUnknownDictionary, cfg.Dictionary, l.stored.ID())
		}
	}
	if cfg.References && l.cfg.Strings == nil {
		return nil, errors.New("the reader wants references, but the log's Config.Strings is not set")
	}
	r := &Reader{
		log:      l,
		variant:  variant{extended: !cfg.V2 && (cfg.Extended || cfg.References), references: cfg.References, v2: cfg.V2, dictionary: cfg.Dictionary},
		maxBytes: cmp.Or(cfg.MaxChunkBytes, defaultChunkBytes),
		parts:    openParts{bs: l.blocks},
	}
	r.SetFilter(cfg.Filter)
	err := r.seek(s, cfg.Cursor)
	for errors.Is(err, ErrTrimmed) {
		// A trim came between: the cursor is older than the log now.
		s = l.snap.Load()
		err = r.seek(s, cfg.Cursor)
	}
	if err != nil {
		return nil, err
	}
	l.blocks.readers.Store(r, nil)
	l.metrics.readers.Inc()
	return r, nil
}

// SetFilter replaces the filter (nil: everything but #sync events), from the next event on.
func (r *Reader) SetFilter(f *Filter) {
	r.filter, r.plan, r.coming, r.aheadTo = f, plan{}, nil, 0
	if f.IsDefault() {
		r.filter = nil
	}
}

// filterFor returns the filter to apply to a block; nil: all of it passes.
func (r *Reader) filterFor(x *blockIndex) *Filter {
	f := cmp.Or(r.filter, r.log.blocks.unfiltered)
	if f.MatchesAll(x.Kinds) {
		return nil
	}
	return f
}

// Clamped says whether the cursor was older than the log. The point is that of the oldest event,
// where the reader started instead (zero if the log was empty). It is settled by NewReader: a
// position that is older than a log that begins only later shows as a Chunk's Gap.
func (r *Reader) Clamped() (oldest Point, clamped bool) { return r.oldest, r.clamped }

// Before says whether the reader has yet to look at what is stamped us or earlier.
func (r *Reader) Before(us int64) bool { return r.next <= us }

// Next overwrites c with what comes next. It may read the disk but never waits for new events.
// Errors: ErrTrimmed, ErrClosed, ErrFailed, *CorruptionError. After one, c has neither frames nor a
// gap, and the reader has passed over nothing for it.
func (r *Reader) Next(c *Chunk) error {
	c.Reset()
	if r.closed {
		return errReaderClosed
	}
	l := r.log
	l.blocks.storeMu.RLock()
	defer l.blocks.storeMu.RUnlock()
	s := l.snap.Load()
	if s.err != nil {
		return s.err
	}
	if r.next <= s.Floor.TimeUS {
		if !r.atFloor {
			l.metrics.readersTrimmed.Inc()
			return ErrTrimmed
		}
		// It asked for the oldest event, and no reader knows yet which that is.
		r.startAtFloor(s)
	}
	c.Gap = r.beginGap(s)
	err := r.readSnapshot(s, c)
	for errors.Is(err, ErrTrimmed) && r.atFloor && c.Events == 0 {
		// A trim came between. No reader knows yet which event is the oldest.
		s = l.snap.Load()
		r.startAtFloor(s)
		err = r.readSnapshot(s, c)
	}
	if r.next > r.parts.part.key { // the filter passes nothing of its rest
		r.parts.part.close()
	}
	c.Through = r.through
	if r.after != (format.Place{}) {
		c.Through.Position = r.afterPosition // the log is still behind it
	}
	if cap(r.sel.runs) > maxKeptRuns {
		r.sel.runs = nil
	}
	if err != nil && c.Events == 0 && c.Gap == nil {
		if errors.Is(err, ErrTrimmed) {
			l.metrics.readersTrimmed.Inc()
		}
		return err
	}
	// What came before an error is good. The error comes again with the next call.
	return nil
}

// readSnapshot looks at what s has from r.next on.
func (r *Reader) readSnapshot(s *snapshot, c *Chunk) error {
	p := nextCall{r: r, c: c, s: s, scan: blockScan{bs: r.log.blocks, slim: r.slimIndexSuffices()}}
	defer p.scan.close()
	r.log.blocks.activeScans.Add(1)
	defer r.log.blocks.activeScans.Add(-1)
	return p.run()
}

// slimIndexSuffices says whether the slim indexes of blocks have all that the reader needs of their
// indexes.
func (r *Reader) slimIndexSuffices() bool {
	return !r.variant.extended && (r.filter == nil || !r.filter.ByDID())
}

// beginGap returns the gap between the awaited position and the first event of a log that turned
// out to begin after it. It is nil if there is none, or no event yet. NewReader would have clamped
// the cursor, but then the log had not begun.
func (r *Reader) beginGap(s *snapshot) *Gap {
	if r.after == (format.Place{}) || s.Oldest == (format.Point{}) || !r.after.Before(s.Floor.Place) {
		return nil
	}
	first := s.export(s.Oldest)
	g := &Gap{From: r.afterPosition, To: first.Position, TimeUS: first.TimeUS}
	r.through = Point{first.TimeUS - 1, r.afterPosition}
	r.after = format.Place{} // all there is comes after it
	return g
}

// nextCall is one call of Next.
type nextCall struct {
	r    *Reader
	c    *Chunk
	s    *snapshot
	scan blockScan

	span  *format.Span // that the last block was found in; nil: it was found without
	block int          // and its number there

	steps  int // blocks and spans looked at
	pinned int // bytes of the blocks that the chunk's slices alias
}

// run goes from block to block until the chunk is full or ends for another reason.
func (p *nextCall) run() error {
	r, c, s := p.r, p.c, p.s
	for ; p.steps < maxBlocksPerNext; p.steps++ {
		cand, err := p.find()
		if err != nil {
			return err
		}
		limit := s.TimeUS
		switch {
		case cand.idx != nil:
			limit = cand.idx.TimeUS[cand.idx.FirstAt(r.next)]
		case cand.skip != (format.Point{}):
			limit = cand.skip.TimeUS
		}
		if done := p.gap(limit); done {
			return nil
		}
		if cand.skip != (format.Point{}) {
			r.skip(s.export(cand.skip))
			continue
		}
		if cand.idx == nil {
			r.next = max(r.next, s.TimeUS+1)
			r.gapNext = max(r.gapNext, r.next)
			r.through = s.end()
			c.Live = true
			return nil
		}
		full, err := p.take(cand)
		if err != nil || full {
			return err
		}
	}
	return nil
}

// find returns the block that has the first event from r.next on; an empty candidate at the end.
func (p *nextCall) find() (candidate, error) {
	r, s := p.r, p.s
	if r.next > s.beforeTail.TimeUS {
		i := s.tailIndex(r.next)
		if i == len(s.tail) {
			return candidate{}, nil
		}
		return candidate{idx: s.tail[i].idx, blk: s.tail[i]}, nil
	}
	// A reader that waits for its position looks at all blocks until it has found it.
	if r.next <= s.spanned && r.filter.Selective() && r.after == (format.Place{}) {
		return p.findSpan()
	}
	p.span = nil
	x, err := p.findBlock()
	return candidate{idx: x}, err
}

// findBlock is find for a block on disk. Most often it is the one that the last chunk ended in, or
// the one after that, which was read ahead. Then the cache has it.
func (p *nextCall) findBlock() (*blockIndex, error) {
	r := p.r
	if p.scan.before == nil && r.block != 0 {
		if v, ok := r.log.blocks.cache.Peek(cacheKey{block: r.block, part: p.scan.part()}); ok {
			if v.idx.Key() >= r.next {
				return v.idx, nil
			}
			p.scan.before = v.idx
		}
	}
	x, err := p.scan.find(p.s, r.next)
	if err != nil {
		return nil, err
	}
	r.block, p.scan.before = x.Key(), x
	return x, nil
}

// skip goes on after m, up to which nothing passes the filter.
func (r *Reader) skip(m Point) {
	r.next = m.TimeUS + 1
	r.gapNext = max(r.gapNext, r.next)
	r.through = m
	r.atFloor = false
}

// gap takes the next gap that lies at or before limit into the chunk. It returns true if the chunk
// must end before the gap.
func (p *nextCall) gap(limit int64) (done bool) {
	r, c := p.r, p.c
	for {
		g, ok := p.s.gapAt(r.gapNext)
		if !ok || g.TimeUS > limit {
			return false
		}
		if r.beforeCursor(p.s, g) {
			r.gapNext = g.TimeUS + 1
			continue
		}
		if c.Events > 0 || c.Gap != nil {
			return true
		}
		c.Gap = g
		r.atFloor = false
		r.next, r.gapNext = g.TimeUS, g.TimeUS+1
		if r.through.TimeUS < g.TimeUS-1 || r.through.Position == (translate.Position{}) {
			r.through = Point{g.TimeUS - 1, g.From}
		}
	}
}

// beforeCursor says whether the gap ends at or before the position the reader starts after.
func (r *Reader) beforeCursor(s *snapshot, g *Gap) bool {
	if r.after == (format.Place{}) {
		return false
	}
	epoch, ok := s.streams.Epoch(g.To.Stream)
	return ok && (epoch < r.after.Epoch || epoch == r.after.Epoch && g.To.Seq <= r.after.Seq)
}

// take looks at the block's events from r.next on. It returns true if the chunk is full.
func (p *nextCall) take(cand candidate) (full bool, err error) {
	r, x := p.r, cand.idx
	i := x.FirstAt(r.next)
	end, next := cand.bounds()
	if g, ok := p.s.gapAt(r.gapNext); ok && g.TimeUS < next {
		// No gap lies within a block, but within a span.
		end, next = x.FirstAt(g.TimeUS), g.TimeUS
	}
	if r.after != (format.Place{}) {
		if x.Epoch == r.after.Epoch {
			i = max(i, x.FirstAfter(r.after))
		}
		if i < x.Events() {
			r.after = format.Place{}
		}
	}
	from, through := i, end
	some := i < end
	if r.passing = r.filterFor(x); some && r.passing != nil {
		if some, err = r.log.blocks.match(&r.matcher, r.passing, cand); err != nil {
			return false, err
		}
	}
	if some {
		through, err = p.match(cand, i, end)
		if err != nil {
			return false, err
		}
	}
	r.matcher.Release()
	if through == end {
		r.next = next
	} else {
		r.next = x.TimeUS[through]
	}
	r.gapNext = max(r.gapNext, r.next)
	if through > 0 && (through > from || through == end) {
		r.atFloor = false
		r.through = Point{x.TimeUS[through-1], translate.Position{
			Stream: p.s.streams.Tag(x.Epoch), Seq: x.Seq[through-1], Op: x.Op[through-1]}}
	}
	return through < end, nil
}
