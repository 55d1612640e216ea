package intern

import (
	"bytes"
	"context"
	"math"
	"slices"
	"unsafe"

	"millrace/intern/kv"
)

// maxCollection is the greatest collection number.
const maxCollection = math.MaxInt32

// transaction interns a set of items: collect once, then run in transactions of the store until one
// commits, then committed. It belongs to one worker, whose buffers it keeps.
type transaction struct {
	in        *Interner
	allocator allocator
	items     []*item

	dids  []nameState
	colls []collState
	uris  []nameState
	// key -> place in one of the lists; its strings are bytes of the items or of buffer
	index map[string]int32

	keys, values [][]byte
	read         []int32 // places in uris, in the order of their keys
	buffer       []byte
	chunk        chunkWriter
	scratch      []byte
}

// nameState is a DID or AT URI not known when the transaction was collected.
type nameState struct {
	entry entry
	key   []byte // forward
	uid   uint64
	fresh bool // given its UID by this attempt
}

// collState is a collection whose number was not known.
type collState struct {
	name   []byte
	number uint32
	fresh  bool
}

func newTransaction(in *Interner) transaction {
	return transaction{
		in:        in,
		allocator: allocator{codec: in.codec, sequences: in.sequences, metrics: in.metrics},
		index:     make(map[string]int32),
	}
}

// collect lists the DIDs and collections that have to be read, each once.
func (t *transaction) collect(items []*item) {
	t.items = items
	t.dids, t.colls = t.dids[:0], t.colls[:0]
	clear(t.index)
	first := false
	for _, i := range items {
		i.didAt, i.collAt, i.uriAt = -1, -1, -1
		if i.did != nil && i.didUID == 0 {
			if uid := t.in.dids.get(i.hash, i.did); uid != 0 { // committed since the item was made
				i.didUID = uid
			} else if i.didAt, first = t.place(i.did, len(t.dids)); first {
				t.dids = append(t.dids, nameState{entry: entry{form: form(i.did[0] - tagNames), text: i.did[1:]}, key: i.did})
			}
		}
		if i.coll != nil && i.collNum == 0 {
			if n := t.in.collections.number(i.coll); n != 0 { // committed since the item was made
				i.collNum = n
			} else if i.collAt, first = t.place(i.coll, len(t.colls)); first {
				t.colls = append(t.colls, collState{name: i.coll})
			}
		}
	}
}

// place returns the place of key in a list of n keys. If the list lacks it, first is true and the
// place is the next one. NSIDs differ from keys of DIDs.
func (t *transaction) place(key []byte, n int) (at int32, first bool) {
	at, there := t.index[alias(key)]
	if !there {
		at = int32(n)
		t.index[alias(key)] = at
	}
	return at, !there
}

// numbers says whether there are collections whose number is not known.
func (t *transaction) numbers() bool { return len(t.colls) > 0 }

// alias returns b as a string without copying it: b must not change while the string is in use.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// run is one attempt. It may be called again after any error.
func (t *transaction) run(ctx context.Context, txn kv.Txn) error {
	t.buffer = t.buffer[:0]
	if err := t.readNames(ctx, txn); err != nil {
		return err
	}
	for i := range t.dids {
		if err := t.give(ctx, txn, &t.dids[i]); err != nil {
			return err
		}
	}
	t.listURIs()
	if err := t.readURIs(ctx, txn); err != nil {
		return err
	}
	// In the order of their keys, so names that are next to each other by key are so by UID.
	for _, at := range t.read {
		if err := t.give(ctx, txn, &t.uris[at]); err != nil {
			return err
		}
	}
	t.flushChunk(txn)
	t.allocator.finish(txn)
	return nil
}

// keep returns what was appended to the buffer from at on. It stays valid when the buffer grows.
func (t *transaction) keep(at int) []byte { return t.buffer[at:len(t.buffer):len(t.buffer)] }

func (t *transaction) get(ctx context.Context, txn kv.Txn) error {
	t.values = slices.Grow(t.values[:0], len(t.keys))[:len(t.keys)]
	return txn.Get(ctx, t.keys, t.values)
}

// readNames reads the counter of the sequence, the DIDs and the collections, and numbers new
// collections.
func (t *transaction) readNames(ctx context.Context, txn kv.Txn) error {
	t.keys = append(t.keys[:0], t.allocator.counterKey())
	for i := range t.dids {
		t.keys = append(t.keys, t.dids[i].key)
	}
	for i := range t.colls {
		at := len(t.buffer)
		t.buffer = appendCollNameKey(t.buffer, t.colls[i].name)
		t.keys = append(t.keys, t.keep(at))
	}
	if len(t.colls) > 0 {
		t.keys = append(t.keys, []byte(keyCollections))
	}
	if err := t.get(ctx, txn); err != nil {
		return err
	}
	if err := t.allocator.begin(ctx, txn, t.values[0]); err != nil {
		return err
	}
	for i := range t.dids {
		if err := t.dids[i].read(t.in.codec, t.values[1+i]); err != nil {
			return err
		}
	}
	return t.numberCollections(txn, t.keys[1+len(t.dids):], t.values[1+len(t.dids):])
}

