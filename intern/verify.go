package intern

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"millrace/intern/kv"
)

// maxProblems is how many problems a Report spells out.
const maxProblems = 100

// verifyStep is how many names are looked up, and how many keys scanned, in one transaction.
const verifyStep = 1000

// Report is what Verify found.
type Report struct {
	DIDs, URIs  uint64 // names by UID
	Keys        uint64 // forward keys; a sound store has as many as names
	Chunks      uint64
	Collections uint64
	Sequences   uint64 // used
	Given       uint64 // sum of their counters: UIDs given out or skipped
	Problems    uint64
	Examples    []string // the first problems
}

// Sound says that there is no problem.
func (r *Report) Sound() bool { return r.Problems == 0 }

func (r *Report) problem(format string, args ...any) {
	if r.Problems++; r.Problems <= maxProblems {
		r.Examples = append(r.Examples, fmt.Sprintf(format, args...))
	}
}

// Verify scans both directions of a store that is not written meanwhile. They must be a bijection,
// every counter at or above the UIDs of its sequence, and every number of a collection defined.
// progress, if not nil, gets the number of names and keys seen so far.
//
// Every name is looked up by its key and must have the UID it came from. So no two UIDs have one
// name; and as there are as many keys as names, no key is left over.
func Verify(ctx context.Context, store kv.Store, progress func(seen uint64)) (*Report, error) {
	v := &verifier{store: store, counters: make(map[uint32]uint64), authorities: make(map[uint64]struct{}), progress: progress}
	err := kv.Run(ctx, store, func(txn kv.Txn) error {
		h, err := loadHeader(ctx, txn)
		v.codec = h.codec
		return err
	})
	for _, step := range []func(context.Context) error{v.collections, v.sequences, v.names, v.keys} {
		if err == nil {
			err = step(ctx)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("verify UID store: %w", err)
	}
	if r := &v.report; r.Keys != r.DIDs+r.URIs && len(v.damages) == 0 {
		r.problem("%d keys, but %d names", r.Keys, r.DIDs+r.URIs)
	}
	if !v.report.Sound() && v.written(ctx) {
		return nil, fmt.Errorf("verify UID store: %w", errWritten)
	}
	return &v.report, nil
}

// written says whether a counter has changed since sequences read it: what was written with it
// looks like damage.
func (v *verifier) written(ctx context.Context) bool {
	return errors.Is(kv.ScanAll(ctx, v.store, tagRange(tagSequence), verifyStep, func(p kv.Pair) error {
		n, err := number(p.Value)
		if err == nil && len(p.Key) == 5 && n != v.counters[binary.BigEndian.Uint32(p.Key[1:])] {
			return errWritten
		}
		return nil
	}), errWritten)
}

type verifier struct {
	store       kv.Store
	codec       codec
	report      Report
	progress    func(uint64)
	seen        uint64
	damages     []string // noted
	lastColl    uint32
	counters    map[uint32]uint64
	next        uint64              // the least UID that the next chunk may begin with
	authorities map[uint64]struct{} // known to be DIDs; emptied when it has grown to maxAuthorities
	pending     []pendingName
	pendingSize int // bytes of their keys
}

const maxAuthorities = 1 << 20

// pendingName is a name whose key is still to be looked up.
type pendingName struct {
	uid, auth uint64
	key       []byte
}

func (v *verifier) saw() {
	if v.seen++; v.progress != nil && v.seen%10_000 == 0 {
		v.progress(v.seen)
	}
}

// scan calls fn with every key of a range. Damage that fn returns is a problem, not the end. Behind
// a file that cannot be read it goes on.
func (v *verifier) scan(ctx context.Context, r kv.Range, fn func(kv.Pair) error) error {
	for {
		err := kv.ScanAll(ctx, v.store, r, verifyStep, func(p kv.Pair) error {
			err := fn(p)
			if errors.Is(err, errBroken) {
				v.report.problem("key %x: %v", p.Key, err)
				return nil
			}
			return err
		})
		var damage kv.Damage
		if !errors.As(err, &damage) {
			return err
		}
		v.damage(damage)
		after := damage.ReadOn()
		if bytes.Compare(after, r.Begin) <= 0 || bytes.Compare(after, r.End) >= 0 {
			return nil
		}
		r.Begin = after
	}
}

// damage notes that a file cannot be read, once.
func (v *verifier) damage(d kv.Damage) {
	text := d.Error()
	if !slices.Contains(v.damages, text) && len(v.damages) < maxProblems {
		v.damages = append(v.damages, text)
		v.report.problem("%s", text)
	}
}

// readable is err, unless it says that a file cannot be read, which is noted.
func (v *verifier) readable(err error) error {
	if damage, ok := errors.AsType[kv.Damage](err); ok {
		v.damage(damage)
		return nil
	}
	return err
}

func (v *verifier) collections(ctx context.Context) error {
	byName := make(map[string]uint64)
	err := v.scan(ctx, tagRange(tagCollName), func(p kv.Pair) error {
		n, err := number(p.Value)
		byName[string(p.Key[1:])] = n
		return err
	})
	if err != nil {
		return err
	}
	err = v.scan(ctx, tagRange(tagCollNumber), func(p kv.Pair) error {
		if len(p.Key) != 5 {
			return broken("collection key", p.Key)
		}
		n := binary.BigEndian.Uint32(p.Key[1:])
		if byName[string(p.Value)] != uint64(n) {
			v.report.problem("collection %d is %.80q, which has number %d", n, p.Value, byName[string(p.Value)])
		}
		v.report.Collections++
		v.lastColl = n
		return nil
	})
	if err != nil {
		return err
	}
	if uint64(len(byName)) != v.report.Collections {
		v.report.problem("%d collections by name, %d by number", len(byName), v.report.Collections)
	}
	return v.readable(kv.Run(ctx, v.store, func(txn kv.Txn) error {
		last, err := storedNumber(ctx, txn, []byte(keyCollections))
		if err != nil && !errors.Is(err, errBroken) {
			return err
		}
		if last < uint64(v.lastColl) {
			v.report.problem("collection counter %d is below collection %d", last, v.lastColl)
		}
		return nil
	}))
}

func (v *verifier) sequences(ctx context.Context) error {
	return v.scan(ctx, tagRange(tagSequence), func(p kv.Pair) error {
		if len(p.Key) != 5 {
			return broken("sequence key", p.Key)
		}
		n, err := number(p.Value)
		v.counters[binary.BigEndian.Uint32(p.Key[1:])] = n
		v.report.Sequences++
		v.report.Given += n
		return err
	})
}

// names reads all chunks and looks their names up.
func (v *verifier) names(ctx context.Context) error {
	err := v.scan(ctx, tagRange(tagUIDs), func(p kv.Pair) error {
		if len(v.pending) >= verifyStep || v.pendingSize > v.store.Limits().Bytes/4 {
			if err := v.check(ctx); err != nil {
				return err
			}
		}
		return v.chunk(p)
	})
	if err == nil {
		err = v.check(ctx)
	}
	if errors.Is(err, errBroken) {
		v.report.problem("%v", err)
		return nil
	}
	return err
}

// chunk takes the names of one chunk.
func (v *verifier) chunk(p kv.Pair) error {
	v.report.Chunks++
	if len(p.Key) != uidKeyBytes {
		return broken("UID key", p.Key)
	}
	uid := binary.BigEndian.Uint64(p.Key[1:])
	r, count, err := openChunk(v.codec, p.Value)
	if err != nil {
		return err
	}
	sequence, n := v.codec.split(uid)
	if last := n + uint64(count) - 1; n == 0 || last > v.counters[sequence] {
		v.report.problem("UIDs %d to %d of sequence %d, whose counter is %d", n, last, sequence, v.counters[sequence])
	}
	if uid < v.next {
		v.report.problem("chunk at %x overlaps the one before it", uid)
	}
	v.next = uid + uint64(count)
	var e entry
	for r.next(&e) {
		if e.form.isDID() {
			v.report.DIDs++
		} else {
			v.report.URIs++
		}
		if e.coll > v.lastColl {
			v.report.problem("UID %d: there is no collection %d", uid, e.coll)
		}
		key := v.codec.appendKey(nil, &e)
		v.pending = append(v.pending, pendingName{uid: uid, auth: e.auth, key: key})
		v.pendingSize += len(key)
		uid++
		v.saw()
	}
	return r.err
}

// check looks up the pending names' keys and authorities.
func (v *verifier) check(ctx context.Context) error {
	pending := v.pending
	v.pending, v.pendingSize = nil, 0
	keys, values := make([][]byte, len(pending)), make([][]byte, len(pending))
	var authorities []uint64
	for i, p := range pending {
		keys[i] = p.key
		if _, ok := v.authorities[p.auth]; !ok && p.auth != 0 {
			if len(v.authorities) >= maxAuthorities {
				clear(v.authorities)
			}
			v.authorities[p.auth] = struct{}{}
			authorities = append(authorities, p.auth)
		}
	}
	return v.readable(kv.Run(ctx, v.store, func(txn kv.Txn) error {
		if err := txn.Get(ctx, keys, values); err != nil {
			return err
		}
		dids, err := v.codec.entries(ctx, txn, authorities)
		if err != nil {
			return err
		}
		for i, p := range pending {
			if values[i] == nil {
				v.report.problem("UID %d: its name has no UID", p.uid)
			} else if uid, err := v.codec.uidValue(values[i]); err != nil || uid != p.uid {
				v.report.problem("UID %d: its name has UID %d", p.uid, uid)
			}
		}
		for i := range dids {
			if !dids[i].form.isDID() || dids[i].text == nil {
				v.report.problem("authority %d is not a DID", authorities[i])
			}
		}
		return nil
	}))
}

// keys reads all forward keys.
func (v *verifier) keys(ctx context.Context) error {
	all := kv.Range{Begin: []byte{tagNames}, End: []byte{tagUIDs}}
	return v.scan(ctx, all, func(p kv.Pair) error {
		v.report.Keys++
		v.saw()
		if _, err := v.codec.key(p.Key); err != nil {
			return err
		}
		_, err := v.codec.uidValue(p.Value)
		return err
	})
}
