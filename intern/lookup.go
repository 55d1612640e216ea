package intern

import (
	"bytes"
	"context"
	"fmt"

	"millrace/intern/kv"
)

// MaxLookup is the most strings or UIDs a batched look-up takes.
const MaxLookup = 10_000

// lookupStep is how many of them one transaction reads.
const lookupStep = 500

// Lookup returns the UID of a DID or AT URI. ok is false if it has none; a look-up never gives one.
// The error of a string that is neither is an *InvalidError.
func (in *Interner) Lookup(ctx context.Context, s string) (uid uint64, ok bool, err error) {
	uids := make([]uint64, 1)
	err = in.LookupStrings(ctx, []string{s}, uids)
	return uids[0], uids[0] != 0, err
}

// LookupStrings sets uids[i] to the UID of strings[i], 0 if it has none. At most MaxLookup.
func (in *Interner) LookupStrings(ctx context.Context, strings []string, uids []uint64) error {
	if len(strings) > MaxLookup {
		return fmt.Errorf("%d strings to look up at once, more than %d", len(strings), MaxLookup)
	}
	var items []item // of those that are not cached
	var at []int     // their places
	var key []byte
	for k, s := range strings {
		n, reason := parseName([]byte(s))
		if reason != "" {
			return &InvalidError{Index: k, Reason: reason}
		}
		i, done := n.item(), false
		if key, done = i.advance(in, key[:0]); done {
			uids[k] = i.uid()
		} else {
			items, at = append(items, i), append(at, k)
		}
	}
	for len(items) > 0 {
		l := &lookup{in: in, items: items[:min(len(items), lookupStep)]}
		if err := l.Run(ctx); err != nil {
			return fmt.Errorf("look up strings: %w", err)
		}
		for j := range l.items {
			uids[at[j]] = l.items[j].uid()
		}
		items, at = items[len(l.items):], at[len(l.items):]
	}
	return nil
}

// lookup looks names up in the store without giving them UIDs.
type lookup struct {
	in    *Interner
	items []item  // what it needs, and what it has found
	of    []*item // those that another instance leads, of which items are copies
}

// item returns the item of a name of which nothing is known. It aliases the name.
func (n *name) item() item {
	i := item{form: n.form, isURI: !n.form.isDID(), coll: n.coll, text: n.text, tid: n.tid}
	if n.form != formHandle {
		i.did = appendDIDKey(nil, n.did)
		i.hash = hashKey(i.did)
	}
	return i
}

// read looks the names up. It may be called again after an error.
func (l *lookup) read(ctx context.Context, txn kv.Txn) error {
	if err := l.readNames(ctx, txn); err != nil {
		return err
	}
	return l.readURIs(ctx, txn)
}

