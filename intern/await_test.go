package intern

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"millrace/intern/kv/simkv"
)

// foundUIDs notes what an Await finds.
type foundUIDs struct {
	mu   sync.Mutex
	uids map[uint64]bool
}

func (f *foundUIDs) found(uid uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.uids == nil {
		f.uids = make(map[uint64]bool)
	}
	f.uids[uid] = true
}

// all returns what was found so far, in order.
func (f *foundUIDs) all() []uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.uids))
}

func await(t *testing.T, in *Interner, f *foundUIDs, strings ...string) *Waiting {
	t.Helper()
	w, err := in.Await(ctx, strings, f.found)
	if err != nil {
		t.Error(err)
	}
	t.Cleanup(w.Close)
	return w
}

// resolveName resolves a Name, and returns its UID and that of its authority.
func resolveName(t *testing.T, in *Interner, name string) (uid, authority uint64) {
	t.Helper()
	out := make([]Result, 1)
	if err := in.Resolve(ctx, []Request{{Name: []byte(name)}}, out); err != nil {
		t.Error(err)
	}
	if uid = out[0].URIUID; uid == 0 {
		uid = out[0].DIDUID
	}
	return uid, out[0].DIDUID
}

// TestAwait: a caller that waits for a string gets its UID by the time that Resolve of it, or of
// something with its authority, returns.
func TestAwait(t *testing.T) {
	in := openOn(t, simkv.New(simkv.Config{}), Config{})
	known := resolve(t, in, "did:web:known.example")[0]
	var did, uri, nobody foundUIDs
	await(t, in, &did, "did:web:known.example", "did:web:new.example")
	await(t, in, &uri, "at://did:web:new.example/a.b.c/1", "at://new.example")
	closed := await(t, in, &nobody, "did:web:new.example", "at://new.example", "did:web:never.example")
	if got := did.all(); !slices.Equal(got, []uint64{known}) {
		t.Errorf("at once it finds %v, not %d", got, known)
	}
	if n := in.registry.strings.Load(); n != 4 {
		t.Errorf("%d strings wait, not 4", n)
	}
	closed.Close()
	closed.Close()
	want := []uint64{known}
	if resolveName(t, in, "at://new.example/a.b.c/1"); len(uri.all()) > 0 {
		t.Errorf("a record of a handle is taken for the handle: %v", uri.all())
	}
	_, authority := resolveName(t, in, "at://did:web:new.example/a.b.c/2")
	if want = append(want, authority); !slices.Equal(did.all(), slices.Sorted(slices.Values(want))) {
		t.Errorf("with its record the DID is %v, not %v", did.all(), want)
	}
	one, _ := resolveName(t, in, "at://did:web:new.example/a.b.c/1")
	handle, _ := resolveName(t, in, "at://new.example")
	if got := uri.all(); !slices.Equal(got, slices.Sorted(slices.Values([]uint64{one, handle}))) {
		t.Errorf("the AT URIs are %v, not %d, %d", got, one, handle)
	}
	var imported foundUIDs
	await(t, in, &imported, "at://did:web:i.example/a.b.c", "did:web:i.example")
	uids := resolve(t, in, "at://did:web:i.example/a.b.c")
	if owner, _, err := in.Lookup(ctx, "did:web:i.example"); err != nil || !slices.Equal(imported.all(), slices.Sorted(slices.Values(append(uids, owner)))) {
		t.Errorf("what is imported is %v, not %v and %d: %v", imported.all(), uids, owner, err)
	}
	if len(nobody.all()) > 0 {
		t.Errorf("who has closed still finds %v", nobody.all())
	}
	if n := in.registry.strings.Load(); n != 0 || in.registry.first != nil {
		t.Errorf("%d strings wait still", n)
	}
	if _, err := in.Await(ctx, []string{"did:web:a.example", "no DID"}, did.found); err == nil || in.registry.strings.Load() != 0 {
		t.Errorf("an invalid string: %v, and %d wait", err, in.registry.strings.Load())
	}
}

// TestAwaitBesideResolve has a string get its UID directly after Await has not found it in the
// store.
func TestAwaitBesideResolve(t *testing.T) {
	store := &hookedStore{Store: simkv.New(simkv.Config{})}
	in := openOn(t, store, Config{})
	var f foundUIDs
	var uid uint64
	store.afterGet = func() {
		store.afterGet = nil
		uid, _ = resolveName(t, in, "did:web:new.example")
	}
	await(t, in, &f, "did:web:new.example")
	if got := f.all(); uid == 0 || !slices.Equal(got, []uint64{uid}) {
		t.Errorf("it finds %v, not %d", got, uid)
	}
}

