package intern

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"millrace/consume/relaysim/testwait"
	"millrace/intern/kv"
	"millrace/intern/kv/pebblekv"
	"millrace/intern/kv/simkv"
)

var ctx = context.Background()

// patience is for what must come.
const patience = time.Minute

func openOn(t *testing.T, store kv.Store, cfg Config) *Interner {
	t.Helper()
	cfg.Store = store
	in, err := Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	return in
}

func resolve(t *testing.T, in *Interner, strings ...string) []uint64 {
	t.Helper()
	uids := make([]uint64, len(strings))
	if err := resolveStrings(ctx, in, strings, uids); err != nil {
		t.Fatal(err)
	}
	return uids
}

// dumpStore reads a whole store by other means than Verify: both directions, as strings.
func dumpStore(t *testing.T, store kv.Store) (byName map[string]uint64, byUID map[uint64]string) {
	t.Helper()
	byName, byUID = make(map[string]uint64), make(map[uint64]string)
	var h header
	if err := kv.Once(ctx, store, func(txn kv.Txn) (err error) { h, err = loadHeader(ctx, txn); return err }); err != nil {
		t.Fatal(err)
	}
	entries, colls, keys := make(map[uint64]entry), make(map[uint32]string), make(map[uint64]entry)
	err := kv.ScanAll(ctx, store, kv.Range{Begin: []byte{0}, End: []byte{0xff}}, 100, func(p kv.Pair) error {
		switch tag := p.Key[0]; {
		case tag == tagCollNumber:
			colls[uint32(p.Key[1])<<24|uint32(p.Key[2])<<16|uint32(p.Key[3])<<8|uint32(p.Key[4])] = string(p.Value)
		case tag >= tagNames && tag < tagUIDs:
			e, err := h.key(append([]byte(nil), p.Key...))
			if err != nil {
				return err
			}
			uid, err := h.uidValue(p.Value)
			if _, ok := keys[uid]; ok {
				t.Errorf("UID %d has two keys", uid)
			}
			keys[uid] = e
			return err
		case tag == tagUIDs:
			uid, _, _ := uint64(0), 0, 0
			for _, c := range p.Key[1:] {
				uid = uid<<8 | uint64(c)
			}
			r, _, err := openChunk(h.codec, append([]byte(nil), p.Value...))
			if err != nil {
				return err
			}
			for e := (entry{}); r.next(&e); uid++ {
				if _, ok := entries[uid]; ok {
					t.Errorf("UID %d has two names", uid)
				}
				entries[uid] = e
			}
			return r.err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	spell := func(e entry) string {
		did := entries[e.auth]
		return string(appendName(nil, &e, &did, colls[e.coll]))
	}
	for uid, e := range entries {
		byUID[uid] = spell(e)
	}
	for uid, e := range keys {
		s := spell(e)
		if _, ok := byName[s]; ok {
			t.Errorf("%q has two keys", s)
		}
		byName[s] = uid
	}
	return byName, byUID
}

// checkStore checks that the store is a bijection and holds want, if that is not nil, and nothing
// else.
func checkStore(t *testing.T, store kv.Store, want map[string]uint64) {
	t.Helper()
	byName, byUID := dumpStore(t, store)
	if len(byName) != len(byUID) {
		t.Errorf("%d strings, %d UIDs", len(byName), len(byUID))
	}
	for s, uid := range byName {
		if byUID[uid] != s {
			t.Errorf("%q has UID %d, which stands for %q", s, uid, byUID[uid])
		}
	}
	for s, uid := range want {
		if byName[s] != uid {
			t.Errorf("%q was given UID %d, the store has %d", s, uid, byName[s])
		}
	}
	report, err := Verify(ctx, store, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !report.Sound() {
		t.Errorf("%d problems: %s", report.Problems, strings.Join(report.Examples, "; "))
	}
	if int(report.DIDs+report.URIs) != len(byName) || int(report.Keys) != len(byName) {
		t.Errorf("report %+v, but there are %d strings", *report, len(byName))
	}
}

// stringOf returns what a UID stands for, "" if that is nothing.
func stringOf(in *Interner, uid uint64) (string, error) {
	s := make([]string, 1)
	err := in.LookupUIDs(ctx, []uint64{uid}, s)
	return s[0], err
}

// TestForms interns one string of each form and finds all of them, both ways.
func TestForms(t *testing.T) {
	for _, spread := range []bool{false, true} {
		limits := foundationLike
		limits.Spread = spread
		store := simkv.New(simkv.Config{Limits: limits})
		in := openOn(t, store, Config{CacheBytes: -1})
		var valid []string
		for _, s := range seeds {
			if oracle(s) {
				valid = append(valid, s)
				if _, ok, err := in.Lookup(ctx, s); ok || err != nil {
					t.Errorf("%q is known before it was interned: %v", s, err)
				}
			} else if _, _, err := in.Lookup(ctx, s); !errors.As(err, new(*InvalidError)) {
				t.Errorf("look-up of %q: %v", s, err)
			}
		}
		uids := resolve(t, in, valid...)
		if again := resolve(t, in, valid...); !cmp.Equal(again, uids) {
			t.Error("a second time gives other UIDs")
		}
		if other := resolve(t, openOn(t, store, Config{}), valid...); !cmp.Equal(other, uids) {
			t.Error("another interner gives other UIDs")
		}
		for i, s := range valid {
			if uid, ok, err := in.Lookup(ctx, s); uid != uids[i] || !ok || err != nil {
				t.Errorf("look-up of %q: %d, %v, want %d", s, uid, err, uids[i])
			}
			if got, err := stringOf(in, uids[i]); got != s || err != nil {
				t.Errorf("look-up of %d: %q, %v, want %q", uids[i], got, err, s)
			}
		}
		for _, uid := range []uint64{0, 1, uids[0] - 1, uids[0] + uint64(len(uids)) + 20, 1<<64 - 1} {
			if s, err := stringOf(in, uid); s != "" || err != nil {
				t.Errorf("UID %d stands for %q: %v", uid, s, err)
			}
		}
		checkStore(t, store, nil)
	}
}

var foundationLike = kv.Limits{Bytes: 10_000_000, Key: 10_000, Value: 100_000, Duration: 5 * time.Second}

func TestResolve(t *testing.T) {
	store := simkv.New(simkv.Config{})
	in := openOn(t, store, Config{Workers: 3})
	did, web := []byte("did:plc:7iza6de2dwap2sbkpav7c6c6"), []byte("did:web:a.co")
	like, tid := []byte("app.bsky.feed.like"), []byte("3jzfcijpj2z2a")
	reqs := []Request{
		{DID: did}, {DID: did, Collection: like, RecordKey: tid}, {DID: web, Collection: like, RecordKey: tid},
		{DID: did, Collection: like, RecordKey: tid}, {DID: web, Collection: like}, {DID: did, Collection: like, RecordKey: []byte("self")},
	}
	out := make([]Result, len(reqs))
	if err := in.Resolve(ctx, reqs, out); err != nil {
		t.Fatal(err)
	}
	if out[0].URIUID != 0 || out[1] != out[3] || out[0].DIDUID != out[1].DIDUID || out[2].DIDUID != out[4].DIDUID {
		t.Errorf("results %+v", out)
	}
	for i, s := range []string{1: "at://did:plc:7iza6de2dwap2sbkpav7c6c6/app.bsky.feed.like/3jzfcijpj2z2a", 2: "at://did:web:a.co/app.bsky.feed.like/3jzfcijpj2z2a",
		4: "at://did:web:a.co/app.bsky.feed.like", 5: "at://did:plc:7iza6de2dwap2sbkpav7c6c6/app.bsky.feed.like/self"} {
		if s == "" {
			continue
		}
		if uid := resolve(t, in, s)[0]; uid != out[i].URIUID || uid == 0 {
			t.Errorf("%s has UID %d, not %d", s, uid, out[i].URIUID)
		}
	}
	// The request's bytes are the caller's again.
	copy(tid, "zzzzzzzzzzzzz")
	copy(did, "did:plc:aaaaaa")
	checkStore(t, store, nil)
	if err := in.Resolve(ctx, nil, nil); err != nil {
		t.Errorf("empty batch: %v", err)
	}
}

func TestInvalid(t *testing.T) {
	store := simkv.New(simkv.Config{})
	in := openOn(t, store, Config{})
	good := Request{DID: []byte("did:web:a.co")}
	for _, bad := range []Request{{}, {DID: []byte("did:")}, {DID: []byte("at://did:web:a.co")}, {DID: good.DID, Collection: []byte("nope")},
		{DID: good.DID, Collection: []byte("a.b.c"), RecordKey: []byte("..")}, {Name: []byte("at://a")}, {Name: []byte("text")},
		{DID: good.DID, Collection: []byte("a.b.c"), RecordKey: []byte(strings.Repeat("x", 513))}} {
		err := in.Resolve(ctx, []Request{good, bad}, make([]Result, 2))
		var invalid *InvalidError
		if !errors.As(err, &invalid) || invalid.Index != 1 || invalid.Reason == "" {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if err := resolveStrings(ctx, in, []string{"did:web:a.co", "x"}, make([]uint64, 2)); !errors.As(err, new(*InvalidError)) {
		t.Errorf("invalid string: %v", err)
	}
	if _, ok, _ := in.Lookup(ctx, "did:web:a.co"); ok {
		t.Error("a batch with an invalid string was interned in part")
	}
	if err := in.LookupUIDs(ctx, make([]uint64, MaxLookup+1), nil); err == nil {
		t.Error("too many UIDs are accepted")
	}
	if err := in.LookupStrings(ctx, make([]string, MaxLookup+1), nil); err == nil {
		t.Error("too many strings are accepted")
	}
}

func TestScopeDIDs(t *testing.T) {
	store := simkv.New(simkv.Config{})
	in := openOn(t, store, Config{Scope: ScopeDIDs})
	out := make([]Result, 1)
	if err := in.Resolve(ctx, []Request{{DID: []byte("did:web:a.co"), Collection: []byte("a.b.c"), RecordKey: []byte("x")}}, out); err != nil {
		t.Fatal(err)
	}
	if uids := resolve(t, in, "did:web:a.co", "at://did:web:a.co", "at://jo.hn"); uids[0] != out[0].DIDUID || out[0].DIDUID == 0 || uids[1]+uids[2]+out[0].URIUID != 0 {
		t.Errorf("result %+v, UIDs %v", out[0], uids)
	}
	checkStore(t, store, map[string]uint64{"did:web:a.co": out[0].DIDUID})
}

func TestOpen(t *testing.T) {
	store := simkv.New(simkv.Config{})
	one := openOn(t, store, Config{PrefixBits: 20})
	two := openOn(t, store, Config{})
	if one.StoreID() != two.StoreID() || len(one.StoreID()) != 32 || two.PrefixBits() != 20 {
		t.Errorf("store IDs %q, %q, prefix bits %d", one.StoreID(), two.StoreID(), two.PrefixBits())
	}
	if other := openOn(t, simkv.New(simkv.Config{}), Config{}); other.StoreID() == one.StoreID() || other.PrefixBits() != DefaultPrefixBits {
		t.Error("two stores have one ID, or not the default prefix bits")
	}
	if _, err := Open(ctx, Config{Store: store, PrefixBits: 14}); !errors.Is(err, ErrPrefixBits) {
		t.Errorf("other prefix bits: %v", err)
	}
	for _, bad := range []Config{{}, {Store: store, PrefixBits: 33}, {Store: store, PrefixBits: -1}, {Store: store, Workers: -1},
		{Store: store, Timeout: -1}, {Store: store, Scope: 7}} {
		if _, err := Open(ctx, bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
	_ = one.Close()
	_ = one.Close()
	if err := resolveStrings(ctx, one, []string{"did:web:b.co"}, make([]uint64, 1)); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
	store.SetDown(true)
	// too short for any attempt while the machine stands still
	for limit := 20 * time.Millisecond; ; limit *= 2 {
		short, cancel := context.WithTimeout(ctx, limit)
		_, err := Open(short, Config{Store: store})
		cancel()
		if errors.Is(err, kv.ErrUnavailable) {
			break
		}
		if limit > 10*time.Second {
			t.Fatalf("store down: %v", err)
		}
	}
}

// TestSequences checks that UIDs of one batch follow each other in one sequence. It checks that a
// worker stays with its sequence, and that it moves on from one that somebody else uses.
func TestSequences(t *testing.T) {
	store := simkv.New(simkv.Config{})
	registry := prometheus.NewRegistry()
	one := openOn(t, store, Config{Workers: 1, Seed: 5, Registerer: registry})
	two := openOn(t, store, Config{Workers: 1, Seed: 5}) // draws the same
	did := func(n int) string { return fmt.Sprintf("did:web:%d.com", n) }
	a := resolve(t, one, did(1), did(2))
	b := resolve(t, one, did(3))
	if a[1] != a[0]+1 || b[0] != a[1]+1 {
		t.Errorf("UIDs %v, %v do not follow each other", a, b)
	}
	c := resolve(t, two, did(4))
	if c[0] != b[0]+1 {
		t.Fatalf("the second interner begins with UID %x, not in the sequence of the first", c[0])
	}
	d := resolve(t, one, did(5), did(6))
	e := resolve(t, two, did(7))
	if n := testutil.ToFloat64(one.metrics.sequenceContended); n != 1 || d[0] == c[0]+1 || d[1] != d[0]+1 || e[0] != c[0]+1 {
		t.Errorf("%v contended sequences, then UIDs %x and %x", n, d, e)
	}
	checkStore(t, store, nil)
}

// TestExhausted fills sequences to their ends, on a store with faults: UIDs stay unique, then run
// out.
func TestExhausted(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	store := simkv.New(simkv.Config{Seed: seed})
	in := openOn(t, store, Config{Workers: 2, PrefixBits: 2, CacheBytes: -1})
	const left = 50
	err := kv.Run(ctx, store, func(txn kv.Txn) error {
		for s := range uint32(4) {
			txn.Set(appendSequenceKey(nil, s), appendNumber(in.codec.maxN()-left))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	store.SetFaults(simkv.Faults{Unavailable: 0.2, Conflict: 0.1})
	want := make(map[string]uint64)
	for n, size := 0, 7; size > 0; n++ {
		batch := make([]string, size)
		for i := range batch {
			batch[i] = fmt.Sprintf("did:web:%d.%d.com", n, i)
		}
		uids := make([]uint64, size)
		if err := resolveStrings(ctx, in, batch, uids); err != nil {
			if !errors.Is(err, errExhausted) {
				t.Fatal(err)
			}
			size-- // as many are not left
			continue
		}
		for i, s := range batch {
			want[s] = uids[i]
		}
	}
	store.SetFaults(simkv.Faults{})
	if len(want) > 4*left || len(want) < 3*left {
		t.Errorf("%d UIDs were given out, of %d", len(want), 4*left)
	}
	if n := testutil.ToFloat64(in.metrics.sequenceExhausted); n < 3 {
		t.Errorf("%v exhausted sequences are counted", n)
	}
	checkStore(t, store, want)
}

// TestOutage takes the store away: Resolve waits, and goes on when it is back. The log reports it
// twice.
func TestOutage(t *testing.T) {
	store := simkv.New(simkv.Config{})
	registry := prometheus.NewRegistry()
	var lines strings.Builder
	in := openOn(t, store, Config{Registerer: registry, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
	if !in.Status().Reachable {
		t.Error("store is not reachable at first")
	}
	store.SetDown(true)
	short, cancel := context.WithTimeout(ctx, 30*time.Millisecond)
	defer cancel()
	if err := resolveStrings(short, in, []string{"did:web:a.co"}, make([]uint64, 1)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("cancelled during an outage: %v", err)
	}
	done := make(chan error, 1)
	uids := make([]uint64, 1)
	go func() { done <- resolveStrings(ctx, in, []string{"did:web:b.co"}, uids) }()
	select {
	case err := <-done:
		t.Fatalf("Resolve returned during the outage: %v", err)
	case <-time.After(30 * time.Millisecond):
	}
	if !testwait.Becomes(patience, func() bool { return !in.Status().Reachable }) {
		t.Fatal("the outage is not noticed")
	}
	if s, up := in.Status(), testutil.ToFloat64(in.metrics.up); s.Reachable || s.Err == nil || up != 0 {
		t.Errorf("status during the outage: %+v, up %v", s, up)
	}
	store.SetDown(false)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if s, up := in.Status(), testutil.ToFloat64(in.metrics.up); !s.Reachable || s.Err != nil || up != 1 {
		t.Errorf("status after the outage: %+v, up %v", s, up)
	}
	if n := testutil.ToFloat64(in.metrics.outages); n != 1 {
		t.Errorf("%v outages counted", n)
	}
	_ = in.Close()
	if out := lines.String(); strings.Count(out, "\n") != 2 || !strings.Contains(out, "does not answer") || !strings.Contains(out, "answers again") {
		t.Errorf("log:\n%s", out)
	}
	if _, err := Open(ctx, Config{Store: store, Registerer: registry}); err == nil {
		t.Error("metrics were registered twice")
	}
	checkStore(t, store, nil)
}

// TestTooLarge has strings that do not fit into one transaction of the store together, and one that
// does not fit at all.
func TestTooLarge(t *testing.T) {
	limits := foundationLike
	limits.Bytes = 6000
	store := simkv.New(simkv.Config{Limits: limits})
	in := openOn(t, store, Config{Workers: 1})
	var strs []string
	for i := range 40 {
		strs = append(strs, fmt.Sprintf("did:web:%s.%d", strings.Repeat("x", 300), i))
	}
	want := make(map[string]uint64)
	for i, uid := range resolve(t, in, strs...) {
		want[strs[i]] = uid
	}
	checkStore(t, store, want)
	huge := "did:x:" + strings.Repeat("y", 2000)
	limits.Bytes = 1000
	in = openOn(t, simkv.New(simkv.Config{Limits: limits}), Config{})
	if err := resolveStrings(ctx, in, []string{huge}, make([]uint64, 1)); !errors.Is(err, kv.ErrTooLarge) {
		t.Errorf("a string over the store's limit: %v", err)
	}
}

// TestDamage changes stored bytes under a running store: that is an error, not another UID.
func TestDamage(t *testing.T) {
	for _, key := range [][]byte{[]byte(keyCollections), appendDIDKey(nil, []byte("did:web:a.co")), appendCollNameKey(nil, []byte("a.b.c"))} {
		store := simkv.New(simkv.Config{})
		in := openOn(t, store, Config{CacheBytes: -1, Workers: 1})
		resolve(t, in, "at://did:web:a.co/a.b.c/x")
		if err := kv.Run(ctx, store, func(txn kv.Txn) error { txn.Set(key, []byte{0x80}); return nil }); err != nil {
			t.Fatal(err)
		}
		in = openOn(t, store, Config{CacheBytes: -1, Workers: 1})
		if err := resolveStrings(ctx, in, []string{"at://did:web:a.co/a.b.c/y"}, make([]uint64, 1)); !errors.Is(err, errBroken) {
			t.Errorf("key %q: %v", key, err)
		}
		if report, err := Verify(ctx, store, nil); err != nil || report.Sound() {
			t.Errorf("key %q: Verify finds nothing: %v", key, err)
		}
	}
}

// TestConcurrentCallers has many callers with overlapping strings and a small cache.
func TestConcurrentCallers(t *testing.T) {
	store := simkv.New(simkv.Config{})
	in := openOn(t, store, Config{CacheBytes: 4 * cacheSetBytes * 2, hooks: testHooks{batchStrings: 32}})
	seed := rand.Uint64()
	var mu sync.Mutex
	want := make(map[string]uint64)
	var wg sync.WaitGroup
	for w := range 32 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(w)))
			for range 20 {
				batch := randomStrings(rng, 1+rng.IntN(60))
				uids := make([]uint64, len(batch))
				if err := resolveStrings(ctx, in, batch, uids); err != nil {
					t.Error(err)
					return
				}
				record(t, &mu, want, batch, uids)
			}
		})
	}
	wg.Wait()
	checkStore(t, store, want)
}

// record notes what strings were given; a string keeps what it was given first.
func record(t *testing.T, mu *sync.Mutex, want map[string]uint64, strings []string, uids []uint64) {
	mu.Lock()
	defer mu.Unlock()
	for i, s := range strings {
		if s == "" { // a DID has no UID as an AT URI
			if uids[i] != 0 {
				t.Errorf("a DID has the UID %d as an AT URI", uids[i])
			}
			continue
		}
		if before, ok := want[s]; ok && before != uids[i] || uids[i] == 0 {
			t.Errorf("%q has UID %d, was %d", s, uids[i], before)
		}
		want[s] = uids[i]
	}
}

// resolveSubjects resolves strings as the subjects of references. It returns them and their
// authorities, a handle as the AT URI of it, with the UIDs.
func resolveSubjects(ctx context.Context, in *Interner, subjects []string) (names []string, uids []uint64, err error) {
	requests, results := make([]Request, len(subjects)), make([]Result, len(subjects))
	for i, s := range subjects {
		requests[i].Name = []byte(s)
		results[i] = Result{DIDUID: 1, URIUID: 1} // of whatever was there before
	}
	if err := in.Resolve(ctx, requests, results); err != nil {
		return nil, nil, err
	}
	for i, s := range subjects {
		rest, isURI := strings.CutPrefix(s, schemeAT)
		if !isURI {
			names, uids = append(names, s, ""), append(uids, results[i].DIDUID, results[i].URIUID)
			continue
		}
		authority, _, _ := strings.Cut(rest, "/")
		if !strings.HasPrefix(authority, "did:") {
			authority = schemeAT + authority
		}
		names, uids = append(names, s, authority), append(uids, results[i].URIUID, results[i].DIDUID)
	}
	return names, uids, nil
}

// resolveStrings sets uids[i] to the UID of strings[i].
func resolveStrings(ctx context.Context, in *Interner, strings []string, uids []uint64) error {
	_, pairs, err := resolveSubjects(ctx, in, strings)
	for i := range len(pairs) / 2 {
		uids[i] = pairs[2*i]
	}
	return err
}

// randomStrings draws from a few thousand strings of all forms.
func randomStrings(rng *rand.Rand, n int) []string {
	out := make([]string, n)
	for i := range out {
		did := fmt.Sprintf("did:web:%d.com", rng.IntN(40))
		if rng.IntN(2) == 0 {
			var packed [plcBytes]byte
			packed[3] = byte(rng.IntN(40))
			did = string(appendPLCString(nil, packed[:]))
		}
		coll := fmt.Sprintf("com.example.c%d", rng.IntN(6))
		switch rng.IntN(8) {
		case 0:
			out[i] = did
		case 1:
			out[i] = "at://" + did
		case 2:
			out[i] = "at://" + did + "/" + coll
		case 3:
			out[i] = fmt.Sprintf("at://%d.example.com/%s/%d", rng.IntN(20), coll, rng.IntN(9))
			if rng.IntN(8) == 0 {
				out[i] = fmt.Sprintf("at://%d.example.com", rng.IntN(20))
			}
		case 4:
			out[i] = fmt.Sprintf("at://%s/%s/self%d", did, coll, rng.IntN(9))
		default:
			out[i] = fmt.Sprintf("at://%s/%s/%s", did, coll, appendTID(nil, 1<<62+rng.Uint64N(30)<<10))
		}
	}
	return out
}

func newMemStore(t *testing.T) *pebblekv.Store {
	t.Helper()
	store, err := pebblekv.Open(pebblekv.Config{Dir: "uids", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func counterValue(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	return testutil.ToFloat64(c)
}
