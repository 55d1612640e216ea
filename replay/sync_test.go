package replay

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/dict"
	"millrace/replay/internal/format"
	"millrace/translate"
)

// syncLog makes a log of five blocks, the last an hour later. A span has the first four: 0 and 3
// without a #sync event, 1 with some, 2 with #sync events only. other makes the i-th event of a
// block if it is no #sync event.
func syncLog(t *testing.T, tailBytes int64, other func(p format.Place, us int64, i int) testEvent) (l *Log, cfg Config, all []testEvent) {
	t.Helper()
	cfg = testConfig(t, vfs.NewMem(), newTestClock())
	cfg.TailBytes = tailBytes
	l = mustOpen(t, cfg)
	for n := range 5 {
		b := testBlock{epoch: 1, firstSeq: int64(1 + 12*n), lastSeq: int64(12 + 12*n)}
		for i := range 12 {
			seq := b.firstSeq + int64(i)
			place, us := format.Place{Epoch: 1, Seq: seq}, testStart.Add(time.Duration(n/4)*time.Hour).UnixMicro()+seq
			e := testEvent{Place: place, timeUS: us, did: testDID(i % 5), didUID: uint64(1 + i%5), kind: translate.KindSync}
			e.payload = fmt.Sprintf(`{"did":"%s","time_us":%d,"kind":"sync",%s}`, e.did, us, e.rest("AAAA"))
			if n != 2 && (n != 1 || i%5 != 1) {
				e = other(place, us, i)
			}
			all = append(all, e)
			b.events = append(b.events, e)
		}
		if err := l.Append(b.seal(t, l)); err != nil {
			t.Fatal(err)
		}
	}
	return l, cfg, all
}

// TestSyncsAreAskedFor: readers that do not ask for #sync events do not get them, in any variant.
// Those that do get them whatever collections and subjects they want.
func TestSyncsAreAskedFor(t *testing.T) {
	const sync = KindSet(1 << translate.KindSync)
	rng := rand.New(rand.NewPCG(3, 3))
	other := func(p format.Place, us int64, _ int) testEvent {
		for {
			if e := randomEvent(rng, p, us); e.kind != translate.KindSync {
				return e
			}
		}
	}
	for _, tailBytes := range []int64{1, 1 << 20} {
		l, cfg, all := syncLog(t, tailBytes, other)
		w := &world{t: t, cfg: cfg, log: l, m: &model{blocks: []modelBlock{{testBlock: testBlock{events: all}}}}}
		var err error
		if w.dec, err = dict.NewDecoder(1<<20, cfg.Dictionaries.All()...); err != nil {
			t.Fatal(err)
		}
		defer w.dec.Close()
		for name, tc := range map[string]struct {
			cfg   FilterConfig
			syncs int
		}{
			"nothing":                      {FilterConfig{}, 0},
			"the default":                  {FilterConfig{Kinds: format.DefaultKinds}, 0},
			"a collection":                 {FilterConfig{Collections: testCollections[:1]}, 0},
			"a DID":                        {FilterConfig{DIDs: []string{testDID(1)}}, 0},
			"a subject":                    {FilterConfig{Subjects: []uint64{testSubject(1).UID}}, 0},
			"a size":                       {FilterConfig{MaxPayloadBytes: 1000}, 0},
			"all":                          {FilterConfig{Kinds: AllKinds}, 15},
			"syncs":                        {FilterConfig{Kinds: sync}, 15},
			"syncs and identities":         {FilterConfig{Kinds: sync | Kinds(translate.KindIdentity)}, 15},
			"all, and a collection":        {FilterConfig{Kinds: AllKinds, Collections: testCollections[:1]}, 15},
			"all, and no collection":       {FilterConfig{Kinds: AllKinds, Collections: []string{"a.b.c"}}, 15},
			"all, and a subject":           {FilterConfig{Kinds: AllKinds, Subjects: []uint64{testSubject(1).UID}}, 15},
			"all of a DID":                 {FilterConfig{Kinds: AllKinds, DIDs: []string{testDID(1)}}, 6},
			"syncs of a DID":               {FilterConfig{Kinds: sync, DIDs: []string{testDID(1)}}, 6},
			"syncs of a DID that has none": {FilterConfig{Kinds: sync, DIDs: []string{"did:plc:none"}}, 0},
			"small syncs":                  {FilterConfig{Kinds: sync, MaxPayloadBytes: 10}, 0},
		} {
			t.Run(fmt.Sprint(name, ", tail of ", tailBytes), func(t *testing.T) {
				w.t = t
				for _, rc := range []ReaderConfig{
					{}, {Dictionary: cfg.Dictionaries.Stored().ID()}, {Dictionary: dict.BuiltIn().ID()}, {Dictionary: otherDictionaryID},
					{Extended: true}, {Extended: true, References: true, Dictionary: dict.BuiltIn().ID()}, {V2: true}, {V2: true, Dictionary: otherDictionaryID},
				} {
					rc.Cursor, rc.Filter, rc.MaxChunkBytes = TimeCursor(0), must(NewFilter(tc.cfg)), 2000
					if name == "nothing" {
						rc.Filter = nil
					}
					got := w.drain(mustRead(t, l, rc), rc)
					if diff := cmp.Diff(w.render(w.m.items(), rc, tc.cfg), got, cmpopts.EquateEmpty()); diff != "" {
						t.Errorf("%+v: -want +got\n%.2000s", rc, diff)
					}
				}
				syncs := 0
				for _, e := range all {
					if e.kind == translate.KindSync && w.matches(tc.cfg, &e) && (tc.cfg.MaxPayloadBytes == 0 || tc.cfg.MaxPayloadBytes > len(e.payload)) {
						syncs++
					}
				}
				if syncs != tc.syncs {
					t.Errorf("the model passes %d #sync events, want %d", syncs, tc.syncs)
				}
			})
		}
	}
}

