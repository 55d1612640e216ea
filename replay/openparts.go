package replay

import (
	"errors"
	"sync"
	"sync/atomic"

	"millrace/replay/internal/format"
)

var errReaderClosed = errors.New("the reader is closed")

// openParts are the parts that a reader has open: the one that it is in, and those that were read
// ahead for it. Those stay open between its calls of Next that charge takes.
type openParts struct {
	bs      *blockStore
	part    storedPart   // the one that it is in; the reader's, and its log's when that closes
	reached atomic.Int64 // the key of the block whose frames it came to last

	mu sync.Mutex
	// the reader waits, and nothing is read ahead for it until it opens a part; guarded by mu
	idle  bool
	ahead []storedPart // charged; guarded by mu
}

// charge lets p stay open between calls of Next, if that is not too much.
func (bs *blockStore) charge(p *storedPart) bool {
	if p.charged > 0 {
		return true
	}
	n := int64(p.pages.StoredBytes())
	if !bs.cache.Charge(n) {
		return false
	}
	p.charged = n
	return true
}

// open makes the part with this range and key, of n bytes of frames, the one that the reader is in.
// x is its index.
func (o *openParts) open(x *blockIndex, r format.Range, key int64, n int) (*storedPart, error) {
	if err := o.bs.store.Err(); err != nil {
		return nil, err
	}
	p := &o.part
	if !p.is(r, key, n) {
		next, ok := o.take(r, key, n)
		if !ok {
			var err error
			if next, err = o.bs.openPart(x, r, key, n); err != nil {
				return nil, err
			}
		}
		o.leave()
		*p = next
	}
	p.x = x
	return p, nil
}

// leave ends being in a part. One that is not read to its end, a span's copies, is kept for later.
func (o *openParts) leave() {
	if o.part.charged > 0 {
		o.add(&o.part)
		o.part = storedPart{}
	}
	o.part.close()
}

// take returns a part that was read ahead. It closes those of blocks that the reader has left
// behind.
func (o *openParts) take(r format.Range, key int64, n int) (found storedPart, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.idle = false
	kept := o.ahead[:0]
	for i := range o.ahead {
		switch p := &o.ahead[i]; {
		case !ok && p.is(r, key, n):
			found, ok = *p, true
		case p.key <= o.reached.Load():
			p.close()
		default:
			kept = append(kept, *p)
		}
	}
	clear(o.ahead[len(kept):])
	o.ahead = kept
	return found, ok
}

// add takes over p, for when the reader comes to it. If it has come there, or the parts are too
// many, p is closed.
func (o *openParts) add(p *storedPart) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.idle || o.reached.Load() >= p.key || !o.bs.charge(p) {
		p.close()
		return
	}
	o.ahead = append(o.ahead, *p)
}

// close closes all of them. More is closed as it comes, until the next open.
func (o *openParts) close() {
	o.part.close()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.idle = true
	for i := range o.ahead {
		o.ahead[i].close()
	}
	o.ahead = nil
}

// closeOpenParts closes what readers have open. No call of theirs is under way, and nothing is read
// ahead.
func (bs *blockStore) closeOpenParts() {
	for r := range bs.readers.Range {
		r.(*Reader).parts.close()
	}
	bs.readers.Clear()
}

// Release lets go of what the reader has open for its next call of Next. Call it before a wait that
// may be long.
func (r *Reader) Release() { r.release() }

// release returns false if it leaves that to the log's Close. Then Close waits or is at work, or
// Pebble has failed. Pebble may have stopped with its lock held; Log.Close does not wait for that
// for ever.
func (r *Reader) release() bool {
	bs := r.log.blocks
	if !bs.storeMu.TryRLock() {
		return false
	}
	defer bs.storeMu.RUnlock()
	if bs.store.Err() != nil {
		return false
	}
	r.parts.close()
	return true
}

// Close lets go of what the reader has open. Next fails afterwards. Close is safe to call twice,
// and after the log was closed.
func (r *Reader) Close() {
	r.closed = true
	if r.release() {
		r.log.blocks.readers.Delete(r)
	}
}
