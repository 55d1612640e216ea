package graph

import (
	"fmt"
	"math/bits"
)

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
	n := o.table[o.place(uid)]
	return max(n, 1) - 1, n != 0
}

// add gives an account that has none the next ordinal.
func (o *ordinals) add(uid uint64) uint32 {
	if o.full() {
		o.grow()
	}
	n := uint32(len(o.uids))
	o.table[o.place(uid)] = n + 1
	o.uids = append(o.uids, uid)
	return n
}

func (o *ordinals) full() bool { return 4*(len(o.uids)+1) > 3*len(o.table) }

func (o *ordinals) grow() {
	o.table = make([]uint32, max(1<<10, 2*len(o.table)))
	_ = o.fill() // add has seen to it that none occurs twice
}

// fill fills a table that is empty and has room.
func (o *ordinals) fill() error {
	for i, uid := range o.uids {
		at := o.place(uid)
		if o.table[at] != 0 {
			return fmt.Errorf("account %d occurs twice", uid)
		}
		o.table[at] = uint32(i + 1)
	}
	return nil
}

// place is where in the table an account is, or would be.
func (o *ordinals) place(uid uint64) int {
	at := o.slot(uid)
	for n := o.table[at]; n != 0 && o.uids[n-1] != uid; n = o.table[at] {
		at = (at + 1) & (len(o.table) - 1)
	}
	return at
}

// slot is where the search for a UID begins: the top bits of a product (Fibonacci hashing).
func (o *ordinals) slot(uid uint64) int {
	return int(uid * 0x9e3779b97f4a7c15 >> (64 - bits.Len(uint(len(o.table)-1))))
}