// TestBlocksWithoutSyncsPassWhole: a reader without a filter applies one only to blocks that have
// #sync events.
func TestBlocksWithoutSyncsPassWhole(t *testing.T) {
	l, _, _ := syncLog(t, 1<<20, shapedEvent)
	all := must(NewFilter(FilterConfig{Kinds: AllKinds}))
	for i, syncs := range []bool{false, true, true, false, false} {
		x := l.snap.Load().tail[i].idx
		for _, f := range []*Filter{nil, must(NewFilter(FilterConfig{}))} {
			if got := mustRead(t, l, ReaderConfig{Filter: f}).filterFor(x); (got != nil) != syncs {
				t.Errorf("block %d: %+v is applied", i, got)
			}
		}
		if got := mustRead(t, l, ReaderConfig{Filter: all}).filterFor(x); got != nil {
			t.Errorf("block %d: %+v is applied, though all is wanted", i, got)
		}
	}
}

// TestSyncsAreNotWaitedFor: a #sync event wakes readers that want it, and no others with a filter.
func TestSyncsAreNotWaitedFor(t *testing.T) {
	l, _, all := syncLog(t, 1<<20, shapedEvent)
	for _, tc := range []struct {
		kinds   KindSet
		pending bool
	}{{format.DefaultKinds &^ (1 << translate.KindIdentity), false}, {1 << translate.KindSync, true}, {AllKinds, true}} {
		r := mustRead(t, l, ReaderConfig{Filter: must(NewFilter(FilterConfig{Kinds: tc.kinds}))})
		var c Chunk
		if err := r.Next(&c); err != nil || !c.Live {
			t.Fatal(err)
		}
		e := all[24] // of block 2
		e.Place, e.timeUS = format.Place{Epoch: 1, Seq: l.Progress().Seq + 1}, l.Progress().TimeUS+1
		if err := l.Append(testBlock{epoch: 1, firstSeq: e.Seq, lastSeq: e.Seq, events: []testEvent{e}}.seal(t, l)); err != nil {
			t.Fatal(err)
		}
		if _, pending := r.Pending(&PendingScratch{}); pending != tc.pending {
			t.Errorf("kinds %b: pending %t", tc.kinds, pending)
		}
	}
}

// TestSyncVersion: a log is one that an older program can open until it has a #sync event, and not
// from then on.
func TestSyncVersion(t *testing.T) {
	cfg := testConfig(t, vfs.NewMem(), newTestClock())
	l := mustOpen(t, cfg)
	add := func(seq int64, kind translate.Kind) {
		t.Helper()
		e := testEvent{Place: format.Place{Epoch: 1, Seq: seq}, timeUS: testStart.UnixMicro() + seq, kind: kind, did: testDID(1), payload: "{}"}
		if err := l.Append(testBlock{epoch: 1, firstSeq: seq, lastSeq: seq, events: []testEvent{e}}.seal(t, l)); err != nil {
			t.Fatal(err)
		}
	}
	reopen := func(references bool, want uint32) {
		t.Helper()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		cfg.References = references
		if l = mustOpen(t, cfg); versionOf(t, l) != want {
			t.Errorf("version %d, want %d", versionOf(t, l), want)
		}
	}
	add(1, translate.KindAccount)
	reopen(false, format.Version)
	reopen(true, format.VersionReferences)
	add(2, translate.KindSync)
	reopen(true, format.VersionSync)
	add(3, translate.KindSync)
	reopen(false, format.VersionSync)
	reopen(true, format.VersionSync)
}

// TestVerifySyncs: a log with #sync events is sound, and what spans say of them is checked.
func TestVerifySyncs(t *testing.T) {
	for _, d := range []logDamage{
		{"none", func(*editor) {}, "", 0, 0, "", false},
		{"span lacks syncs of a block", func(e *editor) { e.span(func(s *format.Span) { s.SyncIn[0] &^= 4 }) }, "span", lastSpanned, -1, "whether it has sync events", true},
		{"span's syncs", func(e *editor) { e.span(func(s *format.Span) { s.Syncs-- }) }, "span", lastSpanned, -1, "14 sync events", true},
		{"span without syncs", func(e *editor) { e.span(func(s *format.Span) { s.Syncs, s.SyncIn = 0, format.BlockSet{} }) }, "span", lastSpanned, -1, "whether it has sync events", false},
	} {
		t.Run(d.name, func(t *testing.T) {
			l, cfg, all := syncLog(t, 1, shapedEvent)
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			var keys []int64
			for n := range 5 {
				keys = append(keys, all[12*n+11].timeUS)
			}
			fs := cfg.FS.(*vfs.MemFS)
			tamper(t, fs, func(db *pebble.DB) { d.do(&editor{t, db, keys}) })
			report := mustVerify(t, fs)
			if d.text == "" {
				if len(report.Examples) > 0 {
					t.Errorf("%+v", report.Examples)
				}
				return
			}
			findDamage(t, report, &d, keys)
		})
	}
}
