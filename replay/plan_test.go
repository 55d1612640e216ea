package replay

import (
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/replay/internal/ahead"
	"millrace/replay/internal/format"
	"millrace/replay/internal/logstore"
	"millrace/translate"
)

// TestPlannerLooksUpSeveral: a reader that looks at several spans at once, and has blocks read
// meanwhile, reads what one reads that does not. It reads no block that has no match.
func TestPlannerLooksUpSeveral(t *testing.T) {
	cfg := testConfig(t, vfs.NewMem(), newTestClock())
	cfg.TailBytes, cfg.CacheBytes, cfg.hooks.alwaysSlow = 1, 64<<20, true
	cfg.Retention = logstore.SpanRetentionShare * 50 * time.Millisecond // spans of 50 events
	opened := noteParts(&cfg)
	l := mustOpen(t, cfg)
	rng := rand.New(rand.NewPCG(4, 4))
	var all []testEvent
	blocksWith := map[string]int{}
	for range 200 {
		tb := testBlock{epoch: 1, firstSeq: int64(len(all) + 1)}
		with := map[string]bool{}
		for range 10 {
			i := int64(len(all) + 1)
			e := randomEvent(rng, format.Place{Epoch: 1, Seq: i, Op: 0}, testStart.UnixMicro()+1000*i)
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
		l.blocks.cache = newCache(cfg.CacheBytes)
		opened.forget()
		w := &world{t: t, cfg: cfg, log: l, m: &model{blocks: []modelBlock{{testBlock: testBlock{events: all}}}}}
		rc := ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 300, Filter: must(NewFilter(tc.cfg))}
		r := mustRead(t, l, rc)
		if diff := cmp.Diff(w.render(w.m.items(), rc, tc.cfg), w.drain(r, rc), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s: -want +got\n%s", tc.name, diff)
		}
		deepest = max(deepest, int(r.depth))
		waitReadAhead(l)
		read, unread, spans := 0, 0, 0
		for k := range l.blocks.cache.Values() {
			if k.part == format.RangeSpan {
				spans++
			}
			if k.part != format.RangeIndex || k.block > all[1899].timeUS {
				continue
			}
			if read++; len(opened.of(k.block)) == 0 {
				unread++
			}
		}
		if want := blocksWith[tc.name]; read > want+2 || read < want-20 || unread > 2 {
			t.Errorf("%s: it read %d indexes, of %d blocks no part, want %d and none", tc.name, read, unread, want)
		}
		if tc.name == "none" && spans > 8 {
			t.Errorf("%s: it read %d spans of %d; how far it came, only a few need say", tc.name, spans, len(l.snap.Load().spans))
		}
		if !l.blocks.lookups.TryAcquire(ahead.MaxLookups) {
			t.Fatal("some look-up has no end")
		}
		l.blocks.lookups.Release(ahead.MaxLookups)
	}
	if deepest != ahead.MaxLookups {
		t.Errorf("it looked %d spans ahead at most, want %d", deepest, ahead.MaxLookups)
	}
}

// slowBlobs returns a disk whose reads of blob files, once it is armed, take 10 ms on the clock
// that it returns.
func slowBlobs() (disk *failingFS, monotonic func() time.Duration) {
	var now atomic.Int64
	disk = &failingFS{fails: func(op errorfs.Op) bool {
		if op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".blob") {
			now.Add(int64(10 * time.Millisecond))
		}
		return false
	}}
	return disk, func() time.Duration { return time.Duration(now.Load()) }
}

