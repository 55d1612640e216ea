package intern

import (
	"bytes"
	"cmp"
	"context"
	"time"

	"millrace/intern/internal/share"
	"millrace/intern/kv"
)

// newestNames is how many UIDs below a sequence's counter a follower begins to read it. So it also
// reads UIDs that another instance allocated shortly before the follower knew of the sequence.
const newestNames = 2048

// maxReadChunks is how many chunks of one sequence are read at a time.
const maxReadChunks = 64

// shared is an Interner as package share sees it.
type shared struct{ *Interner }

func (in shared) Attempt(ctx context.Context, limit time.Duration, fn func(context.Context, kv.Txn) error) error {
	return in.attempt(ctx, cmp.Or(limit, in.cfg.Timeout), fn)
}

func (in shared) Sequences() []uint32 { return in.sequences.inUse() }

func (in shared) ReadSequence(ctx context.Context, txn kv.Txn, sequence uint32, from uint64, names []share.Name) (uint64, []share.Name, error) {
	c := in.codec
	if from == 0 {
		last, err := storedNumber(ctx, txn, appendSequenceKey(nil, sequence))
		if err != nil {
			return 0, names, err
		}
		from = c.join(sequence, last+1-min(last, newestNames))
	}
	r := kv.Range{Begin: appendUIDKey(nil, from), End: append(appendUIDKey(nil, c.join(sequence, c.maxN())), 0)}
	chunks := 0
	err := txn.Scan(ctx, r, func(p kv.Pair) (bool, error) {
		if len(p.Key) != uidKeyBytes {
			return false, broken("UID key", p.Key)
		}
		chunk, count, err := openChunk(c, bytes.Clone(p.Value))
		if err != nil {
			return false, err
		}
		uid := uidOfKey(p.Key)
		for e := (entry{}); chunk.next(&e); uid++ {
			names = append(names, share.Name{Key: c.appendKey(nil, &e), UID: uid, DID: e.form.isDID()})
		}
		from = uidOfKey(p.Key) + uint64(count)
		chunks++
		return chunks < maxReadChunks, chunk.err
	})
	return from, names, err
}

func (in shared) Cache(names []share.Name) {
	for i := range names {
		n := &names[i]
		cache := in.uris
		if n.DID {
			cache = in.dids
		}
		cache.put(hashKey(n.Key), n.Key, n.UID)
	}
}

func (in shared) LookUp(items []share.Item) share.Lookup {
	l := &lookup{in: in.Interner}
	for _, i := range items {
		of := i.(*foreign).item
		l.items, l.of = append(l.items, of.copied()), append(l.of, of)
	}
	return l
}

// foreign is an item that another instance leads.
type foreign struct {
	*item
	in *Interner
}

// newForeign returns items as package share takes them.
func (in *Interner) newForeign(items []*item) []share.Item {
	all, out := make([]foreign, len(items)), make([]share.Item, len(items))
	for at, i := range items {
		all[at] = foreign{item: i, in: in}
		out[at] = &all[at]
	}
	return out
}

func (i *foreign) Hash() uint64 { return i.hash }

func (i *foreign) Advance(dst []byte) (key []byte, done bool) { return i.advance(i.in, dst) }

func (i *foreign) Set(n *share.Name) {
	if n.DID {
		i.didUID = n.UID
	} else {
		i.uriUID = n.UID
	}
}

// Done implements share.Call.
func (c *call) Done() { c.finish(nil) }

// InternHere implements share.Call.
func (c *call) InternHere(items []share.Item) {
	ours := make([]*item, len(items))
	for at, i := range items {
		ours[at] = i.(*foreign).item
	}
	tasks := c.in.split(c, ours)
	c.tasks.Add(int32(len(tasks)))
	for _, t := range tasks {
		c.in.handOver(t)
	}
}

// copied returns an item of what is left to find out, with bytes of its own: i may be done, and its
// call begun anew, before the lookup is.
func (i *item) copied() item {
	c := item{form: i.form, isURI: i.isURI, didUID: i.didUID, collNum: i.collNum, tid: i.tid, text: bytes.Clone(i.text)}
	if i.didUID == 0 {
		c.did = bytes.Clone(i.did)
	}
	if i.collNum == 0 {
		c.coll = bytes.Clone(i.coll)
	}
	return c
}

// Run looks the strings up in one transaction, and puts what it finds into the caches.
func (l *lookup) Run(ctx context.Context) error {
	err := l.in.retry(ctx, l.read)
	if err == nil {
		l.cache()
	}
	return err
}

func (l *lookup) Found(i int) bool { return l.items[i].uid() != 0 }

func (l *lookup) Apply(i int) {
	found, of := &l.items[i], l.of[i]
	of.didUID, of.uriUID = max(of.didUID, found.didUID), max(of.uriUID, found.uriUID)
	of.collNum = max(of.collNum, found.collNum)
}

// cache puts what was found into the caches.
func (l *lookup) cache() {
	for j := range l.items {
		i := &l.items[j]
		if i.did != nil && i.didUID != 0 {
			l.in.dids.put(hashKey(i.did), i.did, i.didUID)
		}
		if i.coll != nil && i.collNum != 0 {
			l.in.collections.put(string(i.coll), i.collNum)
		}
		if i.uriUID != 0 {
			e := i.entry()
			key := l.in.codec.appendKey(nil, &e)
			l.in.uris.put(hashKey(key), key, i.uriUID)
		}
	}
}
