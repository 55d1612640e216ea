package intern

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// item is one string to be resolved, with the DID it hangs on, or a DID alone.
type item struct {
	did  []byte // forward key of the DID, if its UID is not known; nil for formHandle
	coll []byte // collection, if its number is not known
	text []byte // as in entry; for formRecord and formHandle

	tid    uint64
	didUID uint64 // 0: not known
	uriUID uint64 // 0: not known, or there is no URI
	hash   uint64 // of did, or of text for formHandle: decides on the worker

	collNum uint32 // 0: not known, or there is no collection
	index   int32  // of the request
	form    form   // of the URI, if there is one
	isURI   bool
	isNew   bool // uriUID was given by the transaction that the item was in

	// the handle of the item before: its UID is that of the authority there
	isAuthority bool

	didAt, collAt, uriAt int32 // of a transaction: places in its lists, -1 for none
}

// done says whether nothing is left to find out.
func (i *item) done() bool { return (i.did == nil || i.didUID != 0) && (!i.isURI || i.uriUID != 0) }

// entry returns what is stored of the URI, once its DID and its collection are known.
func (i *item) entry() entry {
	return entry{form: i.form, coll: i.collNum, auth: i.didUID, tid: i.tid, text: i.text}
}

// uid returns the UID of the string, 0 if it is not known.
func (i *item) uid() uint64 {
	if i.isURI {
		return i.uriUID
	}
	return i.didUID
}

// advance fills in what the caches know. Unless that is all, it appends the key to look up next to
// dst: the DID's, else the URI's; nothing if the collection's number is missing.
func (i *item) advance(in *Interner, dst []byte) (key []byte, done bool) {
	if i.did != nil && i.didUID == 0 {
		if i.didUID = in.dids.get(i.hash, i.did); i.didUID == 0 {
			return append(dst, i.did...), false
		}
	}
	if i.done() {
		return dst, true
	}
	if i.coll != nil && i.collNum == 0 {
		if i.collNum = in.collections.number(i.coll); i.collNum == 0 {
			return dst, false
		}
	}
	e := i.entry()
	key = in.codec.appendKey(dst, &e)
	i.uriUID = in.uris.get(hashKey(key), key)
	return key, i.uriUID != 0
}

func hashKey(key []byte) uint64 { return xxhash.Sum64(key) }

// call is one batch on its way through the workers. Its items and buffer belong to the workers from
// the moment it is queued until the last part is done. A caller that leaves early leaves the call
// to the garbage collector.
type call struct {
	in     *Interner
	ctx    context.Context
	items  []item
	buffer []byte // the items' bytes
	key    []byte // scratch

	tasks atomic.Int32  // tasks not done yet
	ready chan struct{} // receives one value when tasks reaches 0

	mu  sync.Mutex
	err error // the first
}

func (in *Interner) newCall(ctx context.Context) *call {
	c, ok := in.calls.Get().(*call)
	if !ok {
		c = &call{in: in, ready: make(chan struct{}, 1)}
	}
	c.ctx, c.err = ctx, nil
	c.items, c.buffer = c.items[:0], c.buffer[:0]
	return c
}

// maxPooledBuffer keeps a rare huge batch from being kept for ever.
const maxPooledBuffer = 1 << 20

// release takes a call back for the next batch. Only after every part is done.
func (in *Interner) release(c *call) {
	c.ctx = nil
	if cap(c.buffer) <= maxPooledBuffer && cap(c.items) <= maxPooledBuffer/64 {
		clear(c.items)
		in.calls.Put(c)
	}
}

// keep copies b into the buffer.
func (c *call) keep(b []byte) []byte {
	at := len(c.buffer)
	c.buffer = append(c.buffer, b...)
	return c.buffer[at:len(c.buffer):len(c.buffer)]
}

// finish says that one part is done.
func (c *call) finish(err error) {
	if err != nil {
		c.mu.Lock()
		if c.err == nil {
			c.err = err
		}
		c.mu.Unlock()
	}
	if c.tasks.Add(-1) == 0 {
		c.ready <- struct{}{}
	}
}

// add appends the item of a valid name, as far as the caches know it.
func (c *call) add(n *name, index int) {
	in := c.in
	isURI := !n.form.isDID()
	i := item{form: n.form, isURI: isURI && in.cfg.Scope == ScopeAll, index: int32(index)}
	if n.form == formHandle {
		if i.isURI {
			i.text = c.keep(n.text)
			i.hash = hashKey(i.text)
		}
		c.items = append(c.items, i)
		return
	}
	c.key = appendDIDKey(c.key[:0], n.did)
	i.hash = hashKey(c.key)
	if i.didUID = in.dids.get(i.hash, c.key); i.didUID == 0 {
		i.did = c.keep(c.key)
	} else {
		in.metrics.didHits.Inc()
	}
	if i.isURI {
		c.addURI(n, &i)
	}
	c.items = append(c.items, i)
}

// addHandle appends the item of the authority of n, an AT URI with a handle.
func (c *call) addHandle(n *name, index int) {
	handle, _, _ := bytes.Cut(n.text, []byte("/"))
	c.add(&name{form: formHandle, text: handle}, index)
	c.items[len(c.items)-1].isAuthority = true
}

// addURI fills in what the item needs for its URI.
func (c *call) addURI(n *name, i *item) {
	in := c.in
	i.tid = n.tid
	if len(n.coll) > 0 {
		if i.collNum = in.collections.number(n.coll); i.collNum == 0 {
			i.coll = c.keep(n.coll)
		}
	}
	if i.didUID != 0 && i.coll == nil {
		e := entry{form: i.form, coll: i.collNum, auth: i.didUID, tid: i.tid, text: n.text}
		c.key = in.codec.appendKey(c.key[:0], &e)
		if i.uriUID = in.uris.get(hashKey(c.key), c.key); i.uriUID != 0 {
			in.metrics.uriHits.Inc()
			return
		}
	}
	if i.form == formRecord {
		i.text = c.keep(n.text)
	}
}
