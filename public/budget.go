package public

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

const (
	// addressShares is how many addresses at least it takes to use up a budget, unless it is small.
	addressShares = 8
	// largeFilterBytes is what a filter of maxWantedCollections and of maxWantedDIDs, all of them did:plc, takes
	// at most. One address may have two of them, so that one can be replaced by another.
	largeFilterBytes = 320_000
)

// addressShare is how many bytes of a budget one address may have.
func addressShare(budget int64) int64 {
	return min(budget/2, max(budget/addressShares, 2*largeFilterBytes))
}

// half is one of the two parts of a budget. Neither gives to the other.
type half int

const (
	forFilters half = iota
	forRests        // what slow clients have yet to take
)

// budget counts what clients make us remember. It never waits: who asks for more than is left, or than
// one address may have, is refused.
type budget struct {
	max        int64 // bytes; half of it for each half
	perAddress int64 // bytes
	used       atomic.Int64

	mu        sync.Mutex
	halves    [2]int64
	byAddress map[netip.Prefix]int64 // but for loopback, which has no share
}

// purse is what one client may take from one half of a budget.
type purse struct {
	*budget
	half   half
	client netip.Addr
}

func (b *budget) purse(h half, client netip.Addr) purse {
	return purse{budget: b, half: h, client: client}
}

// reserve takes n bytes and says whether they were there.
func (p purse) reserve(n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.halves[p.half]+n > p.max/2 {
		return false
	}
	if !p.client.IsLoopback() && n > 0 {
		key := addressKey(p.client)
		if p.byAddress[key]+n > p.perAddress {
			return false
		}
		if p.byAddress == nil {
			p.byAddress = make(map[netip.Prefix]int64)
		}
		p.byAddress[key] += n
	}
	p.halves[p.half] += n
	p.used.Add(n)
	return true
}

// release gives n bytes back.
func (p purse) release(n int64) {
	if n == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.halves[p.half] -= n
	p.used.Add(-n)
	if p.client.IsLoopback() {
		return
	}
	key := addressKey(p.client)
	if p.byAddress[key] -= n; p.byAddress[key] == 0 {
		delete(p.byAddress, key)
	}
}
