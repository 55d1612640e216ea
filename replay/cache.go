package replay

import (
	"container/list"
	"errors"
	"fmt"
	"sync"

	"millrace/replay/internal/format"
)

// cacheKey names one thing in the cache: a stored part of a block, or a variant of it.
type cacheKey struct {
	block     int64
	part      format.Range // its range; 0: a variant of a block of the tail
	substream int          // of a plain part, counted over its pages
	variant   variant
	// of a variant, the stamp of its first event. A merged block has the key of the last small
	// block in it, and both have variants
	first int64
}

// frames are a variant's frames, back to back.
type frames struct {
	data []byte
	ends []uint32 // one past each event's frame
	// sizes that events count with against a filter's limit; nil: those of the frames' payloads
	payloads []uint32
}

// cacheEntry is what the cache holds, or will: its fields are set before done is closed and never
// change after. Who holds an entry may use it even after it was evicted.
type cacheEntry struct {
	done chan struct{}
	idx  *blockIndex        // of part RangeIndex, RangeSlimIndex or RangeCopiesIndex
	span *format.Span       // of part RangeSpan
	refs *format.References // of part RangeReferences
	frames
	err error

	key   cacheKey
	bytes int64
	at    *list.Element // nil: evicted, or not there yet
}

// DecodeSpan fills the entry of a span.
func (e *cacheEntry) decodeSpan(b []byte) (err error) {
	if e.span, err = format.DecodeSpan(b); err == nil && e.span.Key() != e.key.block {
		err = fmt.Errorf("its last block is %d", e.span.Key())
	}
	return err
}

func (e *cacheEntry) spanBytes() int64 {
	if e.err != nil {
		return 0
	}
	return e.span.Memory()
}

// maxHeldParts is how many parts all readers together hold open between their calls of Next, at
// most. An open part keeps memory of Pebble's, and files that a trim has deleted. Its bytes are
// charged to the cache.
const maxHeldParts = 16

// cache keeps parts of blocks that are not in the tail, and variants, for all readers. The one that
// comes first loads or builds, the others wait for it. It is bounded by bytes and evicts what was
// used least recently.
type cache struct {
	maxBytes int64

	mu      sync.Mutex
	entries map[cacheKey]*cacheEntry
	recent  *list.List // of *cacheEntry, most recent first
	bytes   int64
	charged int64 // bytes of the parts that readers hold open
	held    int   // their number

	hits, misses uint64
}

func newCache(maxBytes int64) *cache {
	return &cache{maxBytes: maxBytes, entries: make(map[cacheKey]*cacheEntry), recent: list.New()}
}

// errUnfilled is the error of an entry until its owner sets another, or nil. Nobody sees it but
// those who wait for an owner that panics.
var errUnfilled = errors.New("the cache's loader did not finish")

// find returns the entry of k. If mine is set, the caller must set its contents and err, and fill
// it, whatever happens. Otherwise it is ready, or failed as its err says.
func (c *cache) find(k cacheKey) (e *cacheEntry, mine bool) {
	c.mu.Lock()
	e, ok := c.entries[k]
	if ok {
		if e.at != nil {
			c.recent.MoveToFront(e.at)
		}
		c.hits++
		c.mu.Unlock()
		<-e.done
		return e, false
	}
	e = &cacheEntry{done: make(chan struct{}), key: k, err: errUnfilled}
	c.entries[k] = e
	c.misses++
	c.mu.Unlock()
	return e, true
}

// peek returns the entry of k if there is one that is good, or about to be.
func (c *cache) peek(k cacheKey) *cacheEntry {
	c.mu.Lock()
	e, ok := c.entries[k]
	if ok {
		if e.at != nil {
			c.recent.MoveToFront(e.at)
		}
		c.hits++
	}
	c.mu.Unlock()
	if !ok {
		return nil
	}
	if <-e.done; e.err != nil {
		return nil
	}
	return e
}

// fill makes e, whose contents were set by its owner, available. One that failed is forgotten, so
// that the next reader tries again.
func (c *cache) fill(e *cacheEntry, bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(e.done)
	if e.err != nil {
		delete(c.entries, e.key)
		return
	}
	e.bytes = bytes + 256
	e.at = c.recent.PushFront(e)
	c.bytes += e.bytes
	c.evictLocked()
}

// charge counts a part of n bytes that a reader holds open against the bound. It returns false, and
// does not, if that is more than half of it, or there are too many. A negative n takes back what
// was charged.
func (c *cache) charge(n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 0 {
		c.held--
		c.charged += n
		return true
	}
	if c.held == maxHeldParts || c.charged+n > c.maxBytes/2 {
		return false
	}
	c.held++
	c.charged += n
	c.evictLocked()
	return true
}

// evictLocked drops what was used least recently until the rest is within the bound.
func (c *cache) evictLocked() {
	for c.bytes+c.charged > c.maxBytes {
		last := c.recent.Back()
		old := last.Value.(*cacheEntry)
		c.recent.Remove(last)
		old.at = nil
		delete(c.entries, old.key)
		c.bytes -= old.bytes
	}
}

// size returns how many bytes the cache holds and is charged, and its hits and misses so far.
func (c *cache) size() (bytes int64, hits, misses uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes + c.charged, c.hits, c.misses
}
