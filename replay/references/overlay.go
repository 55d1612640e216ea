package references

import (
	"encoding/binary"
	"maps"
)

// What an entry of the overlay takes beside its value: key, entry, and its part of the maps and of
// the batch's lists.
const (
	recordBytes    = 160
	accountBytes   = 200
	referenceBytes = 24 // at most, encoded
)

// overlay is the records of the batches that were hydrated last. A batch stays after Apply while
// there is room for it: records that were changed a moment ago need no look-up. The batches are
// numbered in the order of Hydrate. Guarded by Store.mu.
type overlay struct {
	records map[recordID]recordEntry
	bytes   int64
	applied []*pending // batches that the database has too; the next to leave is first
	left    uint64     // number of the last batch that has left
}

// recordEntry is the newest state of a record.
type recordEntry struct {
	batch uint64
	value []byte // of the row; nil: it is deleted
}

// pending is what a hydrated batch writes.
type pending struct {
	number   uint64
	records  []recordWrite
	accounts []accountWrite
	state    state // reached with it
	bytes    int64 // of the overlay
	sweeps   bool  // a floor was raised
}

type recordWrite struct {
	id    recordID
	value []byte // nil: delete it
	old   []byte // what it replaces; nil: nothing
	below bool   // old is below the floor: the sweep deletes it, before Apply or later
}

type accountWrite struct {
	account uint64
	state   accountState
	swept   bool // its floor was raised
	purged  bool // its purged rev was raised
}

// lastApplied returns the number of the last batch that the database has.
func (o *overlay) lastApplied() uint64 { return o.left + uint64(len(o.applied)) }

// makeRoom lets applied batches leave until bytes fit below most, or none is left. What a batch
// wrote and no later one replaced goes with it: the database has it.
func (o *overlay) makeRoom(bytes, most int64) {
	for len(o.applied) > 0 && o.bytes+bytes > most {
		p := o.applied[0]
		o.applied[0] = nil
		o.applied = o.applied[1:]
		for i := range p.records {
			id := p.records[i].id
			if e, ok := o.records[id]; ok && e.batch == p.number {
				delete(o.records, id)
			}
		}
		o.bytes -= p.bytes
		o.left = p.number
	}
}

// cost is the most that a batch may take of the overlay.
func cost(changes []Change) int64 {
	var bytes int64
	for i := range changes {
		bytes += recordBytes + accountBytes + int64(len(changes[i].References))*referenceBytes
	}
	return bytes
}

// rowBytes returns how many bytes the rows of the changes may take in the store, at most.
func rowBytes(changes []Change) (bytes int) {
	for i := range changes {
		if c := &changes[i]; c.Operation == Create || c.Operation == Update {
			bytes += binary.MaxVarintLen64 + len(c.References)*referenceBytes
		}
	}
	return bytes
}

// accountCache has the newest states of accounts. Those used last are in young. When young is full
// it becomes old. The accounts of the previous old are dropped, but for those that a batch before
// Apply uses. It belongs to the goroutine of Hydrate.
type accountCache struct {
	young, old map[uint64]*accountEntry
	most       int // of each
	limit      int // of young now: most, and those that were kept
}

// accountEntry is the newest state of an account.
type accountEntry struct {
	state accountState
	batch uint64 // the last that uses it
	index int    // in that batch's accounts; -1: it is not written
}

// cachedAccountBytes is what an account takes in a map, with its entry.
const cachedAccountBytes = 112

func newAccountCache(bytes int64) accountCache {
	most := max(int(bytes/2/cachedAccountBytes), 64)
	return accountCache{
		young: make(map[uint64]*accountEntry), old: make(map[uint64]*accountEntry), most: most, limit: most,
	}
}

// use returns the entry of an account, for a batch. known is false if the entry is new, and its
// state has to be read. applied is the last batch that the database has.
func (c *accountCache) use(account, batch, applied uint64) (e *accountEntry, known bool) {
	e, known = c.young[account]
	if !known {
		if e, known = c.old[account]; !known {
			e = &accountEntry{}
		}
		if len(c.young) >= c.limit {
			c.turn(applied)
		}
		c.young[account] = e
	}
	if e.batch != batch {
		e.batch, e.index = batch, -1
	}
	return e, known
}

// turn makes the young entries old. It drops the old ones, but for those that a batch before Apply
// uses, which stay in young.
func (c *accountCache) turn(applied uint64) {
	maps.DeleteFunc(c.old, func(_ uint64, e *accountEntry) bool { return e.batch <= applied })
	c.young, c.old = c.old, c.young
	c.limit = len(c.young) + c.most
}
