package replay

import (
	"runtime"
	"sync"

	"millrace/replay/internal/ahead"
	"millrace/replay/internal/filter"
	"millrace/replay/internal/format"
)

// aheadEventBytes is about what a part has for an event, of blocks that no reader looked at.
const aheadEventBytes = 256

// readahead is the goroutines that read blocks before their readers want them.
type readahead struct {
	slots chan struct{} // holds one for each block that is being read; the log's Close fills it
	loads sync.WaitGroup
}

// wait waits for the goroutines and lets none begin. It is called once.
func (ra *readahead) wait() {
	for range cap(ra.slots) {
		ra.slots <- struct{}{}
	}
	ra.loads.Wait()
}

// aheadBlock is the block that a reader will want next.
type aheadBlock struct {
	s       *snapshot
	from    int64       // it is the first that has an event stamped from or later
	exact   bool        // from is its key
	before  *blockIndex // of the block before it, if its reader was there
	filter  *Filter     // its frames are wanted if this passes something in it; nil: they are
	variant variant
	slim    bool       // its reader goes by slim indexes
	slow    bool       // its reader waits for the disk
	sparse  bool       // its reader leaves out most of the blocks after it
	parts   *openParts // its reader's
}

// lookAhead begins to load what comes after block x, of which so many bytes are about to be written
// out. If a span led to it, that knows which blocks those are; else it is the next.
func (p *nextCall) lookAhead(x *blockIndex, bytes int) {
	r := p.r
	if p.span != nil {
		p.lookAheadInSpans(p.span, p.block+1, bytes)
		return
	}
	for range ahead.NextBlocks {
		if from := x.Key() + 1; from > r.aheadTo {
			a := aheadBlock{from: from, before: x, filter: r.filter, variant: r.variant, slim: p.scan.slim, parts: &r.parts}
			if !r.log.blocks.readAhead(p.s, a, bytes) {
				return
			}
			r.aheadTo = from
		}
		v, ok := r.log.blocks.cache.Peek(cacheKey{block: x.after.Load(), part: p.scan.part()})
		if !ok {
			return
		}
		x = v.idx
	}
}

// lookAheadInSpans begins to load the blocks from block n of the span on that the plans name, in
// order. They are as many as the reader is ahead of itself.
func (p *nextCall) lookAheadInSpans(sp *format.Span, n, bytes int) {
	r := p.r
	window := ahead.Window(p.depth(), r.log.blocks.aheadBytes(), bytes)
	pl, coming := &r.plan, r.coming
	for {
		for n = pl.blocks.Next(n); n < len(sp.Keys); n = pl.blocks.Next(n + 1) {
			key := sp.Keys[n]
			if key > r.aheadTo {
				a := aheadBlock{from: key, exact: true, slim: p.scan.slim, filter: r.filter, variant: r.variant, parts: &r.parts,
					slow: window > ahead.KnownBlocks, sparse: pl.blocks.Count(n+1, n+1+ahead.WalkBlocks) <= ahead.WalkBlocks/2}
				if !r.log.blocks.readAhead(p.s, a, bytes) {
					return
				}
				r.aheadTo = key
			}
			if window--; window == 0 {
				return
			}
		}
		for pl, n = nil, 0; pl == nil || pl.empty(); pl, coming = &coming[0], coming[1:] {
			if len(coming) == 0 {
				return
			}
		}
		v, ok := r.log.blocks.cache.Peek(cacheKey{block: pl.key, part: format.RangeSpan})
		if !ok {
			return
		}
		sp = v.span
	}
}

// aheadBytes is how many bytes the smaller one of the caches has that blocks are read ahead into.
func (bs *blockStore) aheadBytes() int64 { return min(bs.cache.MaxBytes, bs.store.CacheBytes) }