// TestAwaitRandom has strings resolved and waited for at random, on a store that fails. Once both
// have returned, the UID was found. So is what another Interner on the store has given.
func TestAwaitRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	store := simkv.New(simkv.Config{Seed: seed, Shared: true})
	in, other := openOn(t, store, Config{Alone: true}), openOn(t, store, Config{Alone: true})
	store.SetFaults(simkv.Faults{Conflict: 0.1, UnknownApplied: 0.1, UnknownLost: 0.1})
	rng := rand.New(rand.NewPCG(seed, 0))
	var wg sync.WaitGroup
	for i := range 300 {
		name, early := fmt.Sprintf("at://did:web:%d.example/a.b.c/%d", i%50, i), rng.IntN(2) == 0
		wg.Go(func() {
			var f, same foundUIDs
			var both sync.WaitGroup
			both.Go(func() { await(t, in, &f, name) })
			both.Go(func() { await(t, in, &same, name).Close() })
			if early {
				resolveName(t, other, name)
			}
			uid, _ := resolveName(t, in, name)
			both.Wait()
			if got := f.all(); !slices.Equal(got, []uint64{uid}) {
				t.Errorf("seed %d: %s: it finds %v, not %d", seed, name, got, uid)
			}
		})
	}
	wg.Wait()
	if n := in.registry.strings.Load(); n != 0 {
		t.Errorf("%d strings wait still", n)
	}
}

// TestNamesForgotten: a string is kept until half of the bytes are of later ones.
func TestNamesForgotten(t *testing.T) {
	c, got := nameCache{maxBytes: 4 * (nameBytes + 1)}, make([]string, 2)
	for i, step := range []struct {
		puts       bool
		uid        uint64
		young, old []uint64
	}{
		{true, 1, []uint64{1}, nil}, {true, 1, []uint64{1}, nil}, {true, 2, []uint64{1, 2}, nil}, {true, 3, []uint64{3}, []uint64{1, 2}},
		{false, 1, []uint64{1, 3}, []uint64{1, 2}}, {true, 4, []uint64{4}, []uint64{1, 3}}, {false, 4, []uint64{4}, []uint64{1, 3}},
	} {
		if name := fmt.Sprint(step.uid); step.puts {
			c.put([]uint64{8, step.uid}, []string{"", name})
		} else if missing := c.find([]uint64{9, step.uid}, got); !slices.Equal(missing, []int{0}) || got[0] != "" || got[1] != name {
			t.Errorf("step %d: %q, missing %v", i, got, missing)
		}
		if young, old := slices.Sorted(maps.Keys(c.young)), slices.Sorted(maps.Keys(c.old)); !slices.Equal(young, step.young) || !slices.Equal(old, step.old) {
			t.Errorf("step %d: %v and %v are kept", i, young, old)
		}
	}
	none := nameCache{}
	if none.put([]uint64{1}, []string{"1"}); len(none.find([]uint64{1}, got[:1])) != 1 {
		t.Error("without bytes a string is kept")
	}
}

// TestNameCache: look-ups of UIDs are right whatever is remembered, which is what was looked up
// last, within its bytes.
func TestNameCache(t *testing.T) {
	in := openOn(t, simkv.New(simkv.Config{}), Config{NameBytes: 20_000})
	var names []string
	for i := range 400 {
		names = append(names, fmt.Sprintf("did:web:%d.example", i))
	}
	uids := resolve(t, in, names...)
	rng := rand.New(rand.NewPCG(1, 0))
	for range 300 {
		at := make([]uint64, 1+rng.IntN(20))
		want, got := make([]string, len(at)), make([]string, len(at))
		for i := range at {
			if n := rng.IntN(len(names) * 11 / 10); n < len(names) {
				at[i], want[i] = uids[n], names[n]
			}
			got[i] = "left over"
		}
		if err := in.LookupUIDs(ctx, at, got); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%v: %v, not %v", err, got, want)
		}
		c := &in.names
		bytes := int64(0)
		for _, s := range append(slices.Collect(maps.Values(c.young)), slices.Collect(maps.Values(c.old))...) {
			bytes += int64(len(s)) + nameBytes
		}
		if bytes > c.maxBytes {
			t.Fatalf("%d bytes are remembered", bytes)
		}
		if missing := c.find(at[:1], got[:1]); want[0] != "" && len(missing) > 0 {
			t.Fatalf("%s is not remembered", want[0])
		}
	}
}
