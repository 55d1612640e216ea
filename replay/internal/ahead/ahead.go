// Package ahead decides how far readers of the log look up and read ahead. It is pure: observations
// in, decision out.
package ahead

import "time"

// A selective query reads one span after the other, and then few blocks of each. From memory that
// takes next to no time. From a disk each look-up takes as long as the disk needs to answer, some
// hundred times in a row. So after a slow look-up the planner does several at once, and has the
// blocks that its reader will want read meanwhile.
const (
	// MaxLookups is how many spans a reader looks up at once, and how many blocks are read ahead
	// for it, at most. It is also the limit of all readers together.
	MaxLookups = 16
	// slowLookup is how long a look-up takes that waited for the disk.
	slowLookup = 200 * time.Microsecond
	// slowFingerprint is added to slowLookup for each DID and subject of the filter.
	slowFingerprint = 100 * time.Nanosecond
	// slowByte is added to slowLookup for each byte of a part's first value. To copy a byte out of
	// the page cache and to compute its checksums takes a third of that.
	slowByte = time.Nanosecond
)

// Depth is how many look-ups a reader does at once; 0 and 1: one after the other.
type Depth int

// After returns the depth after one more look-up, which was slow or not.
func (d Depth) After(slow bool) Depth {
	if slow {
		return min(max(2*d, 2), MaxLookups)
	}
	return max(d-1, min(d, 1))
}

// Among returns the depth while so many calls of Next are under way. While others read, too, there
// is something to do until the disk answers.
func (d Depth) Among(scans int) int {
	if scans > 1 {
		return 1
	}
	return max(1, int(d))
}

// Lookup is how long a look-up took, and what it read: fingerprints of a shard, or bytes of a
// part's first value.
type Lookup struct {
	Took                time.Duration
	Fingerprints, Bytes int
}

// Slow says whether it waited for the disk.
func (k Lookup) Slow() bool {
	return k.Took > slowLookup+time.Duration(k.Fingerprints)*slowFingerprint+time.Duration(k.Bytes)*slowByte
}

const (
	// CacheShare is how many of a block's size the caches must hold, so that what is read ahead
	// is not evicted before it is used.
	CacheShare = 8
	// blocksPerCore is how many blocks are read ahead at once for each core, of all readers that
	// do not wait for the disk. maxBlocks is how many at most. Some of them only read indexes, or
	// wait for a core, so that fewer would leave a reader without a block.
	blocksPerCore = 4
	maxBlocks     = 8
	// KnownBlocks is how many blocks are read ahead for such a reader, if it knows which.
	KnownBlocks = 6
	// NextBlocks is how many blocks are read ahead for any other reader, if the slim index of the
	// first is known. One is too few where a chunk has the end of a block and the start of the
	// next.
	NextBlocks = 2
	// WalkBlocks is how many slim indexes a goroutine that reads a block ahead reads at once. One
	// by one, the seek to each takes as long as its read.
	WalkBlocks = 8
)

// Load is what the decision to read one more block ahead depends on.
type Load struct {
	BlockBytes int   // about what the block's part has
	CacheBytes int64 // of the smaller one of the caches that blocks are read ahead into
	Cores      int
	Running    int  // blocks that are being read ahead
	Scans      int  // calls of Next under way
	Slow       bool // the reader waits for the disk
}

// Admits says whether one more block is read ahead.
func (l Load) Admits() bool {
	if int64(l.BlockBytes)*CacheShare > l.CacheBytes {
		return false
	}
	most, share := min(maxBlocks, blocksPerCore*l.Cores), 4
	if l.Slow {
		most, share = MaxLookups, 2
	}
	if l.Scans > 1 {
		most /= share // several readers keep the processors busy as it is; live ones need them too
	}
	return l.Running < most
}

// Window returns how many blocks are read ahead for a reader that looks up so many spans at once.
// cacheBytes is of the cache that they go to, blockBytes about what the part of one has.
func Window(depth int, cacheBytes int64, blockBytes int) int {
	return max(KnownBlocks, min(depth, int(cacheBytes/int64(blockBytes)/CacheShare)))
}
