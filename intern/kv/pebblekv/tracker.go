package pebblekv

import (
	"maps"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// rememberedKeys is how many written keys one of the tracker's two generations holds before the
// older one is forgotten: both take some 0.5 MB. While a transaction is in flight that needs the
// older one, the younger may grow to maxRememberedKeys.
const (
	rememberedKeys    = 1 << 13
	maxRememberedKeys = 1 << 20
)

// tracker numbers the commits and finds conflicts between them. A commit passes three points:
// admitted (its writes conflict with transactions begun before it is visible), visible (readers see
// it), durable (its sync is done). Versions are admitted in order but may become visible and
// durable out of order.
type tracker struct {
	mu        sync.Mutex
	last      uint64            // last version admitted
	visible   watermark         // every version up to it is visible, or failed
	durable   watermark         // every version up to it is durable, or failed
	young     map[uint64]uint64 // hash of key -> last version that wrote it
	old       map[uint64]uint64 // the generation before
	forgotten uint64            // of versions up to it, writes may have been forgotten
	rotated   uint64            // last version before young was begun
	active    map[uint64]int    // transactions in flight by the version they began at
	cond      sync.Cond         // durable moved, or broken was set
	broken    error             // a commit that failed in Pebble; nothing is known after it
}

func newTracker() *tracker {
	t := &tracker{young: make(map[uint64]uint64), old: make(map[uint64]uint64), active: make(map[uint64]int)}
	t.cond.L = &t.mu
	return t
}

// start is what a view opened afterwards surely sees: every version up to upTo, and those in ahead,
// which became visible before one that precedes them.
type start struct {
	upTo  uint64
	ahead []uint64
}

// sees says whether the view surely sees a version.
func (s *start) sees(version uint64) bool {
	return version <= s.upTo || slices.Contains(s.ahead, version)
}

// begin returns what a view opened now sees. end must follow.
func (t *tracker) begin() start {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.active[t.visible.upTo]++
	return start{t.visible.upTo, slices.Collect(maps.Keys(t.visible.ahead))}
}

// end says that the transaction is over.
func (t *tracker) end(began start) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.active[began.upTo]--; t.active[began.upTo] == 0 {
		delete(t.active, began.upTo)
	}
}

// horizon returns the version beyond which a view opened before surely sees nothing.
func (t *tracker) horizon() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// admit checks what was read, as hashes, and if nothing conflicts returns the version of this
// commit.
func (t *tracker) admit(began start, reads, writes []uint64) (version uint64, ok bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken != nil {
		return 0, false, t.broken
	}
	if len(reads) > 0 && began.upTo < t.forgotten {
		return 0, false, nil
	}
	if began.upTo < t.last {
		for _, h := range reads {
			if !began.sees(t.young[h]) || !began.sees(t.old[h]) {
				return 0, false, nil
			}
		}
	}
	t.last++
	if n := len(t.young) + len(writes); n > rememberedKeys && (n > maxRememberedKeys || !t.neededLocked()) {
		t.old, t.young = t.young, t.old
		clear(t.young)
		t.forgotten = t.rotated
		t.rotated = t.last - 1
	}
	for _, h := range writes {
		t.young[h] = t.last
	}
	return t.last, true, nil
}

// neededLocked says whether a transaction in flight began before the younger generation.
func (t *tracker) neededLocked() bool {
	for began := range t.active {
		if began < t.rotated {
			return true
		}
	}
	return false
}

// shown records that version is visible.
func (t *tracker) shown(version uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.visible.done(version)
}

// synced records that version is durable.
func (t *tracker) synced(version uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.durable.done(version)
	t.cond.Broadcast()
}

// fail records that Pebble did not take a commit. What happened to it is unknown, so the store
// takes none after it.
func (t *tracker) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken == nil {
		t.broken = err
	}
	t.cond.Broadcast()
}

// wait returns once every version up to horizon is durable.
func (t *tracker) wait(horizon uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.durable.upTo < horizon && t.broken == nil {
		t.cond.Wait()
	}
	return t.broken
}

// watermark is the end of the unbroken run of versions that are done. Those done beyond it are in
// ahead.
type watermark struct {
	upTo  uint64
	ahead map[uint64]struct{}
}

func (w *watermark) done(version uint64) {
	if version != w.upTo+1 {
		if w.ahead == nil {
			w.ahead = make(map[uint64]struct{})
		}
		w.ahead[version] = struct{}{}
		return
	}
	w.upTo = version
	for len(w.ahead) > 0 {
		if _, ok := w.ahead[w.upTo+1]; !ok {
			return
		}
		w.upTo++
		delete(w.ahead, w.upTo)
	}
}

func hashKey(key []byte) uint64 { return xxhash.Sum64(key) }
