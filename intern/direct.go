package intern

import (
	"errors"
	"time"

	"millrace/intern/kv"
)

// maxDirect is how many strings a call may have to be interned directly: more are worth the
// workers.
const maxDirect = 64

// direct interns the items of a small call in the caller's own goroutine and in one transaction,
// while no worker has one in flight. It takes the first worker's place. On a quiet stream a block
// so costs one commit instead of one for each worker whose share it touches. It wakes no
// goroutine. It makes one attempt; false means that the workers must do it. Only on a store that
// is ours alone: on one that is shared, the instances' transactions stay as they are.
func (in *Interner) direct(c *call, items []*item) bool {
	if !in.exclusive || len(items) > maxDirect || !in.working.TryLock() {
		return false
	}
	defer in.working.Unlock()
	if in.ctx.Err() != nil || c.ctx.Err() != nil {
		return false
	}
	size := 0
	for _, i := range items {
		size += len(i.did) + len(i.coll) + len(i.text)
	}
	if size > maxItemBytes {
		return false
	}
	w := in.workers[0]
	w.txn.collect(items)
	begun := time.Now()
	if err := in.attempt(c.ctx, in.cfg.Timeout, w.txn.run); err != nil {
		w.txn.failed(!errors.Is(err, kv.ErrConflict))
		if c.ctx.Err() == nil {
			w.countRetry(err)
		}
		return false
	}
	w.txn.committed()
	in.metrics.transactionSeconds.Observe(time.Since(begun).Seconds())
	return true
}