// readNames reads the DIDs and collections, which the keys of URIs consist of.
func (l *lookup) readNames(ctx context.Context, txn kv.Txn) (err error) {
	var keys [][]byte
	var at []int
	for j := range l.items {
		i := &l.items[j]
		if i.did != nil && i.didUID == 0 {
			keys, at = append(keys, i.did), append(at, j)
		}
		if i.coll != nil && i.collNum == 0 {
			keys, at = append(keys, appendCollNameKey(nil, i.coll)), append(at, j)
		}
	}
	values := make([][]byte, len(keys))
	if err := txn.Get(ctx, keys, values); err != nil {
		return err
	}
	for j, value := range values {
		i := &l.items[at[j]]
		switch {
		case value == nil:
		case keys[j][0] == tagCollName:
			i.collNum, err = collectionNumber(value)
		default:
			i.didUID, err = l.in.codec.uidValue(value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readURIs reads the URIs whose DIDs and collections are known.
func (l *lookup) readURIs(ctx context.Context, txn kv.Txn) (err error) {
	var keys [][]byte
	var at []int
	for j := range l.items {
		i := &l.items[j]
		known := (i.did == nil || i.didUID != 0) && (i.coll == nil || i.collNum != 0)
		i.uriUID = 0
		if known && i.isURI {
			e := i.entry()
			keys, at = append(keys, l.in.codec.appendKey(nil, &e)), append(at, j)
		}
	}
	values := make([][]byte, len(keys))
	if err := txn.Get(ctx, keys, values); err != nil {
		return err
	}
	for j, value := range values {
		if l.items[at[j]].uriUID, err = l.in.codec.uidOrZero(value); err != nil {
			return err
		}
	}
	return nil
}

// LookupUIDs sets strings[i] to what uids[i] stands for, "" if that is nothing. At most MaxLookup.
func (in *Interner) LookupUIDs(ctx context.Context, uids []uint64, strings []string) error {
	if len(uids) > MaxLookup {
		return fmt.Errorf("%d UIDs to look up at once, more than %d", len(uids), MaxLookup)
	}
	missing := in.names.find(uids, strings)
	step := min(len(missing), lookupStep)
	read, found := make([]uint64, step), make([]string, step)
	for len(missing) > 0 {
		n := min(len(missing), lookupStep)
		for j, i := range missing[:n] {
			read[j] = uids[i]
		}
		err := in.retry(ctx, func(ctx context.Context, txn kv.Txn) error {
			return in.lookupUIDs(ctx, txn, read[:n], found[:n])
		})
		if err != nil {
			return fmt.Errorf("look up UIDs: %w", err)
		}
		for j, i := range missing[:n] {
			strings[i] = found[j]
		}
		in.names.put(read[:n], found[:n])
		missing = missing[n:]
	}
	return nil
}

func (in *Interner) lookupUIDs(ctx context.Context, txn kv.Txn, uids []uint64, strings []string) error {
	entries, err := in.codec.entries(ctx, txn, uids)
	if err != nil {
		return err
	}
	var authorities []uint64
	for i := range entries {
		if entries[i].auth != 0 {
			authorities = append(authorities, entries[i].auth)
		}
	}
	dids, err := in.codec.entries(ctx, txn, authorities)
	if err != nil {
		return err
	}
	didOf := make(map[uint64]*entry, len(dids))
	for i := range dids {
		if !dids[i].form.isDID() || dids[i].text == nil {
			return fmt.Errorf("%w: the authority with UID %d is not a DID", errBroken, authorities[i])
		}
		didOf[authorities[i]] = &dids[i]
	}
	var text []byte
	for i := range entries {
		e := &entries[i]
		var coll string
		if e.coll != 0 {
			if coll, err = in.collectionName(ctx, txn, e.coll); err != nil {
				return err
			}
		}
		strings[i] = ""
		if uids[i] != 0 && (e.text != nil || e.auth != 0) {
			text = appendName(text[:0], e, didOf[e.auth], coll)
			strings[i] = string(text)
		}
	}
	return nil
}

// appendName appends the string of an entry, given its authority's entry and its collection.
func appendName(dst []byte, e, did *entry, coll string) []byte {
	switch e.form {
	case formPLC:
		return appendPLCString(dst, e.text)
	case formDID:
		return append(append(dst, "did:"...), e.text...)
	case formHandle:
		return append(append(dst, schemeAT...), e.text...)
	}
	dst = appendName(append(dst, schemeAT...), did, nil, "")
	if e.form == formAuthority {
		return dst
	}
	dst = append(append(dst, '/'), coll...)
	switch e.form {
	case formRecord:
		dst = append(append(dst, '/'), e.text...)
	case formTID:
		dst = appendTID(append(dst, '/'), e.tid)
	}
	return dst
}

// collectionName returns the collection of a number.
func (in *Interner) collectionName(ctx context.Context, txn kv.Txn, number uint32) (string, error) {
	if name := in.collections.name(number); name != "" {
		return name, nil
	}
	value, err := kv.GetOne(ctx, txn, appendCollNumberKey(nil, number))
	if err == nil && value == nil {
		err = fmt.Errorf("%w: a name is of collection %d, which is unknown", errBroken, number)
	}
	return string(value), err
}

// entries reads the entries of uids; a UID that stands for nothing has the zero entry.
func (c codec) entries(ctx context.Context, txn kv.Txn, uids []uint64) ([]entry, error) {
	ranges := make([]kv.Range, len(uids))
	keys := make([]byte, 0, 2*(uidKeyBytes+1)*len(uids)) // of all ranges
	for i, uid := range uids {
		// The chunk that holds uid begins at uid or before, in the same sequence, at most
		// maxChunkNames before.
		sequence, n := c.split(uid)
		first := c.join(sequence, n-min(n, maxChunkNames-1))
		begin := len(keys)
		keys = appendUIDKey(keys, first)
		end := len(keys)
		keys = append(appendUIDKey(keys, uid), 0)
		ranges[i] = kv.Range{Begin: keys[begin:end], End: keys[end:]}
	}
	entries := make([]entry, len(uids))
	err := txn.Last(ctx, ranges, func(i int, p kv.Pair) error {
		if len(p.Key) != uidKeyBytes {
			return broken("UID key", p.Key)
		}
		r, count, err := openChunk(c, p.Value)
		if err != nil {
			return err
		}
		e, at := &entries[i], uids[i]-uidOfKey(p.Key)
		if at >= uint64(count) {
			return nil
		}
		for range at + 1 {
			if !r.next(e) {
				return r.err
			}
		}
		e.text = bytes.Clone(e.text)
		return nil
	})
	return entries, err
}
