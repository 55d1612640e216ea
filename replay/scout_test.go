package replay

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/translate"
)

// TestScout: a reader that looks at several spans at once, and has blocks read meanwhile, reads what one reads that does
// not, and no block that has no match.
func TestScout(t *testing.T) {
	cfg := testConfig(t, vfs.NewMem(), newTestClock())
	cfg.TailBytes, cfg.CacheBytes, cfg.alwaysSlow = 1, 64<<20, true
	cfg.Retention = spanRetentionShare * 50 * time.Millisecond // spans of 50 events
	l := mustOpen(t, cfg)
	rng := rand.New(rand.NewPCG(4, 4))
	var all []testEvent
	blocksWith := map[string]int{}
	for range 200 {
		tb := testBlock{epoch: 1, firstSeq: int64(len(all) + 1)}
		with := map[string]bool{}
		for range 10 {
			i := int64(len(all) + 1)
			e := randomEvent(rng, place{1, i, 0}, testStart.UnixMicro()+1000*i)
			e.did = testDID(rng.IntN(300))
			if e.kind == translate.KindCommit && rng.IntN(100) == 0 {
				e.collection = "com.example.rare"
			}
			with[e.did], with[e.collection] = true, true
			all = append(all, e)
			tb.events = append(tb.events, e)
		}
		tb.lastSeq = int64(len(all))
		if err := l.Append(tb.seal(t, l)); err != nil {
			t.Fatal(err)
		}
		if tb.events[9].timeUS <= l.snap.Load().spanned || len(all) < 1900 {
			for name := range with {
				blocksWith[name]++
			}
		}
	}
	deepest := 0
	for _, tc := range []struct {
		name string
		cfg  FilterConfig
	}{
		{testDID(1), FilterConfig{DIDs: []string{testDID(1)}}},
		{testDID(2), FilterConfig{DIDs: []string{testDID(2)}}},
		{"none", FilterConfig{DIDs: []string{"did:plc:none"}}},
		{"com.example.rare", FilterConfig{Collections: []string{"com.example.rare"}, Kinds: Kinds(translate.KindCommit)}},
	} {
		l.cache = newCache(cfg.CacheBytes)
		w := &world{t: t, cfg: cfg, log: l, m: &model{blocks: []modelBlock{{testBlock: testBlock{events: all}}}}}
		rc := ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 300, Filter: must(NewFilter(tc.cfg))}
		r, err := l.NewReader(rc)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(w.render(w.m.items(), rc, tc.cfg), w.drain(r, rc), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s: -want +got\n%s", tc.name, diff)
		}
		deepest = max(deepest, r.depth)
		for range cap(l.aheads) { // waits for what is read ahead
			l.aheads <- struct{}{}
		}
		for range cap(l.aheads) {
			<-l.aheads
		}
		read, unread, spans := 0, 0, 0
		for k, e := range l.cache.entries {
			if k.part == rangeSpan {
				spans++
			}
			if k.part != rangeIndex || k.block > all[1899].timeUS {
				continue
			}
			if read++; e.idx.checked.Load() == 0 {
				unread++
			}
		}
		if want := blocksWith[tc.name]; read > want+2 || read < want-20 || unread > 2 {
			t.Errorf("%s: it read %d indexes, of %d blocks no part, want %d and none", tc.name, read, unread, want)
		}
		if tc.name == "none" && spans > 8 {
			t.Errorf("%s: it read %d spans of %d; how far it came, only a few need say", tc.name, spans, len(l.snap.Load().spans))
		}
		if len(l.looks) != 0 {
			t.Errorf("%d looks have no end", len(l.looks))
		}
	}
	if deepest != maxLooks {
		t.Errorf("it looked %d spans ahead at most, want %d", deepest, maxLooks)
	}
}
