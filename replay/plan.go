package replay

import (
	"sync"
	"time"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// A reader whose filter passes little looks at one span after the other, and then at few blocks of each. From memory that
// is next to nothing, from a disk each look costs what the disk takes to answer: some hundred times in a row for a
// needle. So when a look was slow the reader goes on with several at once, and has the blocks that it will want
// read meanwhile.
const (
	// maxLooks is how many spans a reader looks at, and how many blocks it has read, at once, at most; all readers
	// together do not more.
	maxLooks = 16
	// slowLook is how long a look takes that had to wait for the disk.
	slowLook = 200 * time.Microsecond
	// slowFingerprint is what is added to it by DID of the filter.
	slowFingerprint = 100 * time.Nanosecond
	// slowByte is what is added to it by byte of a part's first value: to copy that out of the page cache and to compute its
	// checksums takes a third of that.
	slowByte = time.Nanosecond
)

// nextPlan makes r.plan the one of the span that has r.next, or of a later one if those before it have nothing: if all that it
// looks at have nothing, of the last. Plans of spans behind it that were made with it are kept in r.coming.
func (p *pass) nextPlan() error {
	r := p.r
	for len(r.coming) > 0 && r.coming[0].key < r.next {
		r.coming = r.coming[1:]
	}
	for from := r.next; ; from = r.plan.key + 1 {
		if len(r.coming) == 0 {
			coming, err := p.looks(from, p.depth())
			if err != nil && from > r.next {
				return nil //nolint:nilerr // it comes again when the reader is there
			}
			if err != nil {
				return err
			}
			r.coming = coming
		}
		r.plan, r.coming = r.coming[0], r.coming[1:]
		if len(r.coming) == 0 {
			r.coming = nil
		}
		if p.steps++; !r.plan.empty() || r.plan.key >= p.s.spanned || p.steps >= maxBlocksPerNext {
			return nil
		}
	}
}

// depth is how far the reader may look ahead. While others read, too, there is something to do until the disk
// answers.
func (p *pass) depth() int {
	if p.r.log.blocks.activeScans.Load() > 1 {
		return 1
	}
	return max(1, p.r.depth)
}

// looked adapts how far the reader looks ahead to how long a look took.
func (r *Reader) looked(slow bool) {
	if slow || r.log.cfg.alwaysSlow {
		r.depth = min(max(2*r.depth, 2), maxLooks)
	} else if r.depth > 1 {
		r.depth--
	}
}

// look is one span's.
type look struct {
	plan plan
	slow bool
	err  error
}

// looks makes the plans of the span that has from and of those behind it, n in all at most, and only of those before the
// first that fails; its error if that is the first of all.
func (p *pass) looks(from int64, n int) (plans []plan, err error) {
	if p.r.filter.dids != nil {
		return p.looksForDIDs(from, n)
	}
	spans, err := p.scan.spansFrom(p.s, from, n)
	for _, sp := range spans {
		plans = append(plans, planOf(sp, p.r.filter))
	}
	return plans, err
}

// looksForDIDs is looks for a filter with DIDs, at several spans at once.
func (p *pass) looksForDIDs(from int64, n int) ([]plan, error) {
	l, f := p.r.log, p.r.filter
	keys := p.s.spansSince(from)
	keys = keys[:min(n, len(keys))] // one at least: from <= s.spanned
	looks := make([]look, len(keys))
	var wg sync.WaitGroup
	for i, key := range keys {
		if i < len(keys)-1 && l.blocks.mayLook() {
			// Next, which holds storeMu, waits for it.
			wg.Go(func() {
				defer l.blocks.hasLooked()
				looks[i].at(l.blocks, key, f)
			})
			continue
		}
		looks[i].at(l.blocks, key, f)
	}
	wg.Wait()
	plans := make([]plan, 0, len(looks))
	for i := range looks {
		if err := looks[i].err; err != nil && i == 0 {
			return nil, err
		} else if err != nil {
			break // it comes again when the reader is there
		}
		plans = append(plans, looks[i].plan)
		p.r.looked(looks[i].slow)
	}
	return plans, nil //nolint:nilerr // one behind the first comes again when the reader is there
}

// mayLook takes one of the places that all readers share.
func (bs *blockStore) mayLook() bool {
	select {
	case bs.lookupSlots <- struct{}{}:
		return true
	default:
		return false
	}
}

func (bs *blockStore) hasLooked() { <-bs.lookupSlots }

// at plans the blocks that may have events of the filter's DIDs. If it wants all of those, most spans have none, and their
// fingerprints say so: then nothing else of them is read.
func (k *look) at(bs *blockStore, key int64, f *Filter) {
	begun := time.Now()
	fingerprints := f.fingerprintsFor(bs.key)
	defer func() { k.slow = time.Since(begun) > slowLook+time.Duration(len(fingerprints))*slowFingerprint }()
	var of format.BlockSet
	k.plan = plan{key: key}
	onlyDIDs := f.anyCollection && f.kinds == 0
	if onlyDIDs {
		if of, k.err = bs.blocksOf(key, fingerprints); k.err != nil || of.Empty() {
			return
		}
	}
	sp, err := bs.spanOf(key)
	if err != nil {
		k.err = err
		return
	}
	k.plan = planOf(sp, f)
	if !onlyDIDs && !k.plan.blocks.Empty() {
		of, k.err = bs.blocksOf(key, fingerprints)
	}
	k.plan.blocks.Intersect(&of)
}

// lookAheadInSpans begins to load the blocks from block n of the span on that the plans name, in order: as many as
// the reader is ahead of itself.
func (p *pass) lookAheadInSpans(sp *format.Span, n, bytes int) {
	r := p.r
	window := max(aheadBlocks, min(p.depth(), int(r.log.blocks.aheadBytes()/int64(bytes)/aheadShare)))
	pl, coming := &r.plan, r.coming
	for {
		for n = pl.blocks.Next(n); n < len(sp.Keys); n = pl.blocks.Next(n + 1) {
			key := sp.Keys[n]
			if key > r.aheadTo {
				a := ahead{from: key, exact: true, slim: p.scan.slim, filter: r.filter, variant: r.variant, reached: r.reached,
					slow: window > aheadBlocks, sparse: pl.blocks.Count(n+1, n+1+walkBlocks) <= walkBlocks/2}
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
		e := r.log.blocks.cache.peek(cacheKey{block: pl.key, part: format.RangeSpan})
		if e == nil {
			return
		}
		sp = e.span
	}
}

// plan is where, as a span says, the events are that a filter passes.
type plan struct {
	key    int64 // of the span; 0: no plan
	blocks format.BlockSet
	// others says that identity and account events that are not in blocks are wanted, from the
	// span's copies of them.
	others bool
}

// empty says that nothing in the span passes.
func (p *plan) empty() bool { return p.blocks.Empty() && !p.others }

// selective says whether spans can tell f where to look.
func (f *Filter) selective() bool {
	return f != nil && (!f.anyCollection || f.dids != nil || f.kinds != 0)
}

// planOf returns where to look in the span for events that f passes, DIDs apart.
func planOf(s *format.Span, f *Filter) plan {
	p := plan{key: s.Key()}
	all := format.FirstBlocks(len(s.Keys))
	commits := f.kinds.Has(translate.KindCommit)
	if commits && f.anyCollection {
		p.blocks = all
		return p
	}
	if commits {
		for i := range s.Collections.Len() {
			if f.collection(s.Collections.At(i)) {
				p.blocks.Union(&s.Present[i])
			}
		}
	}
	var others format.BlockSet
	if f.kinds.Has(translate.KindIdentity) {
		others.Union(&s.IdentityIn)
	}
	if f.kinds.Has(translate.KindAccount) {
		others.Union(&s.AccountIn)
	}
	if s.Copied && f.dids == nil {
		p.others = !others.Empty()
	} else {
		p.blocks.Union(&others)
	}
	return p
}

// findSpan is find for a filter that spans can tell where to look, at a place that they cover.
func (p *pass) findSpan() (source, error) {
	r, s := p.r, p.s
	if r.plan.key < r.next {
		if err := p.nextPlan(); err != nil {
			return source{}, err
		}
	}
	sp, err := r.log.blocks.spanOf(r.plan.key)
	if err != nil {
		return source{}, err
	}
	// The span may reach into the tail; then the rest of it is read from there.
	end := sp.LastMark()
	if end.TimeUS > s.beforeTail.TimeUS {
		end = s.beforeTail
	}
	next := r.plan.blocks.Next(sp.FirstWith(r.next))
	until := end.TimeUS + 1
	if next < len(sp.Keys) && sp.Keys[next] <= end.TimeUS {
		until = sp.First[next]
	} else {
		next = format.MaxSpanBlocks
	}
	if r.plan.others && r.next < until {
		src, err := p.others(sp, until)
		if err != nil || src.idx != nil {
			return src, err
		}
	}
	if next == format.MaxSpanBlocks {
		return source{skip: end}, nil
	}
	p.span, p.block = sp, next
	if p.depth() > 1 {
		p.lookAheadInSpans(sp, next, int(sp.Events[next])*aheadEventBytes)
	}
	begun := time.Now()
	x, err := r.log.blocks.indexOf(p.scan.part(), sp.Keys[next])
	if slow := time.Since(begun) > slowLook; slow || err == nil && r.variant.storedEnds(x) == nil {
		r.looked(slow) // else the look into its part tells
	}
	return source{idx: x}, err
}

// others returns the copies of identity and account events from r.next on and before until; an empty
// source if there are none.
func (p *pass) others(sp *format.Span, until int64) (source, error) {
	x, err := p.r.log.blocks.othersIndex(sp.Key())
	if err != nil {
		return source{}, err
	}
	i, end := x.FirstAt(p.r.next), x.FirstAt(until)
	if i >= end {
		return source{}, nil
	}
	return source{idx: x, others: sp.Key(), end: end, next: until}, nil
}
