package format

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// NameTable is a list of distinct names, back to back. It is immutable.
type NameTable struct {
	text string
	ends []uint32
}

// NewNameTable returns a table of the names, which must be distinct.
func NewNameTable(names ...string) NameTable {
	var t NameTable
	for _, name := range names {
		t.text += name
		t.ends = append(t.ends, uint32(len(t.text)))
	}
	return t
}

// Len returns the number of names.
func (t *NameTable) Len() int { return len(t.ends) }

// At returns name i. It aliases the table's memory.
func (t *NameTable) At(i int) string { return t.text[FrameStart(t.ends, i):t.ends[i]] }

// bytes returns about how much memory the table takes.
func (t *NameTable) bytes() int { return len(t.text) + 4*len(t.ends) }

// appendTable appends a table: column id, which says where each name ends, and the names.
func appendTable(dst []byte, id byte, t *NameTable) []byte {
	dst = appendColumn(dst, id, true, t.ends)
	return append(dst, t.text...)
}

// table reads a table of n names.
func (d *decoder) table(id byte, n int) NameTable {
	t := NameTable{ends: make([]uint32, n)}
	decodeNext(d, id, t.ends)
	if d.err != nil || n == 0 {
		return NameTable{}
	}
	for i := 1; i < n; i++ {
		if t.ends[i] < t.ends[i-1] {
			d.fail(fmt.Errorf("table %d does not ascend", id))
			return NameTable{}
		}
	}
	t.text = string(d.take(int(t.ends[n-1])))
	return t
}

// nameTableBuilder numbers distinct names. It is an open hash table without deletions, at most half
// full.
type nameTableBuilder struct {
	text   []byte
	ends   []uint32
	hashes []uint64
	slots  []uint16 // 1 + number; 0: free
	name   []byte   // of numberString
}

func (t *nameTableBuilder) reset() {
	t.text, t.ends, t.hashes = t.text[:0], t.ends[:0], t.hashes[:0]
	clear(t.slots)
}

// number returns the number of a name, which it enters if it is new.
func (t *nameTableBuilder) number(name []byte) uint16 {
	if 2*len(t.ends) >= len(t.slots) {
		t.grow()
	}
	h := xxhash.Sum64(name)
	mask := uint64(len(t.slots) - 1)
	for at := h & mask; ; at = (at + 1) & mask {
		n := t.slots[at]
		if n == 0 {
			t.text = append(t.text, name...)
			t.ends = append(t.ends, uint32(len(t.text)))
			t.hashes = append(t.hashes, h)
			t.slots[at] = uint16(len(t.ends))
			return uint16(len(t.ends) - 1)
		}
		if t.hashes[n-1] == h && bytes.Equal(t.text[FrameStart(t.ends, int(n-1)):t.ends[n-1]], name) {
			return n - 1
		}
	}
}

// numberString is number for a name that is a string.
func (t *nameTableBuilder) numberString(name string) uint16 {
	t.name = append(t.name[:0], name...)
	return t.number(t.name)
}

func (t *nameTableBuilder) grow() {
	t.slots = make([]uint16, max(64, 2*len(t.slots)))
	mask := uint64(len(t.slots) - 1)
	for i, h := range t.hashes {
		at := h & mask
		for t.slots[at] != 0 {
			at = (at + 1) & mask
		}
		t.slots[at] = uint16(i + 1)
	}
}

// table returns a copy that is the caller's.
func (t *nameTableBuilder) table() NameTable { return NameTable{string(t.text), slices.Clone(t.ends)} }
