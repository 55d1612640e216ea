package replay

import (
	"sync"

	"millrace/replay/internal/ahead"
	"millrace/replay/internal/format"
)

// nextPlan makes r.plan the one of the span that has r.next, or of a later one if those before it
// have nothing. If all that it looks at have nothing, it is that of the last. Plans of spans after
// it that were made with it are kept in r.coming.
func (p *nextCall) nextPlan() error {
	r := p.r
	for len(r.coming) > 0 && r.coming[0].key < r.next {
		r.coming = r.coming[1:]
	}
	for from := r.next; ; from = r.plan.key + 1 {
		if len(r.coming) == 0 {
			coming, err := p.lookUp(from, p.depth())
			if len(coming) == 0 && from > r.next {
				return nil // the error comes again when the reader is there
			}
			if len(coming) == 0 {
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

// depth is how many look-ups the reader may do at once.
func (p *nextCall) depth() int { return p.r.depth.Among(int(p.r.log.blocks.activeScans.Load())) }

// sawLookup adapts that to a look-up.
func (r *Reader) sawLookup(slow bool) { r.depth = r.depth.After(slow || r.log.cfg.hooks.alwaysSlow) }

// spanLookup is the look-up of one span.
type spanLookup struct {
	plan plan
	slow bool
	err  error
}

// lookUp makes the plans of the span that has from and of those after it, n at most, up to the
// first that fails. Of that it returns the error.
func (p *nextCall) lookUp(from int64, n int) (plans []plan, err error) {
	if f := p.r.filter; f.Scattered() {
		return p.lookUpShards(from, n)
	}
	spans, err := p.scan.spansFrom(p.s, from, n)
	for _, sp := range spans {
		plans = append(plans, planOf(sp, p.r.filter, format.FirstBlocks(len(sp.Keys))))
	}
	return plans, err
}

// lookUpShards is lookUp for a filter with DIDs or subjects, of several spans at once.
func (p *nextCall) lookUpShards(from int64, n int) ([]plan, error) {
	l, f := p.r.log, p.r.filter
	keys := p.s.spansSince(from)
	keys = keys[:min(n, len(keys))] // one at least: from <= s.spanned
	lookups := make([]spanLookup, len(keys))
	var wg sync.WaitGroup
	for i, key := range keys {
		if i < len(keys)-1 && l.blocks.lookups.TryAcquire(1) {
			// Next, which holds storeMu, waits for it.
			wg.Go(func() {
				defer l.blocks.lookups.Release(1)
				lookups[i].at(l.blocks, key, f)
			})
			continue
		}
		lookups[i].at(l.blocks, key, f)
	}
	wg.Wait()
	plans := make([]plan, 0, len(lookups))
	for i := range lookups {
		if lookups[i].err != nil {
			return plans, lookups[i].err
		}
		plans = append(plans, lookups[i].plan)
		p.r.sawLookup(lookups[i].slow)
	}
	return plans, nil
}

// at plans the blocks that may have events of the filter's DIDs and subjects. If the filter wants
// all events of its DIDs, their fingerprints come first: most spans have none, and nothing else of
// those is read.
func (k *spanLookup) at(bs *blockStore, key int64, f *Filter) {
	begun := bs.cfg.Monotonic()
	fingerprints := 0
	defer func() { k.slow = ahead.Lookup{Took: bs.cfg.Monotonic() - begun, Fingerprints: fingerprints}.Slow() }()
	var dids []uint64
	if f.ByDID() {
		dids = f.Fingerprints(bs.key)
		fingerprints = len(dids)
	}
	var of format.BlockSet
	k.plan = plan{key: key}
	first := f.AllOfDIDs()
	if first {
		if of, k.err = bs.blocksOf(format.RangeSpanDIDs, key, dids); k.err != nil || of.Empty() {
			return
		}
	}
	sp, err := bs.spanOf(key)
	if err != nil {
		k.err = err
		return
	}
	commits := format.FirstBlocks(len(sp.Keys))
	if f.BySubject() {
		commits = format.BlockSet{}
		if sp.HasSubjects && f.Commits() {
			subjects := f.SubjectFingerprints(bs.key)
			fingerprints += len(subjects)
			if commits, k.err = bs.blocksOf(format.RangeSpanSubjects, key, subjects); k.err != nil {
				return
			}
		}
	}
	k.plan = planOf(sp, f, commits)
	if !f.ByDID() {
		return
	}
	if !first && !k.plan.blocks.Empty() {
		of, k.err = bs.blocksOf(format.RangeSpanDIDs, key, dids)
	}
	k.plan.blocks.Intersect(&of)
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

// planOf returns where to look in the span for events that f passes, DIDs apart. Commits with
// wanted subjects are in the given blocks.
func planOf(s *format.Span, f *Filter, commits format.BlockSet) plan {
	p := plan{key: s.Key()}
	p.blocks, p.others = f.Blocks(s, commits)
	return p
}

// findSpan is find for a filter that spans can narrow down, at a place that they cover.
func (p *nextCall) findSpan() (candidate, error) {
	r, s := p.r, p.s
	if r.plan.key < r.next {
		if err := p.nextPlan(); err != nil {
			return candidate{}, err
		}
	}
	sp, err := r.log.blocks.spanOf(r.plan.key)
	if err != nil {
		return candidate{}, err
	}
	// The span may reach into the tail; then the rest of it is read from there.
	end := sp.LastPoint()
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
		cand, err := p.others(sp, until)
		if err != nil || cand.idx != nil {
			return cand, err
		}
	}
	if next == format.MaxSpanBlocks {
		return candidate{skip: end}, nil
	}
	p.span, p.block = sp, next
	if p.depth() > 1 {
		p.lookAheadInSpans(sp, next, int(sp.Events[next])*aheadEventBytes)
	}
	begun := r.log.blocks.cfg.Monotonic()
	x, err := r.log.blocks.indexOf(p.scan.part(), sp.Keys[next])
	if slow := (ahead.Lookup{Took: r.log.blocks.cfg.Monotonic() - begun}).Slow(); slow || err == nil && r.variant.storedEnds(x) == nil {
		r.sawLookup(slow) // else the look-up of its part says
	}
	return candidate{idx: x}, err
}

// others returns the copies of identity and account events from r.next on and before until; an
// empty candidate if there are none.
func (p *nextCall) others(sp *format.Span, until int64) (candidate, error) {
	x, err := p.r.log.blocks.indexOf(format.RangeCopiesIndex, sp.Key())
	if err != nil {
		return candidate{}, err
	}
	i, end := x.FirstAt(p.r.next), x.FirstAt(until)
	if i >= end {
		return candidate{}, nil
	}
	return candidate{idx: x, others: sp.Key(), end: end, next: until}, nil
}
