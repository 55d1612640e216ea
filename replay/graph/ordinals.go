package graph

import "math/bits"

// ordinals gives each account a dense number. Both directions are without pointers.
type ordinals struct {
	uids  []uint64 // by ordinal
	table []uint32 // ordinal+1 by hash of the UID, 0 for free; its length is a power of two
}

// find returns the ordinal of an account.
func (o *ordinals) find(uid uint64) (uint32, bool) {
	if len(o.table) == 0 {
		return 0, false
	}
	for at := o.slot(uid); ; at = (at + 1) & (len(o.table) - 1) {
		switch n := o.table[at]; {
		case n == 0:
			return 0, false
		case o.uids[n-1] == uid:
			return n - 1, true
		}
	}
}

// add gives an account without an ordinal the next one.
func (o *ordinals) add(uid uint64) uint32 {
	if o.full() {
		o.grow()
	}
	o.uids = append(o.uids, uid)
	o.put(uid, uint32(len(o.uids)))
	return uint32(len(o.uids) - 1)
}

func (o *ordinals) full() bool { return 4*(len(o.uids)+1) > 3*len(o.table) }

func (o *ordinals) grow() {
	o.table = make([]uint32, max(1<<10, 2*len(o.table)))
	for i, uid := range o.uids {
		o.put(uid, uint32(i+1))
	}
}

func (o *ordinals) put(uid uint64, n uint32) {
	at := o.slot(uid)
	for o.table[at] != 0 {
		at = (at + 1) & (len(o.table) - 1)
	}
	o.table[at] = n
}

// slot is where the search for a UID begins: the top bits of a product (Fibonacci hashing).
func (o *ordinals) slot(uid uint64) int {
	return int(uid * 0x9e3779b97f4a7c15 >> (64 - bits.Len(uint(len(o.table)-1))))
}
