package replay

import "runtime"

const (
	// aheadShare is how many of a block's size the cache must hold, so that what is read ahead is not
	// evicted before it is used.
	aheadShare = 8
	// maxAheads is how many blocks are read ahead at once, at most, of all readers.
	maxAheads = 4
	// aheadBlocks is how many blocks a reader is ahead of itself, if it knows which they are.
	aheadBlocks = 2
)

// aheads is how many blocks are read ahead at once.
func aheads() int { return min(maxAheads, runtime.GOMAXPROCS(0)) }

// ahead is the block that a reader will want next.
type ahead struct {
	from    int64   // it is the first that has an event stamped from or later
	filter  *Filter // its frames are wanted if this passes something in it; nil: they are
	variant variant
	lean    bool
}

// lookAhead begins to load what comes after block x, of so many bytes, which is about to be written out. A span's plan
// says which blocks those are; without one it is the next.
func (p *pass) lookAhead(x *index, bytes int) {
	r := p.r
	after := [aheadBlocks]int64{x.key() + 1}
	if r.plan.key >= x.key() {
		after = r.plan.after
	}
	for _, from := range after {
		if from > r.aheadTo && r.log.readAhead(p.s, ahead{from, r.filter, r.variant, p.scan.lean}, bytes) {
			r.aheadTo = from
		}
	}
}

// readAhead begins to load a block into the cache, if it is not in the tail. It never waits: if enough is being
// read ahead already, it returns false. bytes is about what a block has.
func (l *Log) readAhead(s *snapshot, a ahead, bytes int) bool {
	if a.from > s.beforeTail.timeUS || int64(bytes)*aheadShare > l.cache.maxBytes {
		return false
	}
	if l.passes.Load() > 1 && len(l.aheads) >= cap(l.aheads)/2 {
		return false // several readers keep the processors busy as it is; live ones need them too
	}
	select { // Close waits for what has a place
	case l.aheads <- struct{}{}:
	default:
		return false
	}
	go func() {
		defer func() { <-l.aheads }()
		l.storeMu.RLock()
		defer l.storeMu.RUnlock()
		if l.snap.Load().err != nil {
			return
		}
		scan := blockScan{l: l, lean: a.lean}
		defer scan.close()
		x, err := scan.find(s, a.from)
		if err != nil {
			return // the reader meets it itself
		}
		if m := (matcher{}); a.filter == nil || m.reset(a.filter, x) && m.next(0) < x.events() {
			_, _ = l.frames(source{idx: x}, a.variant, s.streamOf(x.epoch))
		}
	}()
	return true
}
