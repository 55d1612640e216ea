// Package cache keeps values that many readers share, within a bound of bytes. The one that comes
// first loads a value, the others wait for it. What was used least recently is evicted.
package cache

import (
	"container/list"
	"errors"
	"sync"
)

// entryBytes is about what an entry takes beside its value.
const entryBytes = 256

// Config says what a cache holds.
type Config[V any] struct {
	MaxBytes   int64 // of all values and charges together
	MaxCharges int
	Size       func(V) int64 // how much memory a value takes
}

// Cache is safe for concurrent use. Its values are never changed; one may be used even after it was
// evicted.
type Cache[K comparable, V any] struct {
	Config[V]

	mu      sync.Mutex
	entries map[K]*entry[K, V]
	recent  *list.List // of *entry, most recent first
	bytes   int64      // of values
	charged int64
	charges int

	hits, misses uint64
}

// entry is a value, or one that is being loaded.
type entry[K comparable, V any] struct {
	done  chan struct{} // closed once value and err are set
	value V
	err   error

	key   K
	bytes int64
	at    *list.Element // nil: evicted, or not there yet
}

// New returns an empty cache.
func New[K comparable, V any](cfg Config[V]) *Cache[K, V] {
	return &Cache[K, V]{Config: cfg, entries: make(map[K]*entry[K, V]), recent: list.New()}
}

// errUnfilled is the error of an entry until its loader returns. Only callers see it that wait for
// a loader that panics.
var errUnfilled = errors.New("the cache's loader did not finish")

// Get returns the value of k. If it is not there, load makes it. A value that could not be loaded
// is forgotten, so that the next reader tries again.
func (c *Cache[K, V]) Get(k K, load func() (V, error)) (V, error) {
	c.mu.Lock()
	e := c.findLocked(k)
	if e != nil {
		c.mu.Unlock()
		<-e.done
		return e.value, e.err
	}
	e = &entry[K, V]{done: make(chan struct{}), key: k, err: errUnfilled}
	c.entries[k] = e
	c.misses++
	c.mu.Unlock()
	defer c.fill(e)
	e.value, e.err = load()
	return e.value, e.err
}

// Peek returns the value of k if it is there, or about to be. ok is false if it is not, or could
// not be loaded.
func (c *Cache[K, V]) Peek(k K) (v V, ok bool) {
	c.mu.Lock()
	e := c.findLocked(k)
	c.mu.Unlock()
	if e == nil {
		return v, false
	}
	<-e.done
	return e.value, e.err == nil
}

// findLocked returns the entry of k, and makes it the most recent; nil: there is none.
func (c *Cache[K, V]) findLocked(k K) *entry[K, V] {
	e := c.entries[k]
	if e == nil {
		return nil
	}
	if e.at != nil {
		c.recent.MoveToFront(e.at)
	}
	c.hits++
	return e
}

// fill makes an entry available whose loader has returned.
func (c *Cache[K, V]) fill(e *entry[K, V]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(e.done)
	if e.err != nil {
		delete(c.entries, e.key)
		return
	}
	e.bytes = entryBytes + c.Size(e.value)
	e.at = c.recent.PushFront(e)
	c.bytes += e.bytes
	c.evictLocked()
}

// Charge counts n bytes that are held elsewhere against the bound. It returns false, and does
// not, if all that is charged were more than half of the bound, or in too many charges. A negative
// n takes a charge back.
func (c *Cache[K, V]) Charge(n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 0 {
		c.charges--
		c.charged += n
		return true
	}
	if c.charges == c.MaxCharges || c.charged+n > c.MaxBytes/2 {
		return false
	}
	c.charges++
	c.charged += n
	c.evictLocked()
	return true
}

// evictLocked drops what was used least recently until the rest is within the bound.
func (c *Cache[K, V]) evictLocked() {
	for c.bytes+c.charged > c.MaxBytes {
		last := c.recent.Back()
		old := last.Value.(*entry[K, V])
		c.recent.Remove(last)
		old.at = nil
		delete(c.entries, old.key)
		c.bytes -= old.bytes
	}
}

// Stats is what a cache has and had.
type Stats struct {
	Bytes        int64 // of values and charges
	Charged      int64 // of charges
	Charges      int
	Hits, Misses uint64 // so far
}

// Stats returns what the cache has now.
func (c *Cache[K, V]) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{Bytes: c.bytes + c.charged, Charged: c.charged, Charges: c.charges, Hits: c.hits, Misses: c.misses}
}

// Values returns what the cache holds, by key.
func (c *Cache[K, V]) Values() map[K]V {
	c.mu.Lock()
	defer c.mu.Unlock()
	values := make(map[K]V, len(c.entries))
	for k, e := range c.entries {
		if e.at != nil {
			values[k] = e.value
		}
	}
	return values
}
