package replay

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/replay/internal/filter"
	"millrace/replay/internal/format"
	"millrace/translate"
)

// fatBlocks is a log of blocks of some pages each, none of them in the tail but the last, and its
// plain frames.
func fatBlocks(t *testing.T) (l *Log, plain []byte) {
	t.Helper()
	cfg := testConfig(t, vfs.NewMem(), newTestClock())
	cfg.TailBytes, cfg.CacheBytes = 1, 16<<20
	l = mustOpen(t, cfg)
	rng := rand.New(rand.NewPCG(8, 8))
	for i := int64(1); i <= 800; {
		tb := testBlock{epoch: 1, firstSeq: i}
		for range 200 {
			e := randomEvent(rng, format.Place{Epoch: 1, Seq: i, Op: 0}, testStart.UnixMicro()+1000*i)
			if e.kind == translate.KindSync { // readers of everything get all
				e.kind = translate.KindAccount
			}
			letters := make([]byte, 1000+rng.IntN(2000))
			for k := range letters {
				letters[k] = 'a' + byte(rng.IntN(4))
			}
			e.payload = `{"text":"` + string(letters) + `"}`
			if tb.events = append(tb.events, e); len(tb.events) == 51 {
				tb.events[50].did = "did:plc:rare"
			}
			i++
		}
		tb.lastSeq = i - 1
		b := tb.seal(t, l)
		plain = append(plain, b.plain...)
		if err := l.Append(b); err != nil {
			t.Fatal(err)
		}
	}
	return l, plain
}

// firstBlock returns the index of the log's oldest block.
func firstBlock(t *testing.T, l *Log) *blockIndex {
	t.Helper()
	s, scan := l.snap.Load(), blockScan{bs: l.blocks}
	defer scan.close()
	x, err := scan.find(s, s.Floor.TimeUS+1)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// pages is how many pages of plain parts the cache has.
func pages(l *Log) (n int) {
	for k := range l.blocks.cache.Values() {
		if k.part == format.RangePlain {
			n++
		}
	}
	return n
}

// TestPages: a single reader leaves no frames in the cache. Later readers share what they unpack,
// and all read the same. A chunk keeps its bytes whatever other chunks do.
func TestPages(t *testing.T) {
	l, want := fatBlocks(t)
	unpacked := 0
	for n, tc := range []struct {
		chunk int
		alone bool
	}{{128 << 10, true}, {100 << 10, false}, {1, false}, {5000, false}, {1 << 20, false}} {
		r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: tc.chunk})
		var got, held []byte
		chunks := [3]Chunk{}
		for i := 0; ; i++ {
			c := &chunks[i%len(chunks)]
			if err := r.Next(c); err != nil {
				t.Fatal(err)
			}
			if c.Live && c.Events == 0 {
				break
			}
			held = held[:0]
			for k := range chunks { // oldest first
				held = append(held, bytes.Join(chunks[(i+1+k)%len(chunks)].Frames, nil)...)
			}
			got = append(got, bytes.Join(c.Frames, nil)...)
			if !bytes.HasSuffix(got, held) {
				t.Fatalf("reader %d: a chunk that is held changes", n)
			}
			if tc.chunk >= 128<<10 && len(c.Frames) > 2 || c.Bytes > max(tc.chunk, 4000) {
				t.Fatalf("reader %d: %d bytes in %d slices", n, c.Bytes, len(c.Frames))
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("reader %d: it reads other frames", n)
		}
		pages := pages(l)
		if tc.alone && pages > 0 || !tc.alone && pages == 0 || unpacked > 0 && pages != unpacked {
			t.Errorf("reader %d leaves %d pages in the cache, before were %d", n, pages, unpacked)
		}
		unpacked = pages
	}
}

// TestPagesOfBuilt: a reader whose variant is built of plain frames unpacks each page once, too.
func TestPagesOfBuilt(t *testing.T) {
	for _, rc := range []ReaderConfig{{V2: true}, {Extended: true}, {Dictionary: otherDictionaryID}, {V2: true, Dictionary: otherDictionaryID}} {
		l, _ := fatBlocks(t)
		rc.Cursor, rc.MaxChunkBytes = TimeCursor(0), 128<<10
		r := mustRead(t, l, rc)
		var c Chunk
		for !c.Live {
			if err := r.Next(&c); err != nil {
				t.Fatal(err)
			}
		}
		if n := pages(l); n > 0 { // where the second to unpack one leaves it
			t.Errorf("%+v: %d pages were unpacked twice", rc, n)
		}
	}
}