// TestSlowParts: a reader that spans lead finds what they say at once but waits for the frames. It
// goes on with several blocks at once, too. One that waits for nothing does not.
func TestSlowParts(t *testing.T) {
	disk, monotonic := slowBlobs()
	cfg := testConfig(t, disk.wrap(vfs.NewMem()), newTestClock())
	cfg.Monotonic = monotonic
	cfg.TailBytes, cfg.CacheBytes, cfg.hooks.blobValue = 1, 64<<20, 1
	cfg.Retention = logstore.SpanRetentionShare * 50 * time.Millisecond // spans of 50 events
	l := mustOpen(t, cfg)
	rng := rand.New(rand.NewPCG(5, 5))
	wanted := 0
	for seq := int64(1); seq <= 2000; seq += 10 {
		tb := testBlock{epoch: 1, firstSeq: seq, lastSeq: seq + 9}
		for i := seq; i <= tb.lastSeq; i++ {
			e := randomEvent(rng, format.Place{Epoch: 1, Seq: i, Op: 0}, testStart.UnixMicro()+1000*i)
			if e.kind == translate.KindCommit && i%30 == 0 {
				e.collection = "com.example.some"
				wanted++
			}
			tb.events = append(tb.events, e)
		}
		if err := l.Append(tb.seal(t, l)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.store.Pebble().Flush(); err != nil {
		t.Fatal(err)
	}
	// what says where the events are is in the log's cache
	for _, key := range l.snap.Load().spansSince(0) {
		sp, err := l.blocks.spanOf(key)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range sp.Keys {
			if _, err := l.blocks.indexOf(format.RangeSlimIndex, block); err != nil {
				t.Fatal(err)
			}
		}
	}
	filter := must(NewFilter(FilterConfig{Collections: []string{"com.example.some"}, Kinds: Kinds(translate.KindCommit)}))
	// the second time Pebble's cache has what the first read
	for _, armed := range []bool{true, false} {
		disk.armed.Store(armed)
		r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1, Filter: filter})
		var c Chunk
		events, deep, before := 0, 0, r.depth
		for !c.Live {
			if err := r.Next(&c); err != nil {
				t.Fatal(err)
			}
			if events += c.Events; r.depth > before {
				deep++
			}
			before = r.depth
		}
		if events != wanted {
			t.Errorf("it read %d events of %d", events, wanted)
		}
		if armed && deep == 0 {
			t.Errorf("it waited for each of %d blocks, and did not look ahead", wanted)
		}
		if !armed && deep > wanted/2 {
			t.Errorf("it looked further ahead at %d of %d blocks, and waited for none", deep, wanted)
		}
	}
}

// TestSlowSubstreams: what a reader wants of a large block may be small, and is waited for no less.
func TestSlowSubstreams(t *testing.T) {
	disk, monotonic := slowBlobs()
	cfg := testConfig(t, disk.wrap(vfs.NewMem()), newTestClock())
	cfg.Monotonic = monotonic
	cfg.TailBytes, cfg.CacheBytes, cfg.PebbleBytes, cfg.hooks.blobValue = 1, 256<<20, 256<<20, 1
	cfg.Retention = logstore.SpanRetentionShare * 50 * time.Millisecond // spans of five blocks
	held := holdReadAhead(&cfg)
	l := mustOpen(t, cfg)
	rng := rand.New(rand.NewPCG(6, 6))
	const blocks = 40
	for i := range int64(blocks) {
		tb := testBlock{epoch: 1, firstSeq: 10*i + 1, lastSeq: 10*i + 10}
		for seq := tb.firstSeq; seq <= tb.lastSeq; seq++ {
			e := randomEvent(rng, format.Place{Epoch: 1, Seq: seq, Op: 0}, testStart.UnixMicro()+1000*seq)
			if e.kind, e.collection = translate.KindCommit, "com.example.large"; seq == tb.firstSeq+5 {
				e.collection = "com.example.small"
			} else {
				e.payload = `{"kind":"commit","text":"` + strings.Repeat("all ", 128<<10) + `"}`
			}
			tb.events = append(tb.events, e)
		}
		if err := l.Append(tb.seal(t, l)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.store.Pebble().Flush(); err != nil {
		t.Fatal(err)
	}
	disk.armed.Store(true)
	held.Lock() // what is read ahead in time is not waited for
	defer held.Unlock()
	filter := must(NewFilter(FilterConfig{Collections: []string{"com.example.small"}, Kinds: Kinds(translate.KindCommit)}))
	r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1, Filter: filter})
	var c Chunk
	events, deep, before := 0, 0, r.depth
	for !c.Live {
		if err := r.Next(&c); err != nil {
			t.Fatal(err)
		}
		if events += c.Events; r.depth > before {
			deep++
		}
		before = r.depth
	}
	if events != blocks || deep < 3 {
		t.Errorf("it read %d events of %d, waited for most of them, and looked further ahead at %d", events, blocks, deep)
	}
}
