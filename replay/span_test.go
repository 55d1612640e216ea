package replay

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// TestSpansSkip: a filtered reader reads the indexes of blocks that have a match and of no others.
// Of identity and account events that pass a collection filter it reads only the copies.
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
			e := randomEvent(rng, format.Place{Epoch: 1, Seq: i, Op: 0}, testStart.UnixMicro()+1000*i)
			e.kind, e.operation, e.collection = translate.KindCommit, translate.OpCreate, "app.bsky.feed.like"
			e.refs, e.repeated = shapedReferences(int(i%50), translate.OpCreate), false
			switch {
			case i%1500 == 0:
				e.did = "did:plc:rare"
				e.refs = []Reference{{Source: 1, Subject: 1 << 60, Authority: 1 << 61}, {Source: 2, Subject: 1<<61 | 1, Authority: 1<<61 | 1}}
			case i%1500 == 700:
				e.collection = "com.example.rare"
			case i%50 == 0:
				e.kind, e.operation, e.collection, e.refs = translate.KindIdentity, 0, "", nil
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
	commits := Kinds(translate.KindCommit)
	rareSource := testSource("com.example.rare", 1+700%50%testSources)
	if _, ok := l.FindSource(rareSource); !ok {
		t.Fatal("the rare collection has no source")
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
		{"a subject", FilterConfig{Subjects: []uint64{1 << 60}, Kinds: commits}, 3, false},
		{"a subject, and identities", FilterConfig{Subjects: []uint64{1 << 60}}, 3, true},
		{"a subject's DID", FilterConfig{SubjectDIDs: []uint64{1 << 61}, Kinds: commits}, 3, false},
		{"a DID as a subject's", FilterConfig{SubjectDIDs: []uint64{1<<61 | 1}, Kinds: commits}, 3, false},
		{"a subject's DID as a subject", FilterConfig{Subjects: []uint64{1 << 61}, Kinds: commits}, 0, false},
		{"a subject that is not there", FilterConfig{Subjects: []uint64{3}, Kinds: commits}, 0, false},
		{"a subject and a source", FilterConfig{Subjects: []uint64{1 << 60}, Sources: []string{testSource("app.bsky.feed.like", 1)}, Kinds: commits}, 3, false},
		{"a subject and a source of another collection", FilterConfig{Subjects: []uint64{1 << 60}, Sources: []string{rareSource}, Kinds: commits}, 0, false},
		{"a source", FilterConfig{Sources: []string{rareSource}, Kinds: commits}, 3, false},
		{"no subject yet", FilterConfig{Subjects: []uint64{}}, 0, true},
		{"a DID and a subject", FilterConfig{DIDs: []string{"did:plc:rare"}, Subjects: []uint64{1 << 60}}, 3, false},
		{"a DID and a subject of others", FilterConfig{DIDs: []string{"did:plc:rare"}, Subjects: []uint64{testSubject(3).UID}}, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l.blocks.cache = newCache(cfg.CacheBytes)
			w := &world{t: t, cfg: cfg, log: l, m: &model{blocks: []modelBlock{{testBlock: testBlock{events: all}}}}}
			rc := ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1 << 20, Filter: must(NewFilter(tc.cfg))}
			r := mustRead(t, l, rc)
			if diff := cmp.Diff(w.render(w.m.items(), rc, tc.cfg), w.drain(r, rc), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("-want +got\n%s", diff)
			}
			waitReadAhead(l)
			read := map[format.Range]int{}
			for k := range l.blocks.cache.Values() {
				if k.block <= l.snap.Load().spanned {
					read[k.part]++
				}
			}
			indexes, slimIndexes := 0, tc.blocks
			if wanted := tc.cfg.Subjects != nil || tc.cfg.Sources != nil; wanted && read[format.RangeReferences] != tc.blocks {
				t.Errorf("it read the references of %d blocks, want %d", read[format.RangeReferences], tc.blocks)
			}
			if len(tc.cfg.DIDs) > 0 {
				indexes, slimIndexes = tc.blocks, 0
			}
			if read[format.RangeIndex] != indexes || read[format.RangeSlimIndex] != slimIndexes || read[format.RangeCopiesIndex] > 0 != tc.others {
				t.Errorf("it read %d indexes and %d slim indexes, want %d and %d; others %d", read[format.RangeIndex], read[format.RangeSlimIndex], indexes, slimIndexes, read[format.RangeCopiesIndex])
			}
			if tc.cfg.DIDs != nil && strings.HasSuffix(tc.name, "not there") && read[format.RangeSpan] != 1 {
				t.Errorf("it read %d of two spans; the last one says how far that goes", read[format.RangeSpan])
			}
		})
	}
	t.Run("a new filter within a span", func(t *testing.T) {
		r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1, Filter: must(NewFilter(FilterConfig{Collections: []string{"com.example.rare"}, Kinds: commits}))})
		var c Chunk
		for c.Events == 0 && !c.Live {
			if err := r.Next(&c); err != nil {
				t.Fatal(err)
			}
		}
		if seq := c.Through.Position.Seq; seq > 2250 {
			t.Fatalf("it has looked up to %d", seq)
		}
		r.SetFilter(must(NewFilter(FilterConfig{Kinds: Kinds(translate.KindIdentity)})))
		events, want := 0, 0
		for _, e := range all[c.Through.Position.Seq:] {
			if e.kind == translate.KindIdentity {
				want++
			}
		}
		for !c.Live {
			if err := r.Next(&c); err != nil {
				t.Fatal(err)
			}
			events += c.Events
		}
		if events != want {
			t.Errorf("the new filter passes %d events, want %d", events, want)
		}
	})
}