// TestPagesOfMatches: a reader of few matches, whose variant is built of plain frames, unpacks only
// the substreams of pages that have one.
func TestPagesOfMatches(t *testing.T) {
	l, _ := fatBlocks(t)
	x := firstBlock(t, l)
	f := must(NewFilter(FilterConfig{DIDs: []string{"did:plc:rare"}}))
	r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0), Filter: f, Extended: true})
	var m filter.Matcher
	if some, err := l.blocks.match(&m, f, candidate{idx: x}); err != nil || !some {
		t.Fatalf("the filter matches nothing: %v", err)
	}
	var want uint64
	p, err := l.blocks.openPart(x, format.RangePlain, x.Key(), int(x.PlainEnd[x.Events()-1]))
	if err != nil {
		t.Fatal(err)
	}
	if p.pages.NumSubstreams() < 2 {
		t.Fatalf("%d substreams", p.pages.NumSubstreams())
	}
	for i := m.Next(0); i < x.Events(); i = m.Next(i + 1) {
		want |= 1 << (p.pages.PageAt(int(format.FrameStart(x.PlainEnd, i)))*p.pages.NumSubstreams() + p.pages.SubstreamOf(i))
	}
	p.close()
	var c Chunk
	for !c.Live {
		if err := r.Next(&c); err != nil {
			t.Fatal(err)
		}
	}
	if got := x.touched.Load(); got != want || bits.OnesCount64(want) != 1 {
		t.Errorf("it unpacked substreams %b, want %b", got, want)
	}
}

// TestRelease: a chunk gives its memory back once, and still says how far it came.
func TestRelease(t *testing.T) {
	l, want := fatBlocks(t)
	r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0)})
	var c Chunk
	if err := r.Next(&c); err != nil || c.buffer == nil || !bytes.HasPrefix(want, bytes.Join(c.Frames, nil)) {
		t.Fatalf("%d events, buffer %v, %v", c.Events, c.buffer, err)
	}
	events, bytes, through := c.Events, c.Bytes, c.Through
	c.Release()
	if len(c.Frames) > 0 || c.buffer != nil || c.Events != events || c.Bytes != bytes || c.Through != through {
		t.Errorf("it becomes %+v", c)
	}
	c.Release()
	c.Reset()
}

// TestLoadFor: what is read ahead has the substreams that its reader's filter passes something of,
// and no others.
func TestLoadFor(t *testing.T) {
	l, _ := fatBlocks(t)
	x := firstBlock(t, l)
	loaded := map[int]bool{}
	for name, cfg := range map[string]FilterConfig{
		"everything": {},
		"a DID":      {DIDs: []string{"did:plc:rare"}},
		"nothing":    {DIDs: []string{"did:plc:nobody"}},
		"one":        {Collections: testCollections[:1], Kinds: Kinds(translate.KindCommit)},
		"two":        {Collections: testCollections[1:3], Kinds: Kinds(translate.KindCommit)},
	} {
		f := must(NewFilter(cfg))
		var m *filter.Matcher
		var want, got [format.MaxSubstreams]bool
		some := true
		if !f.MatchesAll(x.Kinds) {
			var err error
			m = new(filter.Matcher)
			if some, err = l.blocks.match(m, f, candidate{idx: x}); err != nil {
				t.Fatal(err)
			}
		}
		if !some { // then nothing is read ahead
			loaded[0] = true
			continue
		}
		p, err := l.blocks.openPart(x, format.RangePlain, x.Key(), int(x.PlainEnd[x.Events()-1]))
		if err != nil {
			t.Fatal(err)
		}
		p.loadFor(m)
		want[0] = true
		for i := range x.Events() {
			if m == nil || m.Next(i) == i {
				want[p.pages.SubstreamOf(i)] = true
			}
		}
		n := 0
		for substream := range got {
			if got[substream] = p.pages.HasSubstream(substream); got[substream] {
				n++
			}
		}
		p.close()
		loaded[n] = true
		if got != want {
			t.Errorf("%s: substreams %v are read, want %v", name, got, want)
		}
	}
	if len(loaded) < 3 {
		t.Errorf("only %v substreams were read", loaded)
	}
}
