package graphapi

import (
	"encoding/base64"
	"math"
	"testing"
	"time"

	"millrace/public/internal/setexpr"
)

// TestCursors: a cursor is read as it was written, and no other text is one.
func TestCursors(t *testing.T) {
	for _, build := range []uint64{0, 1, 200, math.MaxUint64} {
		for _, after := range []uint64{1, 127, 128, math.MaxUint64} {
			s := *encodeCursor(build, after)
			if b, a, ok := parseCursor(s); !ok || b != build || a != after {
				t.Errorf("%d, %d becomes %d, %d, %t", build, after, b, a, ok)
			}
		}
	}
	if got := encodeCursor(1, 0); got != nil {
		t.Errorf("after nothing: %s", *got)
	}
	for _, bad := range []string{"", "!", base64.RawURLEncoding.EncodeToString([]byte{kind}), base64.RawURLEncoding.EncodeToString([]byte{kind, 0x80}), base64.RawURLEncoding.EncodeToString([]byte{kind, 1}),
		base64.RawURLEncoding.EncodeToString([]byte{kind, 1, 0}), base64.RawURLEncoding.EncodeToString([]byte{kind, 1, 2, 3}), base64.RawURLEncoding.EncodeToString([]byte{kind + 1, 1, 2}),
		base64.StdEncoding.EncodeToString([]byte{kind, 1, 2, 3}), base64.RawURLEncoding.EncodeToString([]byte{kind, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})} {
		if build, after, ok := parseCursor(bad); ok {
			t.Errorf("%q is %d, %d", bad, build, after)
		}
	}
}

// TestSourceOf: each name of a set has a source. TestModel has what the sets are.
func TestSourceOf(t *testing.T) {
	for name := range setexpr.Names {
		if sourceOf(name).source == "" {
			t.Errorf("%s has no source", name)
		}
	}
}

// TestCacheDropsOldest: of sets of links those that were read first go, as many as there must.
func TestCacheDropsOldest(t *testing.T) {
	c, begun := newCache(), time.Now()
	fifth := make([]uint64, cacheBytes/5/8)
	for i, at := range []int{3, 1, 4, 2} { // four of them fit
		c.put(linkKey{uid: uint64(at)}, &linkSet{uids: fifth, read: begun.Add(time.Duration(at))})
		if len(c.sets) != i+1 {
			t.Fatalf("%d sets after %d", len(c.sets), i+1)
		}
	}
	c.put(linkKey{uid: 3}, &linkSet{uids: fifth, read: begun.Add(5)}) // again
	c.put(linkKey{uid: 6}, &linkSet{uids: fifth, read: begun.Add(6)})
	for uid, kept := range map[uint64]bool{1: false, 2: true, 3: true, 4: true, 6: true} {
		if (c.get(linkKey{uid: uid}) != nil) != kept {
			t.Errorf("set %d is kept: %t", uid, !kept)
		}
	}
	if want := 4 * (&linkSet{uids: fifth}).bytes(); c.bytes != want {
		t.Errorf("%d bytes, want %d", c.bytes, want)
	}
	large := &linkSet{uids: make([]uint64, cacheBytes/8)}
	if c.put(linkKey{uid: 7}, large); len(c.sets) != 1 || c.get(linkKey{uid: 7}) != large {
		t.Errorf("%d sets beside one that is larger than the cache", len(c.sets)-1)
	}
}
