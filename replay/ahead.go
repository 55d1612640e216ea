package replay

import (
	"runtime"
	"sync/atomic"

	"millrace/replay/internal/format"
)

const (
	// aheadShare is how many of a block's size the caches must hold, so that what is read ahead is not
	// evicted before it is used.
	aheadShare = 8
	// aheadsByCore is how many blocks are read ahead at once for each core, of all readers that do not wait for the disk, and
	// maxAheads how many at most. With few, their reader finds all places taken by some that walk on, or wait for a core.
	aheadsByCore = 4
	maxAheads    = 8
	// aheadBlocks is how many blocks such a reader is ahead of itself, if it knows which they are.
	aheadBlocks = 3
	// nextBlocks is how many blocks any other reader is ahead of itself, if the slim index of the first is known. One is too few where
	// a chunk has the rest of a block and the begin of the next.
	nextBlocks = 2
	// aheadEventBytes is about what a part has for an event, of blocks that nobody looked at.
	aheadEventBytes = 256
	// walkBlocks is of how many blocks slim indexes are read at once by who reads a block ahead. One by one, each takes as long again
	// to look for as to read.
	walkBlocks = 8
)

// aheads is how many blocks are read ahead at once, unless it is for readers that wait for the disk.
func aheads() int { return min(maxAheads, aheadsByCore*runtime.GOMAXPROCS(0)) }

// ahead is the block that a reader will want next.
type ahead struct {
	s       *snapshot
	from    int64       // it is the first that has an event stamped from or later
	exact   bool        // from is its key
	before  *blockIndex // of the block before it, if its reader was there
	filter  *Filter     // its frames are wanted if this passes something in it; nil: they are
	variant variant
	slim    bool          // its reader goes by slim indexes
	slow    bool          // its reader waits for the disk
	sparse  bool          // its reader leaves out most of the blocks behind it
	reached *atomic.Int64 // its reader's
}

// lookAhead begins to load what comes after block x, of which so many bytes are about to be written out. If a span led to
// it, that knows which blocks those are; else it is the next.
func (p *pass) lookAhead(x *blockIndex, bytes int) {
	r := p.r
	if p.span != nil {
		p.lookAheadInSpans(p.span, p.block+1, bytes)
		return
	}
	for range nextBlocks {
		if from := x.Key() + 1; from > r.aheadTo {
			a := ahead{from: from, before: x, filter: r.filter, variant: r.variant, slim: p.scan.slim, reached: r.reached}
			if !r.log.readAhead(p.s, a, bytes) {
				return
			}
			r.aheadTo = from
		}
		e := r.log.cache.peek(cacheKey{block: x.after.Load(), part: p.scan.part()})
		if e == nil {
			return
		}
		x = e.idx
	}
}

// aheadBytes is how many bytes the smaller one of the caches has that blocks are read ahead into.
func (l *Log) aheadBytes() int64 { return min(l.cache.maxBytes, l.store.CacheBytes) }

// readAhead begins to load a block of s into the caches, if it is not in the tail. It never waits: if enough is being
// read ahead already, it returns false. bytes is about what a block's part has.
func (l *Log) readAhead(s *snapshot, a ahead, bytes int) bool {
	if a.from > s.beforeTail.TimeUS || int64(bytes)*aheadShare > l.aheadBytes() {
		return false
	}
	most, share := aheads(), 4
	if a.slow {
		most, share = cap(l.aheads), 2
	}
	if l.passes.Load() > 1 {
		most /= share // several readers keep the processors busy as it is; live ones need them too
	}
	if len(l.aheads) >= most {
		return false
	}
	select { // Close waits for what has a place
	case l.aheads <- struct{}{}:
	default:
		return false
	}
	a.s = s
	select {
	case l.toRead <- a:
	default:
		l.loops.Go(func() { l.readsAhead(a) })
	}
	return true
}

// readsAhead reads a block, and then those that it is given, until the log is closed or enough others wait for some: a new
// goroutine for each would first of all have to make its stack as large as Pebble needs it.
func (l *Log) readsAhead(a ahead) {
	defer l.idle.Add(-1)
	for {
		if h := l.cfg.hooks.readAhead; h != nil {
			h()
		}
		l.load(&a)
		a = ahead{} // it keeps nothing while it waits
		<-l.aheads
		if l.idle.Add(1) > maxAheads {
			return
		}
		select {
		case a = <-l.toRead:
			l.idle.Add(-1)
		case <-l.closing:
			return
		}
	}
}

// load reads what a asks for.
func (l *Log) load(a *ahead) {
	l.storeMu.RLock()
	defer l.storeMu.RUnlock()
	if l.snap.Load().err != nil {
		return
	}
	scan := blockScan{l: l, slim: a.slim, before: a.before}
	defer scan.close()
	x, err := scan.ahead(a)
	if err != nil {
		return // the reader meets it itself
	}
	if m := (matcher{}); a.reached.Load() < x.Key() && (a.filter == nil || m.reset(a.filter, x) && m.next(0) < x.Events()) {
		l.fetch(x, a)
	}
	if a.slim && !a.sparse {
		scan.walkOn(a.s, x)
	}
}

// ahead returns the index of the block to be read ahead.
func (c *blockScan) ahead(a *ahead) (*blockIndex, error) {
	if a.exact {
		return c.l.indexOf(c.part(), a.from)
	}
	return c.find(a.s, a.from)
}

// walkOn makes the slim indexes of the blocks behind x be in the cache, unless those of the next two are.
func (c *blockScan) walkOn(s *snapshot, x *blockIndex) {
	if x.memory()*walkBlocks*aheadShare > c.l.cache.maxBytes || c.l.knows(x, 2) {
		return
	}
	for range walkBlocks {
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

// knows says whether the slim indexes of the n blocks behind x are in the cache, or about to be.
func (l *Log) knows(x *blockIndex, n int) bool {
	for range n {
		e := l.cache.peek(cacheKey{block: x.after.Load(), part: format.RangeSlimIndex})
		if e == nil {
			return false
		}
		x = e.idx
	}
	return true
}

// fetch makes those of block x's frames that a asks for be in memory, if all goes well: the variant in the cache, or
// what there is of the stored part parked, with its checksum computed, and for a reader of everything unpacked.
func (l *Log) fetch(x *blockIndex, a *ahead) {
	src := source{idx: x}
	v := a.variant
	ends := v.storedEnds(x)
	if ends == nil { // it is built of the plain ones
		v, ends = variant{}, x.PlainEnd
	}
	p, err := l.openPart(x, src.part(v), x.Key(), int(ends[len(ends)-1]))
	if err != nil {
		return // the reader meets it itself
	}
	if p.loadFor(a.filter); p.err != nil {
		p.close() // likewise
		return
	}
	if a.filter == nil && l.passes.Load() <= 1 && l.parked.prepares(&p) {
		p.prepare(a.reached)
	}
	if a.reached.Load() > x.Key() { // its reader did not wait
		p.close()
		return
	}
	l.parked.leave(&p)
}
