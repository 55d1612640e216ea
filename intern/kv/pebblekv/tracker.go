package pebblekv

import (
	"sync"

	"github.com/cespare/xxhash/v2"
)

// rememberedKeys is how many written keys one of the tracker's two generations holds before the older
// one is forgotten: some 60 transactions' worth, and about 2 MB.
const rememberedKeys = 1 << 16

// tracker numbers the commits and finds conflicts between them. A commit passes three points: admitted
// (its writes conflict with transactions begun before it is visible), visible (readers see it), durable
// (its sync is done). Versions are admitted in order but may become visible and durable out of order.
type tracker struct {
	mu      sync.Mutex
	last    uint64            // last version admitted
	visible watermark         // every version up to it is visible, or failed
	durable watermark         // every version up to it is durable, or failed
	young   map[uint64]uint64 // hash of key -> last version that wrote it
	old     map[uint64]uint64 // the generation before
	floor   uint64            // of versions up to it, writes may have been forgotten
	rotated uint64            // last version before young was begun
	cond    sync.Cond         // durable moved, or broken was set
	broken  error             // a commit that failed in Pebble; nothing is known after it
}

func newTracker() *tracker {
	t := &tracker{young: make(map[uint64]uint64), old: make(map[uint64]uint64)}
	t.cond.L = &t.mu
	return t
}

// begin returns the version up to which a view opened afterwards surely sees everything.
func (t *tracker) begin() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.visible.upTo
}

// horizon returns the version beyond which a view opened before surely sees nothing.
func (t *tracker) horizon() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// admit checks what was read, as hashes, since version began, and if nothing conflicts returns the version of
// this commit.
func (t *tracker) admit(began uint64, reads, writes []uint64) (version uint64, ok bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken != nil {
		return 0, false, t.broken
	}
	if len(reads) > 0 && began < t.floor {
		return 0, false, nil
	}
	if began < t.last {
		for _, h := range reads {
			if t.young[h] > began || t.old[h] > began {
				return 0, false, nil
			}
		}
	}
	t.last++
	if len(t.young)+len(writes) > rememberedKeys && len(t.young) > 0 {
		t.old, t.young = t.young, t.old
		clear(t.young)
		t.floor = t.rotated
		t.rotated = t.last - 1
	}
	for _, h := range writes {
		t.young[h] = t.last
	}
	return t.last, true, nil
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

// fail records that Pebble did not take a commit. What happened to it is unknown, so the store takes none after it.
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

// watermark is the end of the unbroken run of versions that are done. Those done beyond it wait in ahead,
// at most one for each transaction in flight.
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
