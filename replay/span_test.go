package replay

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// spanOf makes a span of random blocks, and says which DIDs and collections are in which.
func spanOf(t *testing.T, l *Log, rng *rand.Rand, blocks, events int) (o *openSpan, dids map[string]blockSet) {
	t.Helper()
	dids = make(map[string]blockSet)
	o = newOpenSpan(1)
	seq, us := int64(0), testStart.UnixMicro()
	for n := range blocks {
		tb := testBlock{epoch: 1, firstSeq: seq + 1}
		for range events {
			seq++
			us += int64(1 + rng.IntN(1000))
			e := randomEvent(rng, place{1, seq, 0}, us)
			e.did = testDID(int(rng.ExpFloat64() * 300))
			set := dids[e.did]
			set.add(n)
			dids[e.did] = set
			tb.events = append(tb.events, e)
		}
		tb.lastSeq = seq
		b := tb.seal(t, l)
		o.add(l.spans.key, b.idx, b.plain, b.zstd, b.stored())
	}
	return o, dids
}

// TestSpanDIDs: each DID is found, in all blocks it is in; hardly any other is.
func TestSpanDIDs(t *testing.T) {
	l := mustOpen(t, testConfig(t, vfs.NewMem(), newTestClock()))
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 2))
	for _, size := range [][2]int{{1, 1}, {1, 50}, {3, 20}, {256, 2}, {40, 100}} {
		o, dids := spanOf(t, l, rng, size[0], size[1])
		var shards [format.DIDShards]didShard
		for i, pairs := range shardsOf(o.pairs) {
			var err error
			if shards[i], err = openShard(appendShard(nil, i, pairs), i); err != nil {
				t.Fatal(err)
			}
		}
		find := func(did string) (*didShard, int) {
			fingerprint := l.spans.key.of(did)
			v := &shards[shardOf(fingerprint)]
			return v, v.find(fingerprint)
		}
		extra := 0
		for did, want := range dids {
			var got blockSet
			v, i := find(did)
			if i < 0 {
				t.Fatalf("seed %d, %v: %s is not found", seed, size, did)
			}
			if err := v.addTo(&got, i); err != nil {
				t.Fatal(err)
			}
			missing := want
			missing.intersect(&got)
			if missing != want {
				t.Fatalf("seed %d, %v: %s is in %x, found in %x", seed, size, did, want, got)
			}
			if got != want {
				extra++
			}
		}
		found := 0
		for i := range 10_000 {
			if _, e := find(fmt.Sprint("did:web:", i)); e >= 0 {
				found++
			}
		}
		if found > 10 || extra > 5 {
			t.Errorf("seed %d, %v: %d of 10,000 absent DIDs are found, %d of %d have other blocks", seed, size, found, extra, len(dids))
		}
	}
}

