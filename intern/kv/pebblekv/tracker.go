package pebblekv

import (
	"cmp"
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
// it), durable (its sync is done). One after the other is admitted and becomes visible, as the
// caller holds Store.applying meanwhile. Since the write-ahead log is written in this order, what
// is ahead of a durable version is durable, too.
type tracker struct {
	mu        sync.Mutex
	last      uint64            // last version admitted
	visible   uint64            // last version that readers see
	durable   uint64            // last version whose sync is known to be done
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

// begin returns the last version that a view opened now surely sees. end must follow.
func (t *tracker) begin() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.active[t.visible]++
	return t.visible
}

// end says that the transaction is over.
func (t *tracker) end(began uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.active[began]--; t.active[began] == 0 {
		delete(t.active, began)
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
func (t *tracker) admit(began uint64, reads, writes []uint64) (version uint64, ok bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.broken != nil {
		return 0, false, t.broken
	}
	if len(reads) > 0 && began < t.forgotten {
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
	t.visible = version
}

// synced records that version is durable, and with it all before it.
func (t *tracker) synced(version uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.durable = max(t.durable, version)
	t.cond.Broadcast()
}

// fail records that Pebble did not take a commit. What happened to it is unknown, so the store
// takes none after it.
func (t *tracker) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.broken = cmp.Or(t.broken, err)
	t.cond.Broadcast()
}

// wait returns once every version up to horizon is durable.
func (t *tracker) wait(horizon uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.durable < horizon && t.broken == nil {
		t.cond.Wait()
	}
	return t.broken
}

func hashKey(key []byte) uint64 { return xxhash.Sum64(key) }
