package simkv

import (
	"slices"
	"strings"
)

// row is a key with its versions, oldest first.
type row struct {
	key      string
	versions []version
}

// version is a value from a commit on. nil: cleared.
type version struct {
	at    uint64
	value []byte
}

// value returns what a reader at version at sees, nil if there is nothing.
func (r *row) value(at uint64) []byte {
	for i := len(r.versions) - 1; i >= 0; i-- {
		if r.versions[i].at <= at {
			return r.versions[i].value
		}
	}
	return nil
}

// written returns the version that wrote it last.
func (r *row) written() uint64 { return r.versions[len(r.versions)-1].at }

// prune forgets versions that no reader at or after oldest can see.
func (r *row) prune(oldest uint64) {
	keep := 0
	for i, v := range r.versions {
		if v.at <= oldest {
			keep = i
		}
	}
	r.versions = slices.Delete(r.versions, 0, keep)
}

// maxLeaf is how many rows a leaf of a table holds before it is split in two.
const maxLeaf = 256

// table holds rows in order of their keys: a list of sorted leaves, with an index for single reads.
type table struct {
	index  map[string]*row
	leaves [][]*row // none empty
}

func newTable() *table { return &table{index: make(map[string]*row)} }

// row returns the row of key, a new one if there was none.
func (t *table) row(key string) *row {
	if r, ok := t.index[key]; ok {
		return r
	}
	r := &row{key: key}
	t.index[key] = r
	if len(t.leaves) == 0 {
		t.leaves = [][]*row{{r}}
		return r
	}
	i, j := t.seek(key)
	if i == len(t.leaves) { // beyond the last key
		i--
		j = len(t.leaves[i])
	}
	leaf := slices.Insert(t.leaves[i], j, r)
	t.leaves[i] = leaf
	if len(leaf) > maxLeaf {
		half := slices.Clone(leaf[len(leaf)/2:])
		t.leaves[i] = slices.Clip(leaf[:len(leaf)/2])
		t.leaves = slices.Insert(t.leaves, i+1, half)
	}
	return r
}

// seek returns the place, leaf and index in it, of the least key at or after key; len(leaves), 0 if
// there is none.
func (t *table) seek(key string) (leaf, at int) {
	leaf, _ = slices.BinarySearchFunc(t.leaves, key, func(l []*row, key string) int {
		return strings.Compare(l[len(l)-1].key, key)
	})
	if leaf == len(t.leaves) {
		return leaf, 0
	}
	at, _ = slices.BinarySearchFunc(t.leaves[leaf], key, func(r *row, key string) int {
		return strings.Compare(r.key, key)
	})
	return leaf, at
}

// from yields the rows at or after begin, in order.
func (t *table) from(begin string) func(yield func(*row) bool) {
	return func(yield func(*row) bool) {
		i, j := t.seek(begin)
		for ; i < len(t.leaves); i, j = i+1, 0 {
			for _, r := range t.leaves[i][j:] {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// before yields the rows before end, backwards.
func (t *table) before(end string) func(yield func(*row) bool) {
	return func(yield func(*row) bool) {
		i, j := t.seek(end)
		for {
			for j--; j >= 0; j-- {
				if !yield(t.leaves[i][j]) {
					return
				}
			}
			if i--; i < 0 {
				return
			}
			j = len(t.leaves[i])
		}
	}
}