func TestSpanRoundTrip(t *testing.T) {
	l := mustOpen(t, testConfig(t, vfs.NewMem(), newTestClock()))
	rng := rand.New(rand.NewPCG(3, 3))
	for _, size := range [][2]int{{1, 1}, {7, 9}, {8, 9}, {9, 9}, {256, 3}} {
		o, _ := spanOf(t, l, rng, size[0], size[1])
		o.values()
		enc := appendSpan([]byte("prefix"), &o.span)
		got, err := decodeSpan(bytes.TrimPrefix(enc, []byte("prefix")))
		if err != nil {
			t.Fatal(err)
		}
		for i := range enc {
			enc[i] = 0xaa // decodeSpan keeps nothing of it
		}
		if diff := cmp.Diff(&o.span, got, cmp.AllowUnexported(span{}, table{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%v: -want +got\n%s", size, diff)
		}
		enc = appendSpan(nil, &o.span)
		for range 2000 {
			bad := bytes.Clone(enc)
			bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
			_, _ = decodeSpan(bad[:len(bad)-rng.IntN(2)]) // must not panic
		}
	}
}

// TestSpansSkip: a filtered reader reads the indexes of blocks that have a match and of no others, and
// of identity and account events that pass a collection filter only the copies.
func TestSpansSkip(t *testing.T) {
	cfg := testConfig(t, vfs.NewMem(), newTestClock())
	cfg.TailBytes, cfg.CacheBytes = 1, 64<<20
	l := mustOpen(t, cfg)
	rng := rand.New(rand.NewPCG(4, 4))
	var all []testEvent
	for n := range 600 {
		tb := testBlock{epoch: 1, firstSeq: int64(len(all) + 1)}
		for range 10 {
			i := int64(len(all) + 1)
			e := randomEvent(rng, place{1, i, 0}, testStart.UnixMicro()+1000*i)
			e.kind, e.operation, e.collection = translate.KindCommit, translate.OpCreate, "app.bsky.feed.like"
			switch {
			case i%1500 == 0:
				e.did = "did:plc:rare"
			case i%1500 == 700:
				e.collection = "com.example.rare"
			case i%50 == 0:
				e.kind, e.operation, e.collection = translate.KindIdentity, 0, ""
			}
			all = append(all, e)
			tb.events = append(tb.events, e)
		}
		tb.lastSeq = int64(len(all))
		if err := l.Append(tb.seal(t, l)); err != nil {
			t.Fatalf("block %d: %v", n, err)
		}
	}
	if got := l.snap.Load().spanned; got != all[2*2560-1].timeUS {
		t.Fatalf("spans cover up to %d, not two times 256 blocks", got)
	}
	for _, tc := range []struct {
		name   string
		cfg    FilterConfig
		blocks int // of the 512 that spans cover
		others bool
	}{
		{"a DID", FilterConfig{DIDs: []string{"did:plc:rare"}}, 3, false},
		{"a DID that is not there", FilterConfig{DIDs: []string{"did:plc:none"}}, 0, false},
		{"commits of a collection", FilterConfig{Collections: []string{"com.example.*"}, Kinds: Kinds(translate.KindCommit)}, 3, false},
		{"a collection", FilterConfig{Collections: []string{"com.example.rare"}}, 3, true},
		{"identities", FilterConfig{Kinds: Kinds(translate.KindIdentity)}, 0, true},
		{"accounts", FilterConfig{Kinds: Kinds(translate.KindAccount)}, 0, false},
		{"a DID and a collection", FilterConfig{DIDs: []string{"did:plc:rare"}, Collections: []string{"com.example.rare"}}, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l.cache = newCache(cfg.CacheBytes)
			w := &world{t: t, cfg: cfg, log: l, m: &model{blocks: []modelBlock{{testBlock: testBlock{events: all}}}}}
			rc := ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1 << 20, Filter: must(NewFilter(tc.cfg))}
			r, err := l.NewReader(rc)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(w.render(w.m.items(), rc, tc.cfg), w.drain(r, rc), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("-want +got\n%s", diff)
			}
			waitReadAhead(l)
			read := map[format.Range]int{}
			for k := range l.cache.entries {
				if k.block <= l.snap.Load().spanned {
					read[k.part]++
				}
			}
			indexes, outlines := 0, tc.blocks
			if len(tc.cfg.DIDs) > 0 {
				indexes, outlines = tc.blocks, 0
			}
			if read[format.RangeIndex] != indexes || read[format.RangeSlimIndex] != outlines || read[format.RangeCopiesIndex] > 0 != tc.others {
				t.Errorf("it read %d indexes and %d outlines, want %d and %d; others %d", read[format.RangeIndex], read[format.RangeSlimIndex], indexes, outlines, read[format.RangeCopiesIndex])
			}
			if strings.HasSuffix(tc.name, "not there") && read[format.RangeSpan] != 1 {
				t.Errorf("it read %d of two spans; the last one says how far that goes", read[format.RangeSpan])
			}
		})
	}
}
