package intern

import (
	"bytes"
	"context"

	"millrace/intern/kv"
)

// glance looks up one waiting string in the store without giving it a UID. Its bytes are copies: the item may be done,
// and its call begun anew, before the glance is.
type glance struct {
	w        *waiter
	did      []byte // forward key; nil: not needed
	didUID   uint64
	coll     []byte // nil: not needed
	collNum  uint32
	uri      entry
	isURI    bool
	uriUID   uint64
	key      []byte // forward key of the URI, once it can be made
	complete bool   // all that was asked for was there
}

func newGlance(w *waiter) glance {
	i := w.item
	g := glance{w: w, didUID: i.didUID, collNum: i.collNum, isURI: i.isURI}
	if i.didUID == 0 {
		g.did = bytes.Clone(i.did)
	}
	if i.collNum == 0 {
		g.coll = bytes.Clone(i.coll)
	}
	if i.isURI {
		g.uri = entry{form: i.form, tid: i.tid, text: bytes.Clone(i.text)}
	}
	return g
}

// glimpse is one batch of glances with what came of it.
type glimpse struct {
	glances []glance
	err     error
}

// maxGlances is how many strings one transaction looks up.
const maxGlances = 512

// look fills in what the store has. What it found is committed, and put into the caches.
func (in *Interner) look(glances []glance) error {
	return in.retry(in.ctx, func(ctx context.Context, txn kv.Txn) error {
		if err := in.lookNames(ctx, txn, glances); err != nil {
			return err
		}
		return in.lookURIs(ctx, txn, glances)
	})
}

// lookNames reads the DIDs and collections.
func (in *Interner) lookNames(ctx context.Context, txn kv.Txn, glances []glance) error {
	var keys [][]byte
	var at []int
	for i := range glances {
		g := &glances[i]
		if g.did != nil {
			keys, at = append(keys, g.did), append(at, i)
		}
		if g.coll != nil {
			keys, at = append(keys, appendCollNameKey(nil, g.coll)), append(at, i)
		}
	}
	values := make([][]byte, len(keys))
	if err := txn.Get(ctx, keys, values); err != nil {
		return err
	}
	for j, value := range values {
		g := &glances[at[j]]
		switch {
		case value == nil:
		case keys[j][0] == tagCollName:
			n, err := number(value)
			if err != nil || n == 0 || n > maxCollection {
				return broken("collection number", value)
			}
			g.collNum = uint32(n)
		default:
			uid, err := in.codec.uidValue(value)
			if err != nil {
				return err
			}
			g.didUID = uid
		}
	}
	return nil
}

// lookURIs reads the URIs whose DIDs and collections are known.
func (in *Interner) lookURIs(ctx context.Context, txn kv.Txn, glances []glance) error {
	var keys [][]byte
	var at []int
	for i := range glances {
		g := &glances[i]
		known := (g.did == nil || g.didUID != 0) && (g.coll == nil || g.collNum != 0)
		g.complete, g.uriUID = known && !g.isURI, 0
		if known && g.isURI {
			g.uri.auth, g.uri.coll = g.didUID, g.collNum
			g.key = in.codec.appendKey(g.key[:0], &g.uri)
			keys, at = append(keys, g.key), append(at, i)
		}
	}
	values := make([][]byte, len(keys))
	if err := txn.Get(ctx, keys, values); err != nil {
		return err
	}
	for j, value := range values {
		if value == nil {
			continue
		}
		uid, err := in.codec.uidValue(value)
		if err != nil {
			return err
		}
		glances[at[j]].uriUID, glances[at[j]].complete = uid, true
	}
	return nil
}

// remember puts what was found into the caches.
func (in *Interner) remember(glances []glance) {
	for i := range glances {
		g := &glances[i]
		if g.did != nil && g.didUID != 0 {
			in.dids.put(hashKey(g.did), g.did, g.didUID)
		}
		if g.coll != nil && g.collNum != 0 {
			in.collections.put(string(g.coll), g.collNum)
		}
		if g.uriUID != 0 {
			in.uris.put(hashKey(g.key), g.key, g.uriUID)
		}
	}
}
