package replay

import (
	"sync"
	"time"
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
)

// nextPlan makes r.plan the one of the span that has r.next. Plans of spans behind it that were made with it are kept
// in r.coming.
func (p *pass) nextPlan() error {
	r := p.r
	for len(r.coming) > 0 && r.coming[0].key < r.next {
		r.coming = r.coming[1:]
	}
	if len(r.coming) == 0 {
		spans, err := p.scan.spansFrom(p.s, r.next, p.depth())
		if err != nil {
			return err
		}
		if r.coming, err = p.looks(spans); err != nil {
			return err
		}
	}
	r.plan, r.coming = r.coming[0], r.coming[1:]
	if len(r.coming) == 0 {
		r.coming = nil
	}
	return nil
}

// depth is how far the reader may look ahead. While others read, too, there is something to do until the disk
// answers.
func (p *pass) depth() int {
	if p.r.log.passes.Load() > 1 {
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

// looks makes the plans of spans, of those before the first that fails; its error if that is the first of all.
func (p *pass) looks(spans []*span) ([]plan, error) {
	l, f := p.r.log, p.r.filter
	looks := make([]look, len(spans))
	var wg sync.WaitGroup
	for i, sp := range spans {
		looks[i].plan = sp.plan(f)
		if f.dids == nil || looks[i].plan.blocks.empty() {
			continue
		}
		if i < len(spans)-1 && l.mayLook() {
			// Next, which holds storeMu, waits for it.
			wg.Go(func() {
				defer l.hasLooked()
				looks[i].at(l, sp, f)
			})
			continue
		}
		looks[i].at(l, sp, f)
	}
	wg.Wait()
	plans := make([]plan, 0, len(spans))
	for i := range looks {
		if err := looks[i].err; err != nil && i == 0 {
			return nil, err
		} else if err != nil {
			break // it comes again when the reader is there
		}
		plans = append(plans, looks[i].plan)
		if f.dids != nil {
			p.r.looked(looks[i].slow)
		}
	}
	return plans, nil //nolint:nilerr // one behind the first comes again when the reader is there
}

// mayLook takes one of the places that all readers share.
func (l *Log) mayLook() bool {
	select {
	case l.looks <- struct{}{}:
		return true
	default:
		return false
	}
}

func (l *Log) hasLooked() { <-l.looks }

// at leaves those blocks in the plan that may have one of the filter's DIDs.
func (k *look) at(l *Log, sp *span, f *Filter) {
	begun := time.Now()
	fingerprints := f.fingerprintsFor(l.spans.key)
	of, err := l.blocksOf(sp.key(), fingerprints)
	k.plan.blocks.intersect(&of)
	k.err = err
	k.slow = time.Since(begun) > slowLook+time.Duration(len(fingerprints))*slowFingerprint
}

// lookAheadInSpans begins to load the blocks from block n of the span on that the plans name, in order: as many as
// the reader is ahead of itself.
func (p *pass) lookAheadInSpans(sp *span, n, bytes int) {
	r := p.r
	window := max(aheadBlocks, min(p.depth(), int(r.log.aheadBytes()/int64(bytes)/aheadShare)))
	pl, coming := &r.plan, r.coming
	for {
		for n = pl.blocks.next(n); n < len(sp.keys); n = pl.blocks.next(n + 1) {
			key := sp.keys[n]
			if key > r.aheadTo {
				if !r.log.readAhead(p.s, ahead{from: key, exact: true, filter: r.filter, variant: r.variant, slow: window > aheadBlocks}, bytes) {
					return
				}
				r.aheadTo = key
			}
			if window--; window == 0 {
				return
			}
		}
		if len(coming) == 0 {
			return
		}
		pl, coming, n = &coming[0], coming[1:], 0
		e := r.log.cache.peek(cacheKey{block: pl.key, part: rangeSpan})
		if e == nil {
			return
		}
		sp = e.span
	}
}
