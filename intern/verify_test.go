package intern

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/intern/kv"
	"millrace/intern/kv/simkv"
)

// pairsOf returns all that a store holds, but for what instances keep of each other.
func pairsOf(t *testing.T, store kv.Store) (pairs []kv.Pair) {
	t.Helper()
	err := kv.ScanAll(ctx, store, kv.Range{Begin: []byte{0}, End: []byte{tagUIDs + 1}}, verifyStep, func(p kv.Pair) error {
		if p.Key[0] != tagInstances {
			pairs = append(pairs, kv.Pair{Key: bytes.Clone(p.Key), Value: bytes.Clone(p.Value)})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pairs
}

// put changes values of a store; nil: the key goes.
func put(t *testing.T, store kv.Store, pairs ...kv.Pair) {
	t.Helper()
	err := kv.Run(ctx, store, func(txn kv.Txn) error {
		for _, p := range pairs {
			if p.Value == nil {
				txn.Clear(p.Key)
			} else {
				txn.Set(p.Key, p.Value)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestVerifyEachValue takes away, cuts and changes each value of a store. Verify finds each, and
// what it counts in the sound store is what is there.
func TestVerifyEachValue(t *testing.T) {
	store := simkv.New(simkv.Config{})
	in := openOn(t, store, Config{Workers: 2})
	resolve(t, in, "did:web:1.com", "did:plc:ewvi7nxzyoun6zhxrhs64oiz", "at://did:web:1.com/a.b.c/x", "at://did:web:1.com/a.b.d", "at://john.com",
		"at://did:plc:ewvi7nxzyoun6zhxrhs64oiz", "at://did:plc:ewvi7nxzyoun6zhxrhs64oiz/a.b.c/3mbx7q2k3c2aa")
	_ = in.Close()
	pairs := pairsOf(t, store)
	known := map[string]bool{}
	want := Report{DIDs: 2, URIs: 5, Keys: 7, Collections: 2, Given: 7}
	for _, p := range pairs {
		known[string(p.Key)] = true
		switch p.Key[0] {
		case tagUIDs:
			want.Chunks++
		case tagSequence:
			want.Sequences++
		}
	}
	report, err := Verify(ctx, store, nil)
	if d := cmp.Diff(&want, report); d != "" || err != nil {
		t.Fatalf("of a sound store (-want +got), %v:\n%s", err, d)
	}
	for _, p := range pairs {
		var values [][]byte // nil: none
		if p.Key[0] != tagMeta || string(p.Key) == keyCollections {
			values = append(values, nil)
		}
		if p.Key[0] != tagMeta {
			values = append(values, p.Value[:len(p.Value)-1], append(bytes.Clone(p.Value), 0))
		}
		for i := range p.Value {
			if p.Key[0] != tagMeta && p.Key[0] != tagSequence { // a counter may be higher
				values = append(values, bytes.Clone(p.Value))
				values[len(values)-1][i] ^= 1
			}
		}
		for _, value := range values {
			if value != nil && len(value) == 0 {
				value = []byte{}
			}
			put(t, store, kv.Pair{Key: p.Key, Value: value})
			if report, err := Verify(ctx, store, nil); err == nil && report.Sound() {
				t.Errorf("value %x of key %x, in place of %x, is sound", value, p.Key, p.Value)
			}
		}
		put(t, store, p)
		for _, key := range [][]byte{append(bytes.Clone(p.Key), 0), p.Key[:len(p.Key)-1]} { // of another form
			if p.Key[0] == tagMeta || known[string(key)] {
				continue
			}
			put(t, store, kv.Pair{Key: key, Value: p.Value})
			if report, err := Verify(ctx, store, nil); err == nil && report.Sound() {
				t.Errorf("key %x, beside %x, is sound", key, p.Key)
			}
			if _, err := Export(ctx, store, create(t, "dump"), nil); !errors.Is(err, errBroken) && (key[0] == tagUIDs || key[0] == tagCollNumber) {
				t.Errorf("key %x, beside %x, is exported: %v", key, p.Key, err)
			}
			put(t, store, kv.Pair{Key: key})
		}
	}
	if report, err := Verify(ctx, store, nil); err != nil || !report.Sound() {
		t.Errorf("as it was: %+v, %v", report, err)
	}
}

// TestImportIsTheStore: a store that is imported has each key and value of the one that was
// exported, and what it was made from.
func TestImportIsTheStore(t *testing.T) {
	source, target := simkv.New(simkv.Config{}), simkv.New(simkv.Config{})
	filled(t, source, 5000)
	if _, err := SkipAhead(ctx, source, 1000); err != nil {
		t.Fatal(err)
	}
	dump := exported(t, source)
	var progress []uint64
	sum, err := importDump(ctx, target, bytes.NewReader(dump), func(names uint64) { progress = append(progress, names) })
	if err != nil {
		t.Fatal(err)
	}
	want, got := pairsOf(t, source), pairsOf(t, target)
	got = slices.DeleteFunc(got, func(p kv.Pair) bool { return string(p.Key) == keyImported })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-exported +imported:\n%.2000s", d)
	}
	report, err := Verify(ctx, target, nil)
	if err != nil || !report.Sound() {
		t.Fatalf("%+v, %v", report, err)
	}
	if report.Given != sum.Names+1000*report.Sequences || sum.Sequences != report.Sequences || sum.Collections != report.Collections ||
		sum.Names != report.DIDs+report.URIs || sum.Bytes != int64(len(dump)) {
		t.Errorf("the import has %+v, the store %+v", *sum, *report)
	}
	if !slices.IsSorted(progress) || len(progress) == 0 || progress[len(progress)-1] != sum.Names {
		t.Errorf("progress %v", progress)
	}
}
