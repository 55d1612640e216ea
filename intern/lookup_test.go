package intern

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/intern/kv/simkv"
)

// TestManyLookups: look-ups of more than one step answer each string and each UID in its place.
func TestManyLookups(t *testing.T) {
	store := simkv.New(simkv.Config{})
	want := filled(t, store, 2*lookupStep+1)
	in := openOn(t, store, Config{})
	names := append(slices.Sorted(maps.Keys(want)), "did:web:none.example.com")
	uids := make([]uint64, len(names))
	if err := in.LookupStrings(ctx, names, uids); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if uids[i] != want[name] {
			t.Errorf("%q has UID %d, want %d", name, uids[i], want[name])
		}
	}
	found := make([]string, len(names))
	if err := in.LookupUIDs(ctx, uids, found); err != nil {
		t.Fatal(err)
	}
	names[len(names)-1] = "" // it has no UID
	if diff := cmp.Diff(names, found); diff != "" {
		t.Errorf("look-ups of their UIDs: -want +got\n%s", diff)
	}
}

// TestLookupsAreCached: what was looked up is not read again.
func TestLookupsAreCached(t *testing.T) {
	const did, like, post = "did:web:a.example.com", "at://did:web:a.example.com/app.bsky.feed.like/1", "at://did:web:a.example.com/app.bsky.feed.post/1"
	store := simkv.New(simkv.Config{})
	want := resolve(t, openOn(t, store, Config{}), did, like, post)
	reads := 0
	in := openOn(t, &hookedStore{Store: store, beforeGet: func() error { reads++; return nil }}, Config{})
	for _, tc := range []struct {
		name  string
		uid   uint64
		reads int
	}{{like, want[1], 2}, {like, want[1], 0}, {did, want[0], 0}, {post, want[2], 2}, {post, want[2], 0}} {
		reads = 0
		if uid, ok, err := in.Lookup(ctx, tc.name); uid != tc.uid || ok != (uid != 0) || err != nil || reads != tc.reads {
			t.Errorf("%s: UID %d, %v, %d reads; want %d with %d", tc.name, uid, err, reads, tc.uid, tc.reads)
		}
	}
}

// TestLookupsInFullChunks: each UID of chunks of as many names as one takes is found, the first and
// the last too.
func TestLookupsInFullChunks(t *testing.T) {
	in := openOn(t, simkv.New(simkv.Config{}), Config{Workers: 1, hooks: testHooks{batchStrings: 4 * maxChunkNames}})
	names := make([]string, 3*maxChunkNames+1)
	for i := range names {
		names[i] = fmt.Sprintf("did:web:%d.example", i)
	}
	uids := append(resolve(t, in, names...), 0)
	uids[len(names)] = slices.Max(uids) + 1 // after the end of the last chunk
	names = append(names, "")
	found := make([]string, len(names))
	if err := in.LookupUIDs(ctx, uids, found); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(names, found); diff != "" {
		t.Errorf("look-ups of UIDs: -want +got\n%s", diff)
	}
}
