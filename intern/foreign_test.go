package intern

import (
	"bytes"
	"errors"
	"testing"

	"millrace/intern/internal/share"
	"millrace/intern/kv"
	"millrace/intern/kv/simkv"
)

// itemsOf returns the items of strings, as far as the caches of in know them.
func itemsOf(t *testing.T, in *Interner, strings ...string) (items []*item) {
	t.Helper()
	c := in.newCall(ctx)
	for i, s := range strings {
		n, reason := parseName([]byte(s))
		if reason != "" {
			t.Fatal(reason)
		}
		c.add(&n, i)
	}
	for i := range c.items {
		items = append(items, &c.items[i])
	}
	return items
}

// TestForeignLookup looks up names that another instance has interned, and some that none has: what
// the store knows is found, applied and cached, and nothing else.
func TestForeignLookup(t *testing.T) {
	store := simkv.New(simkv.Config{})
	in := openOn(t, store, Config{})
	resolve(t, in, "did:web:a.com", "at://did:web:a.com/a.b.c/x", "at://did:web:a.com/a.b.c/3mbx7q2k3c2aa", "at://john.com")
	asked := []string{"did:web:b.com", "did:web:a.com", "at://did:web:a.com/a.b.c/x", "at://did:web:b.com/a.b.c/x", "at://did:web:a.com/a.b.c/3mbx7q2k3c2aa",
		"at://did:web:a.com/a.b.zz/x", "at://did:web:a.com/a.b.c/y", "at://did:web:a.com/a.b.c", "at://john.com", "at://jane.com"}
	did, _, err := in.Lookup(ctx, "did:web:a.com")
	if err != nil {
		t.Fatal(err)
	}
	coll := in.collections.number([]byte("a.b.c"))
	for _, known := range []bool{false, true} { // the DID and the collection are
		other := openOn(t, store, Config{})
		items := itemsOf(t, other, asked...)
		for i, item := range items {
			if known && i != 0 && i != 3 && item.did != nil {
				item.did, item.didUID = nil, did
				if bytes.Equal(item.coll, []byte("a.b.c")) {
					item.coll, item.collNum = nil, coll
				}
			}
		}
		l := shared{other}.LookUp(other.newForeign(items))
		if err := l.Run(ctx); err != nil {
			t.Fatal(err)
		}
		cached := itemsOf(t, other, asked...)
		for i, item := range items {
			uid, ok, err := in.Lookup(ctx, asked[i])
			if err != nil {
				t.Fatal(err)
			}
			if l.Found(i) != ok {
				t.Errorf("%s is found: %t", asked[i], l.Found(i))
			}
			l.Apply(i)
			got := item.uriUID
			if item.form.isDID() {
				got = item.didUID
			}
			if got != uid || item.done() != ok {
				t.Errorf("%s has UID %d, want %d", asked[i], got, uid)
			}
			if item.form != formHandle && item.didUID != did && i != 0 && i != 3 {
				t.Errorf("the DID of %s has UID %d, want %d", asked[i], item.didUID, did)
			}
			if i == 2 && item.collNum != coll {
				t.Errorf("the collection of %s has number %d, want %d", asked[i], item.collNum, coll)
			}
			if !known && item.form != formHandle && cached[i].done() != ok {
				t.Errorf("%s is cached: %t", asked[i], cached[i].done())
			}
		}
	}
}

// TestForeignAdvance: an item that another instance leads waits for its DID, its collection and its
// URI, by the keys that the store has them under.
func TestForeignAdvance(t *testing.T) {
	store := simkv.New(simkv.Config{})
	in := openOn(t, store, Config{})
	const uri = "at://did:web:a.com/a.b.c/x"
	uids := resolve(t, in, "did:web:a.com", uri)
	other := openOn(t, store, Config{})
	f := other.newForeign(itemsOf(t, other, uri))[0]
	stored := func(key []byte, want uint64) {
		t.Helper()
		err := kv.Run(ctx, store, func(txn kv.Txn) error {
			value, err := kv.GetOne(ctx, txn, key)
			if uid, err2 := in.codec.uidValue(value); err != nil || err2 != nil || uid != want {
				t.Errorf("key %x has UID %d, want %d: %v, %v", key, uid, want, err, err2)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	key, done := f.Advance(nil)
	stored(key, uids[0])
	shared{other}.Cache([]share.Name{{DID: true, Key: key, UID: uids[0]}})
	if key, again := f.Advance(nil); len(key) > 0 || done || again {
		t.Errorf("before its collection is known: %x", key)
	}
	other.collections.put("a.b.c", in.collections.number([]byte("a.b.c")))
	key, done = f.Advance(nil)
	stored(key, uids[1])
	shared{other}.Cache([]share.Name{{Key: key, UID: uids[1]}})
	if _, again := f.Advance(nil); done || !again || f.(*foreign).uriUID != uids[1] || f.(*foreign).didUID != uids[0] {
		t.Errorf("done before its URI is known: %t; then: %t, %+v", done, again, f.(*foreign).item)
	}
}

// TestDamagedLookups: a look-up that needs a value which is not as it was written has an error.
func TestDamagedLookups(t *testing.T) {
	const uri = "at://did:web:a.com/a.b.c/x"
	for _, key := range [][]byte{appendDIDKey(nil, []byte("did:web:a.com")), appendCollNameKey(nil, []byte("a.b.c")), {tagUIDs}, {tagNames + byte(formRecord)}} {
		store := simkv.New(simkv.Config{})
		in := openOn(t, store, Config{})
		uid := resolve(t, in, uri)[0]
		_ = in.Close()
		for _, p := range pairsOf(t, store) {
			if bytes.HasPrefix(p.Key, key) {
				put(t, store, kv.Pair{Key: p.Key, Value: []byte{0x80}})
			}
		}
		in = openOn(t, store, Config{})
		forward := key[0] != tagUIDs
		if _, _, err := in.Lookup(ctx, uri); errors.Is(err, errBroken) != forward {
			t.Errorf("key %x: look up the URI: %v", key, err)
		}
		if err := in.LookupUIDs(ctx, []uint64{uid}, make([]string, 1)); errors.Is(err, errBroken) == forward {
			t.Errorf("key %x: look up the UID: %v", key, err)
		}
		l := shared{in}.LookUp(in.newForeign(itemsOf(t, in, uri)))
		if err := l.Run(ctx); errors.Is(err, errBroken) != forward {
			t.Errorf("key %x: look up what another instance leads: %v", key, err)
		}
	}
	for count, ok := range map[uint64]bool{0: false, 1: true, maxChunkNames: true, maxChunkNames + 1: false} {
		if _, n, err := openChunk(codec{}, appendNumber(count)); (err == nil) != ok || ok && n != int(count) {
			t.Errorf("a chunk of %d: %d, %v", count, n, err)
		}
	}
}
