package admission

import (
	"slices"
	"sync"
)

// Chunks bounds the bytes of the chunks that are in memory for subscribers that catch up. They are
// served in the order in which they ask. Its methods are safe for concurrent use.
type Chunks struct {
	mu      sync.Mutex
	free    int64 // below 0 after Add
	waiting []chunkRequest
}

type chunkRequest struct {
	bytes   int64
	granted chan struct{}
}

// NewChunks makes Chunks of so many bytes.
func NewChunks(bytes int64) *Chunks { return &Chunks{free: bytes} }

// Take takes n bytes, at once or later. The channel that it returns is closed then. A caller that
// stops waiting calls Cancel.
func (c *Chunks) Take(n int64) (granted <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := chunkRequest{bytes: n, granted: make(chan struct{})}
	c.waiting = append(c.waiting, r)
	c.grantLocked()
	return r.granted
}

// Cancel ends the wait for n bytes. If they were taken meanwhile, it gives them back.
func (c *Chunks) Cancel(granted <-chan struct{}, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := len(c.waiting)
	c.waiting = slices.DeleteFunc(c.waiting, func(r chunkRequest) bool { return r.granted == granted })
	if len(c.waiting) == waiting {
		c.free += n
	}
	c.grantLocked()
}

// Add takes n bytes more, whether they are free or not: a single event may be larger than a chunk's
// bound.
func (c *Chunks) Add(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free -= n
}

// Release gives n bytes back.
func (c *Chunks) Release(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free += n
	c.grantLocked()
}

func (c *Chunks) grantLocked() {
	for len(c.waiting) > 0 && c.free >= c.waiting[0].bytes {
		c.free -= c.waiting[0].bytes
		close(c.waiting[0].granted)
		c.waiting = c.waiting[1:]
	}
}