// readAhead begins to load a block of s into the caches, if it is not in the tail. It never waits:
// if enough is being read ahead already, it returns false. bytes is about what a block's part has.
func (bs *blockStore) readAhead(s *snapshot, a aheadBlock, bytes int) bool {
	load := ahead.Load{BlockBytes: bytes, CacheBytes: bs.aheadBytes(), Cores: runtime.GOMAXPROCS(0),
		Running: len(bs.readahead.slots), Scans: int(bs.activeScans.Load()), Slow: a.slow}
	if a.from > s.beforeTail.TimeUS || !load.Admits() {
		return false
	}
	select { // Close waits for what has a place
	case bs.readahead.slots <- struct{}{}:
	default:
		return false
	}
	admitted := a // a stays off the heap where it is refused
	admitted.s = s
	bs.readahead.loads.Go(func() {
		defer func() { <-bs.readahead.slots }()
		bs.load(&admitted)
	})
	return true
}

// load reads what a asks for.
func (bs *blockStore) load(a *aheadBlock) {
	if h := bs.cfg.hooks.readAhead; h != nil {
		h()
	}
	bs.storeMu.RLock()
	defer bs.storeMu.RUnlock()
	if bs.snap.Load().err != nil {
		return
	}
	scan := blockScan{bs: bs, slim: a.slim, before: a.before}
	defer scan.close()
	x, err := scan.ahead(a)
	if err != nil {
		return // the reader meets it itself
	}
	wanted := a.parts.reached.Load() < x.Key()
	var m *filter.Matcher
	if wanted && !a.filter.MatchesAll(x.Kinds) {
		m = new(filter.Matcher)
		if wanted, err = bs.match(m, a.filter, candidate{idx: x}); err != nil {
			return // likewise
		}
		wanted = wanted && m.Next(0) < x.Events()
	}
	if wanted {
		bs.fetch(x, a, m)
	}
	if a.slim && !a.sparse {
		scan.walkOn(a.s, x)
	}
}

// ahead returns the index of the block to be read ahead.
func (c *blockScan) ahead(a *aheadBlock) (*blockIndex, error) {
	if a.exact {
		return c.bs.indexOf(c.part(), a.from)
	}
	return c.find(a.s, a.from)
}

// walkOn reads the slim indexes of the blocks after x into the cache, unless those of the next two
// are there.
func (c *blockScan) walkOn(s *snapshot, x *blockIndex) {
	if x.memory()*ahead.WalkBlocks*ahead.CacheShare > c.bs.cache.MaxBytes || c.bs.knows(x, 2) {
		return
	}
	for range ahead.WalkBlocks {
		if x.Key() >= s.beforeTail.TimeUS {
			return
		}
		c.before = x
		var err error
		if x, err = c.find(s, x.Key()+1); err != nil {
			return // the reader meets it itself
		}
	}
}

// knows says whether the slim indexes of the n blocks after x are in the cache, or about to be.
func (bs *blockStore) knows(x *blockIndex, n int) bool {
	for range n {
		v, ok := bs.cache.Peek(cacheKey{block: x.after.Load(), part: format.RangeSlimIndex})
		if !ok {
			return false
		}
		x = v.idx
	}
	return true
}

// fetch opens for a's reader what is stored of those of block x's frames that it wants, with its
// checksums computed. m is the matcher of its filter; nil: it wants all.
func (bs *blockStore) fetch(x *blockIndex, a *aheadBlock, m *filter.Matcher) {
	cand := candidate{idx: x}
	v := a.variant
	ends := v.storedEnds(x)
	if ends == nil { // it is built of the plain ones
		v, ends = variant{}, x.PlainEnd
	}
	part := cand.part(v)
	if m != nil && a.variant == (variant{}) && m.Sparse() {
		part, ends = format.RangeZstd, x.ZstdEnd
	}
	p, err := bs.openPart(x, part, x.Key(), int(ends[len(ends)-1]))
	if err != nil {
		return // the reader meets it itself
	}
	if p.loadFor(m); p.err != nil {
		p.close() // likewise
		return
	}
	a.parts.add(&p)
}
