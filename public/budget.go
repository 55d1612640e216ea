package public

import "sync/atomic"

// budget counts what clients make us remember. It never waits: who asks for more than is left is
// refused.
type budget struct {
	max  int64
	used atomic.Int64
}

// reserve takes n bytes and says whether they were there.
func (b *budget) reserve(n int64) bool {
	if b.used.Add(n) > b.max {
		b.used.Add(-n)
		return false
	}
	return true
}

// release gives n bytes back.
func (b *budget) release(n int64) { b.used.Add(-n) }
