package replay

import (
	"sync"
	"time"

	"millrace/replay/internal/format"
)

// A stored part that was read ahead is looked up and looked at once more by its reader, and again by each call of Next
// that goes on in the same block: a tenth of what a replay takes. So who is done with an open part leaves it here for
// who comes next. What nobody comes for is closed soon, as an open value keeps files of the store's that a trim has
// deleted.
const (
	maxParked = 8
	// parkedShare is how many parts of its size the caches must hold, so that one may be left.
	parkedShare = 2 * maxParked
	parkedTime  = 500 * time.Millisecond // or up to twice that
)

// parked are parts that nobody uses, oldest first. The log's Close closes them.
type parked struct {
	mu    sync.Mutex
	parts []storedPart
	older int         // as many are there since the last sweep, at least
	timer *time.Timer // of the next sweep; nil: nothing is parked

	wasted time.Time // when pages that were unpacked ahead were last given up, as nobody had come for them
}

// prepares says whether p's pages may be unpacked ahead: if they are as small as a part must be that is left, and no such
// pages were wasted of late.
func (k *parked) prepares(p *storedPart) bool {
	if int64(p.pages.Size())*parkedShare > p.bs.aheadBytes() {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Since(k.wasted) > parkedTime
}

// leave gives up a part, which must not be used any more. If it was left here before as well, they become one. The caller
// holds storeMu.
func (k *parked) leave(p *storedPart) {
	if int64(p.pages.StoredBytes())*parkedShare > p.bs.aheadBytes() {
		p.close()
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := k.index(p.r, p.key); i >= 0 && k.parts[i].pages.Size() == p.pages.Size() {
		p.takeReady(&k.parts[i])
		k.parts[i].close()
		k.remove(i)
	}
	if len(k.parts) == maxParked {
		k.drop(1)
	}
	k.parts = append(k.parts, *p)
	if k.timer == nil {
		k.timer = time.AfterFunc(parkedTime, k.sweep)
	}
}

// take returns a part that was left, for its next user to close or leave.
func (k *parked) take(r format.Range, key int64) (p storedPart, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := k.index(r, key); i >= 0 {
		p = k.parts[i]
		k.remove(i)
		return p, true
	}
	return p, false
}

// finish closes a part whose reader has gone on, and what was made ready for him meanwhile.
func (k *parked) finish(p *storedPart) {
	p.close()
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := k.index(p.r, p.key); i >= 0 && k.parts[i].ready != nil {
		k.parts[i].close()
		k.remove(i)
	}
}

// index returns where a part is; -1: nowhere.
func (k *parked) index(r format.Range, key int64) int {
	for i := range k.parts {
		if k.parts[i].r == r && k.parts[i].key == key {
			return i
		}
	}
	return -1
}

func (k *parked) remove(i int) {
	last := len(k.parts) - 1
	copy(k.parts[i:], k.parts[i+1:])
	k.parts[last] = storedPart{}
	k.parts = k.parts[:last]
	if i < k.older {
		k.older--
	}
}

// drop closes the oldest n.
func (k *parked) drop(n int) {
	for range n {
		if k.parts[0].dropReady() {
			k.wasted = time.Now()
		}
		k.parts[0].close()
		k.remove(0)
	}
}

// sweep closes what was there at the last sweep already.
func (k *parked) sweep() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.timer == nil {
		return // the log is closed
	}
	k.drop(k.older)
	if k.older = len(k.parts); k.older == 0 {
		k.timer = nil
		return
	}
	k.timer.Reset(parkedTime)
}

// close closes all. Nothing is left afterwards.
func (k *parked) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(len(k.parts))
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
}
