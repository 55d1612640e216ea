package references

import (
	"errors"

	"github.com/cespare/xxhash/v2"

	"millrace/replay/internal/postings"
)

// HeadFilterBytes is what a headFilter takes.
const HeadFilterBytes = 256 << 10

// headFilter says which keys of heads may exist. Few sets are large: of most no head need be read.
// With more large sets than it has bits for it says of more sets that they may be. Guarded by
// commits.mu.
type headFilter []uint64 // a bit for each value of a hash

func (f headFilter) bit(key []byte) (word *uint64, mask uint64) {
	h := xxhash.Sum64(key)
	return &f[h%uint64(len(f))], 1 << (h >> 58)
}

func (f headFilter) add(key []byte) {
	word, mask := f.bit(key)
	*word |= mask
}

func (f headFilter) has(key []byte) bool {
	word, mask := f.bit(key)
	return *word&mask != 0
}

// loadHeads makes the filter, of all heads that are stored.
func (s *Store) loadHeads() error {
	s.commits.heads = make(headFilter, HeadFilterBytes/8)
	it, err := s.rangeIter(keyRange(postings.RangeHead))
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		s.commits.heads.add(it.Key())
	}
	return errors.Join(it.Error(), it.Close())
}