// numberCollections takes the values that were read of the collections; the last one is their
// counter.
func (t *transaction) numberCollections(txn kv.Txn, keys, values [][]byte) error {
	if len(t.colls) == 0 {
		return nil
	}
	before, err := numberOrZero(values[len(t.colls)])
	if err != nil {
		return err
	}
	last := before
	for i := range t.colls {
		c := &t.colls[i]
		if c.fresh = values[i] == nil; !c.fresh {
			if c.number, err = collectionNumber(values[i]); err != nil {
				return err
			}
			continue
		}
		if last++; last > maxCollection {
			return errExhausted
		}
		c.number = uint32(last)
		txn.Set(keys[i], appendNumber(last))
		txn.Set(appendCollNumberKey(nil, c.number), c.name)
	}
	if last > before {
		txn.Set([]byte(keyCollections), appendNumber(last))
	}
	return nil
}

// read takes the value that the store has under the key.
func (s *nameState) read(c codec, value []byte) (err error) {
	s.uid, err = c.uidOrZero(value)
	s.fresh = s.uid == 0
	return err
}

// give gives a name a UID, if it has none, and writes both directions.
func (t *transaction) give(ctx context.Context, txn kv.Txn, s *nameState) (err error) {
	if !s.fresh {
		return nil
	}
	if s.uid, err = t.allocator.uid(ctx, txn); err != nil {
		return err
	}
	t.scratch = t.in.codec.appendUID(t.scratch[:0], s.uid)
	txn.Set(s.key, t.scratch)
	if !t.chunk.takes(s.uid) {
		t.flushChunk(txn)
	}
	t.chunk.add(t.in.codec, s.uid, &s.entry)
	return nil
}

func (t *transaction) flushChunk(txn kv.Txn) {
	if t.chunk.count == 0 {
		return
	}
	t.scratch = appendUIDKey(t.scratch[:0], t.chunk.first)
	at := len(t.scratch)
	t.scratch = t.chunk.appendTo(t.scratch)
	txn.Set(t.scratch[:at], t.scratch[at:])
}

// listURIs makes the keys of the URIs, each once. Those of a new DID or in a new collection cannot
// be in the store. A transaction that writes one meanwhile conflicts with this one over the DID or
// the collection.
func (t *transaction) listURIs() {
	t.uris, t.read = t.uris[:0], t.read[:0]
	clear(t.index)
	for _, i := range t.items {
		if !i.isURI || i.uriUID != 0 {
			continue
		}
		e, fresh := i.entry(), false
		if i.didAt >= 0 {
			e.auth, fresh = t.dids[i.didAt].uid, t.dids[i.didAt].fresh
		}
		if i.collAt >= 0 {
			e.coll, fresh = t.colls[i.collAt].number, fresh || t.colls[i.collAt].fresh
		}
		at := len(t.buffer)
		t.buffer = t.in.codec.appendKey(t.buffer, &e)
		key := t.keep(at)
		var first bool
		if i.uriAt, first = t.place(key, len(t.uris)); first {
			t.uris = append(t.uris, nameState{entry: e, key: key, fresh: fresh})
			t.read = append(t.read, i.uriAt)
		}
	}
	slices.SortFunc(t.read, func(a, b int32) int { return bytes.Compare(t.uris[a].key, t.uris[b].key) })
}

func (t *transaction) readURIs(ctx context.Context, txn kv.Txn) error {
	t.keys = t.keys[:0]
	for _, at := range t.read {
		if u := &t.uris[at]; !u.fresh {
			t.keys = append(t.keys, u.key)
		}
	}
	if len(t.keys) == 0 {
		return nil
	}
	if err := t.get(ctx, txn); err != nil {
		return err
	}
	next := 0
	for _, at := range t.read {
		u := &t.uris[at]
		if u.fresh {
			continue
		}
		if err := u.read(t.in.codec, t.values[next]); err != nil {
			return err
		}
		next++
	}
	return nil
}

// committed passes the results on to the items and to the caches.
func (t *transaction) committed() {
	t.allocator.committed()
	in, m := t.in, t.in.metrics
	for _, i := range t.items {
		if i.didAt >= 0 {
			i.didUID = t.dids[i.didAt].uid
		}
		if i.uriAt >= 0 {
			i.uriUID, i.isNew = t.uris[i.uriAt].uid, t.uris[i.uriAt].fresh
		}
	}
	fresh := 0
	for i := range t.dids {
		d := &t.dids[i]
		in.dids.put(hashKey(d.key), d.key, d.uid)
		if d.fresh {
			fresh++
		}
	}
	m.didNew.Add(float64(fresh))
	m.didRead.Add(float64(len(t.dids) - fresh))
	fresh = 0
	for i := range t.uris {
		u := &t.uris[i]
		if u.fresh {
			fresh++
		}
		// A new URI seldom comes again soon, so it is not cached. With other instances it does
		// come: they ask for what this one has just written.
		if !u.fresh || !in.exclusive {
			in.uris.put(hashKey(u.key), u.key, u.uid)
		}
	}
	m.uriNew.Add(float64(fresh))
	m.uriRead.Add(float64(len(t.uris) - fresh))
	for i := range t.colls {
		in.collections.put(string(t.colls[i].name), t.colls[i].number)
	}
	m.committed.Inc()
	m.transactionStrings.Observe(float64(len(t.items)))
	t.release()
}

// failed says that the attempt came to nothing, or that its outcome is unknown.
func (t *transaction) failed(unknown bool) {
	t.allocator.failed(unknown)
	t.chunk = chunkWriter{buf: t.chunk.buf[:0]}
}

// release forgets the items' bytes.
func (t *transaction) release() {
	clear(t.index)
	clear(t.keys)
	clear(t.values)
	clear(t.dids)
	clear(t.colls)
	clear(t.uris)
	t.items = nil
}
