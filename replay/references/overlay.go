package references

import "encoding/binary"

// What an entry of the overlay takes beside its value: key, entry, and its part of the maps and of
// the batch's lists.
const (
	recordBytes    = 160
	accountBytes   = 200
	referenceBytes = 24 // at most, encoded
)

// overlay is what was hydrated and is not in the database yet, and the cache of accounts. The
// batches are numbered in the order of Hydrate. Guarded by Store.mu.
type overlay struct {
	records  map[recordID]recordEntry
	accounts map[uint64]accountEntry
	bytes    int64
	cache    accountCache
}

// recordEntry is the newest state of a record.
type recordEntry struct {
	batch uint64
	value []byte // of the row; nil: it is deleted
}

// accountEntry is the newest state of an account.
type accountEntry struct {
	batch uint64
	index int // in the batch's accounts
	state accountState
}

// pending is a batch between Hydrate and Apply.
type pending struct {
	number   uint64
	records  []recordWrite
	accounts []accountWrite
	state    state // reached with it
	bytes    int64 // of the overlay
	sync     bool  // it has changes that are not the relay's, and do not come again after a crash
	sweeps   bool  // a floor was raised
}

type recordWrite struct {
	id    recordID
	value []byte // nil: delete it
}

type accountWrite struct {
	account uint64
	state   accountState
	swept   bool // its floor was raised
	purged  bool // its purged rev was
}

func newOverlay(accountBytes int64) overlay {
	return overlay{
		records:  make(map[recordID]recordEntry),
		accounts: make(map[uint64]accountEntry),
		cache:    newAccountCache(accountBytes),
	}
}

// account returns the newest state of an account, if it is known without the database.
func (o *overlay) account(account uint64) (accountState, bool) {
	if e, ok := o.accounts[account]; ok {
		return e.state, true
	}
	return o.cache.get(account)
}

// leave removes what p wrote last: it is in the database.
func (o *overlay) leave(p *pending) {
	for i := range p.records {
		id := p.records[i].id
		if e, ok := o.records[id]; ok && e.batch == p.number {
			delete(o.records, id)
		}
	}
	for i := range p.accounts {
		w := &p.accounts[i]
		if e, ok := o.accounts[w.account]; ok && e.batch == p.number {
			delete(o.accounts, w.account)
		}
		o.cache.put(w.account, w.state)
	}
	o.bytes -= p.bytes
}

// cost is the most that a batch may take of the overlay.
func cost(changes []Change) int64 {
	var bytes int64
	for i := range changes {
		bytes += recordBytes + accountBytes + int64(len(changes[i].References))*referenceBytes
	}
	return bytes
}

// rowBytes is the most that the changes' rows take; cost has it too.
func rowBytes(changes []Change) (bytes int) {
	for i := range changes {
		if c := &changes[i]; c.Operation == Create || c.Operation == Update {
			bytes += binary.MaxVarintLen64 + len(c.References)*referenceBytes
		}
	}
	return bytes
}

// accountCache has states of accounts that are in the database. What was used lately is in young;
// when that is full it becomes old, whose accounts are then forgotten.
type accountCache struct {
	young, old map[uint64]accountState
	most       int // of each
}

// cachedAccountBytes is what an account takes in a map.
const cachedAccountBytes = 96

func newAccountCache(bytes int64) accountCache {
	most := max(int(bytes/2/cachedAccountBytes), 64)
	return accountCache{young: make(map[uint64]accountState), old: make(map[uint64]accountState), most: most}
}

func (c *accountCache) get(account uint64) (accountState, bool) {
	if s, ok := c.young[account]; ok {
		return s, true
	}
	s, ok := c.old[account]
	if ok {
		c.put(account, s)
	}
	return s, ok
}

func (c *accountCache) put(account uint64, s accountState) {
	if _, ok := c.young[account]; !ok && len(c.young) >= c.most {
		c.young, c.old = c.old, c.young
		clear(c.young)
	}
	c.young[account] = s
	// old may have a state from before; get prefers young
}

func (c *accountCache) clear() {
	clear(c.young)
	clear(c.old)
}
