package replay

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
	"millrace/translate"
)

// spannedLog is a log on the real disk of n events by about n/5 accounts, some of them busy. One
// account has 10 events, one collection 100, 12 % are posts and 1.5 % identity and account events.
// The others have a reference each, ten of them to one record, most to one that nobody else refers
// to.
func spannedLog(b *testing.B, n int) *Log {
	b.Helper()
	cfg := testConfig(b, nil, newTestClock())
	cfg.Dir, cfg.TailBytes, cfg.CacheBytes, cfg.PebbleBytes = b.TempDir(), 1<<20, 16<<20, 32<<20
	l := mustOpen(b, cfg)
	rng := rand.New(rand.NewPCG(1, 1))
	var events []testEvent
	for i := range n {
		e := testEvent{Place: format.Place{Epoch: 1, Seq: int64(i + 1), Op: 0}, timeUS: testStart.UnixMicro() + int64(i)*600,
			kind: translate.KindCommit, operation: translate.OpCreate, collection: "app.bsky.feed.like",
			did: testDID(int(float64(n/5) * rng.Float64() * rng.Float64()))}
		switch k := rng.IntN(1000); {
		case i%(n/10) == n/20:
			e.did = "did:plc:rare"
		case i%(n/100) == n/200:
			e.collection = "com.example.rare"
		case k < 120:
			e.collection = "app.bsky.feed.post"
		case k < 135:
			e.kind, e.operation, e.collection = translate.KindIdentity, 0, ""
		case k < 300:
			e.collection = fmt.Sprintf("app.bsky.graph.c%d", k%40)
		}
		if e.kind == translate.KindCommit {
			subject, author := rng.Uint64N(1<<30), rng.Uint64N(1<<26)
			if k := rng.IntN(100); k < 40 {
				subject, author = uint64(k*k*k), uint64(k*k) // one of the busy
			}
			e.refs = []Reference{{Source: 1, Subject: subject%16<<50 | 1<<31 | subject, Authority: author%16<<50 | 1 + author}}
			if i%(n/10) == n/30 {
				e.refs[0].Subject, e.refs[0].Authority = benchSubject, benchSubject+1
			}
		}
		e.payload = fmt.Sprintf(`{"did":"%s","time_us":%d,"kind":"commit","commit":{"rev":"3kabcdefghijk","operation":"create","collection":"%s","rkey":"3kabcdefgh%03d","record":{"$type":"app.bsky.feed.like","subject":{"uri":"at://did:plc:abc/app.bsky.feed.post/3k%d"}},"cid":"bafyreigdyr"}}`,
			e.did, e.timeUS, e.collection, i%1000, i)
		events = append(events, e)
		if len(events) == 1024 {
			tb := testBlock{epoch: 1, firstSeq: events[0].Seq, lastSeq: e.Seq, events: events}
			if err := l.Append(tb.seal(b, l)); err != nil {
				b.Fatal(err)
			}
			events = events[:0]
		}
	}
	if err := l.store.Pebble().Flush(); err != nil {
		b.Fatal(err)
	}
	return l
}

// benchSubject is a subject of spannedLog that ten events refer to; its author is the UID after it.
const benchSubject = 1<<50 | 1<<40

// BenchmarkSpans replays through filters out of a log of 600,000 events, nothing cached by us.
func BenchmarkSpans(b *testing.B) {
	const n = 600_000
	l := spannedLog(b, n)
	perEventBytes := func(rs ...format.Range) float64 {
		total := 0
		for _, r := range rs {
			it, err := l.store.NewIter(&pebble.IterOptions{LowerBound: r.Start(), UpperBound: r.End()})
			if err != nil {
				b.Fatal(err)
			}
			for it.First(); it.Valid(); it.Next() {
				total += len(it.Value())
			}
			_ = it.Close()
		}
		return float64(total) / n
	}
	b.Logf("bytes an event: spans %.2f, DIDs with their blocks %.2f, copies of others %.2f, references %.2f and %.2f in spans; index %.1f, slim %.1f, plain %.1f, zstd %.1f",
		perEventBytes(format.RangeSpan), perEventBytes(format.RangeSpanDIDs),
		perEventBytes(format.RangeCopiesIndex, format.RangeCopiesPlain, format.RangeCopiesZstd),
		perEventBytes(format.RangeReferences), perEventBytes(format.RangeSpanSubjects),
		perEventBytes(format.RangeIndex), perEventBytes(format.RangeSlimIndex), perEventBytes(format.RangePlain), perEventBytes(format.RangeZstd))
	dids := func(n int) (out []string) {
		for i := range n {
			out = append(out, testDID(90_000+i)) // quiet ones
		}
		return out
	}
	var tenABlock []string
	for i := range 1000 {
		tenABlock = append(tenABlock, testDID(n/5/1000*i))
	}
	commits := Kinds(translate.KindCommit)
	for _, tc := range []struct {
		name string
		cfg  FilterConfig
	}{
		{"one-did", FilterConfig{DIDs: []string{"did:plc:rare"}}},
		{"absent-did", FilterConfig{DIDs: []string{"did:plc:none"}}},
		{"1000-dids", FilterConfig{DIDs: dids(1000)}},
		{"1000-dids-of-all", FilterConfig{DIDs: tenABlock}},
		{"10000-dids", FilterConfig{DIDs: dids(10_000)}},
		{"one-subject", FilterConfig{Subjects: []uint64{benchSubject}, Kinds: commits}},
		{"one-subjects-did", FilterConfig{SubjectDIDs: []uint64{benchSubject + 1}, Kinds: commits}},
		{"one-subject-and-identities", FilterConfig{Subjects: []uint64{benchSubject}}},
		{"rare-collection-commits", FilterConfig{Collections: []string{"com.example.rare"}, Kinds: commits}},
		{"rare-collection", FilterConfig{Collections: []string{"com.example.rare"}}},
		{"posts", FilterConfig{Collections: []string{"app.bsky.feed.post"}, Kinds: commits}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			f := must(NewFilter(tc.cfg))
			var c Chunk
			events := 0
			cpu := cpuTime()
			for b.Loop() {
				l.blocks.cache = newCache(l.cfg.CacheBytes)
				r := mustRead(b, l, ReaderConfig{Filter: f, Cursor: TimeCursor(0)})
				events = 0
				for c.Live = false; !c.Live; {
					if err := r.Next(&c); err != nil {
						b.Fatal(err)
					}
					events += c.Events
				}
			}
			b.ReportMetric(float64(events), "events")
			b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N)/1e6/(n/1e6), "cpu-ms/million")
		})
	}
}
