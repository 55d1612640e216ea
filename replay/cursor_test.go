package replay

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"millrace/replay/internal/format"
	"millrace/translate"
)

func TestParseCursor(t *testing.T) {
	p := translate.Position{Stream: 0xb7e1c0, Seq: 31527015322, Op: 2}
	for _, tc := range []struct {
		in   string
		want Cursor
		ok   bool
	}{
		{"0", TimeCursor(0), true},
		{"1725519626134432", TimeCursor(1725519626134432), true},
		{"-5", TimeCursor(0), true},
		{"9223372036854775807", TimeCursor(1<<63 - 1), true},
		{"b7e1c0-31527015322-2", PositionCursor(p), true},
		{"b7e1c0-31527015322", Cursor{}, false},
		{"B7E1C0-31527015322-2", Cursor{}, false},
		{"9223372036854775808", Cursor{}, false},
		{"12.5", Cursor{}, false},
		{"", Cursor{}, false},
		{"live", Cursor{}, false},
		{"-", Cursor{}, false},
	} {
		got, err := ParseCursor(tc.in)
		if (err == nil) != tc.ok || got != tc.want {
			t.Errorf("ParseCursor(%q) = %v, %v", tc.in, got, err)
		}
		if tc.ok && tc.in != "-5" && got.String() != tc.in {
			t.Errorf("%q becomes %q", tc.in, got)
		}
	}
}

// lines appends blocks by hand: each element is one block's events, as "epoch:seq/op".
type lines struct {
	t     *testing.T
	l     *Log
	clock *testClock
	stamp int64
}

func (a *lines) block(epoch uint32, first, last int64, places ...format.Place) testBlock {
	b := testBlock{epoch: epoch, firstSeq: first, lastSeq: last}
	for _, p := range places {
		a.stamp = max(a.stamp+1, a.clock.us())
		p.Epoch = epoch
		b.events = append(b.events, testEvent{Place: p, timeUS: a.stamp, kind: translate.KindCommit,
			operation: translate.OpCreate, collection: "app.bsky.feed.post", did: testDID(1), payload: `{"p":"` + placeText(p) + `"}`,
			refs: shapedReferences(1, translate.OpCreate)})
	}
	return b
}

func placeText(p format.Place) string {
	return translate.Position{Stream: translate.Stream(p.Epoch), Seq: p.Seq, Op: p.Op}.String()
}

func (a *lines) append(bs ...testBlock) {
	a.t.Helper()
	var sealed []*Block
	for _, b := range bs {
		sealed = append(sealed, b.seal(a.t, a.l))
	}
	if err := a.l.Append(sealed...); err != nil {
		a.t.Fatal(err)
	}
}

// read returns the payloads and gaps up to the end of the log.
func (a *lines) read(r *Reader) string {
	a.t.Helper()
	var out []string
	var c Chunk
	for {
		if err := r.Next(&c); err != nil {
			a.t.Fatal(err)
		}
		if c.Gap != nil {
			out = append(out, "gap")
		}
		for _, p := range parseFrames(a.t, &c, format.OpcodeText) {
			out = append(out, strings.TrimSuffix(strings.TrimPrefix(string(p), `{"p":"00000`), `"}`))
		}
		if c.Live {
			return strings.Join(out, " ")
		}
	}
}

// TestPositionCursors checks where a position leads that is within, between, after and ahead of
// blocks, or of an older epoch. Readers that wait for the log to come there go there too.
func TestPositionCursors(t *testing.T) {
	for _, tail := range []int64{1, 1 << 20} { // from disk and from the tail
		clock := newTestClock()
		cfg := testConfig(t, vfs.NewMem(), clock)
		cfg.TailBytes = tail
		a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
		a.append(
			a.block(1, 10, 14, format.Place{Seq: 11}, format.Place{Seq: 11, Op: 2}, format.Place{Seq: 13}),
			a.block(1, 15, 16),
			a.block(1, 17, 20, format.Place{Seq: 18}),
			a.block(2, 3, 5, format.Place{Seq: 4}),
		)
		at := func(epoch uint32, seq int64, op uint32) Cursor {
			return PositionCursor(translate.Position{Stream: StreamOf(testRelay, epoch), Seq: seq, Op: op})
		}
		later := " 2-8-1 2-9-0"
		for _, tc := range []struct {
			name    string
			c       Cursor
			now     string
			after   string // what a later append gives
			clamped bool
		}{
			{"first frame of the log has no event", at(1, 10, 0), "1-11-0 1-11-2 1-13-0 1-18-0 2-4-0", "2-8-0" + later, false},
			{"within a frame", at(1, 11, 0), "1-11-2 1-13-0 1-18-0 2-4-0", "2-8-0" + later, false},
			{"op that gave no event", at(1, 11, 1), "1-11-2 1-13-0 1-18-0 2-4-0", "2-8-0" + later, false},
			{"past the ops of a frame", at(1, 11, 9), "1-13-0 1-18-0 2-4-0", "2-8-0" + later, false},
			{"frame without events within a block", at(1, 12, 0), "1-13-0 1-18-0 2-4-0", "2-8-0" + later, false},
			{"end of a block's events", at(1, 13, 0), "1-18-0 2-4-0", "2-8-0" + later, false},
			{"end of a block's frames", at(1, 14, 0), "1-18-0 2-4-0", "2-8-0" + later, false},
			{"block without events", at(1, 15, 3), "1-18-0 2-4-0", "2-8-0" + later, false},
			{"end of an older epoch", at(1, 20, 0), "2-4-0", "2-8-0" + later, false},
			{"beyond the end of an older epoch", at(1, 99, 0), "2-4-0", "2-8-0" + later, false},
			{"before the epoch's first frame", at(2, 1, 0), "2-4-0", "2-8-0" + later, false},
			{"newest event", at(2, 4, 0), "", "2-8-0" + later, false},
			{"frame reached", at(2, 5, 0), "", "2-8-0" + later, false},
			{"ahead, next frame", at(2, 6, 0), "", "2-8-0" + later, false},
			{"ahead, within a frame to come", at(2, 8, 0), "", "2-8-1 2-9-0", false},
			{"ahead, past a frame to come", at(2, 8, 7), "", "2-9-0", false},
			{"far ahead", at(2, 1000, 0), "", "", false},
			{"older than the log", at(1, 9, 0), "1-11-0 1-11-2 1-13-0 1-18-0 2-4-0", "2-8-0" + later, true},
		} {
			r, err := a.l.NewReader(ReaderConfig{Cursor: tc.c})
			if err != nil {
				t.Fatal(tc.name, err)
			}
			if got := a.read(r); got != tc.now {
				t.Errorf("tail %d, %s: %q, want %q", tail, tc.name, got, tc.now)
			}
			if _, clamped := r.Clamped(); clamped != tc.clamped {
				t.Errorf("tail %d, %s: clamped %t", tail, tc.name, clamped)
			}
		}
		if _, err := a.l.NewReader(ReaderConfig{Cursor: at(3, 1, 0)}); !errors.Is(err, ErrUnknownStream) {
			t.Errorf("unknown stream: %v", err)
		}
		// Ahead of the log, then caught up with, in two steps.
		var c Chunk
		for _, tc := range []struct {
			c    Cursor
			want string
		}{
			{at(2, 8, 0), "2-8-1 2-9-0"}, {at(2, 8, 7), "2-9-0"}, {at(2, 1000, 0), ""}, {at(2, 5, 0), "2-8-0 2-8-1 2-9-0"},
			{Cursor{}, "2-8-0 2-8-1 2-9-0"}, {TimeCursor(a.stamp + 100), "2-8-0 2-8-1 2-9-0"},
		} {
			r := mustRead(t, a.l, ReaderConfig{Cursor: tc.c})
			if got := a.read(r); got != "" {
				t.Errorf("%v: %q", tc.c, got)
			}
			defer func() {
				if got := a.read(r); got != tc.want {
					t.Errorf("tail %d, %v after more came: %q, want %q", tail, tc.c, got, tc.want)
				}
				if err := r.Next(&c); err != nil {
					t.Error(err)
				}
				p := tc.c.position
				if tc.c.kind == cursorPosition && p.Seq > 9 && c.Through.Position != p {
					t.Errorf("%v: through %v, which would repeat events elsewhere", tc.c, c.Through.Position)
				}
			}()
		}
		a.append(a.block(2, 6, 7))
		a.append(a.block(2, 8, 10, format.Place{Seq: 8}, format.Place{Seq: 8, Op: 1}, format.Place{Seq: 9}))
	}
}

// TestPositionAheadNewEpoch: a position that the log never reaches, because the relay restarts its
// numbering, must not hide the new epoch's events.
func TestPositionAheadNewEpoch(t *testing.T) {
	clock := newTestClock()
	a := &lines{t: t, l: mustOpen(t, testConfig(t, vfs.NewMem(), clock)), clock: clock}
	a.append(a.block(1, 1, 5, format.Place{Seq: 5}))
	r := mustRead(t, a.l, ReaderConfig{Cursor: PositionCursor(translate.Position{Stream: StreamOf(testRelay, 1), Seq: 500})})
	b := a.block(2, 1, 1, format.Place{Seq: 1})
	b.gap = &Gap{From: translate.Position{Stream: StreamOf(testRelay, 1), Seq: 5},
		To: translate.Position{Stream: StreamOf(testRelay, 2), Seq: 1}, TimeUS: b.events[0].timeUS}
	a.append(a.block(1, 6, 9, format.Place{Seq: 9}), a.block(2, 1, 2, format.Place{Seq: 1}, format.Place{Seq: 2}))
	if got := a.read(r); got != "2-1-0 2-2-0" {
		t.Errorf("got %q", got)
	}
}

// TestPositionBeforeBegin: a log that begins after the position that a reader waits for informs it
// so, once. The reader catches up from memory or from disk.
func TestPositionBeforeBegin(t *testing.T) {
	for _, tail := range []int64{1, 1 << 20} {
		for _, tc := range []struct {
			name string
			seq  int64
			want string // once the log has events
			gap  bool
		}{
			{"well before", 4000, "1-5001-0 1-5001-1 1-5003-0 1-5010-0", true},
			{"within the frame before the first", 4999, "1-5001-0 1-5001-1 1-5003-0 1-5010-0", true},
			{"first frame", 5000, "1-5001-0 1-5001-1 1-5003-0 1-5010-0", false},
			{"later frame", 5001, "1-5001-1 1-5003-0 1-5010-0", false},
			{"still ahead", 6000, "", false},
		} {
			clock := newTestClock()
			cfg := testConfig(t, vfs.NewMem(), clock)
			cfg.TailBytes = tail
			a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
			at := translate.Position{Stream: StreamOf(testRelay, 1), Seq: tc.seq}
			r := mustRead(t, a.l, ReaderConfig{Cursor: PositionCursor(at)})
			if got := a.read(r); got != "" {
				t.Errorf("%s: an empty log gives %q", tc.name, got)
			}
			a.append(a.block(1, 5000, 5000))
			var c Chunk
			if err := r.Next(&c); err != nil || c.Gap != nil || c.Through.Position != at {
				t.Errorf("%s: before the first event: %+v, %v", tc.name, c, err)
			}
			a.append(a.block(1, 5001, 5003, format.Place{Seq: 5001}, format.Place{Seq: 5001, Op: 1}, format.Place{Seq: 5003}))
			a.append(a.block(1, 5004, 5010, format.Place{Seq: 5010}))
			var got []string
			for c.Live = false; !c.Live; {
				if err := r.Next(&c); err != nil {
					t.Fatal(err)
				}
				if c.Gap != nil {
					first := a.l.Range().Oldest
					want := &Gap{From: at, To: first.Position, TimeUS: first.TimeUS}
					if diff := cmp.Diff(want, c.Gap); diff != "" || !tc.gap || len(got) > 0 {
						t.Errorf("tail %d, %s: gap after %q: -want +got\n%s", tail, tc.name, got, diff)
					}
					tc.gap = false
				}
				for _, p := range parseFrames(t, &c, format.OpcodeText) {
					got = append(got, strings.TrimSuffix(strings.TrimPrefix(string(p), `{"p":"00000`), `"}`))
				}
			}
			if strings.Join(got, " ") != tc.want || tc.gap {
				t.Errorf("tail %d, %s: %q, want %q; want no gap: %t", tail, tc.name, got, tc.want, tc.gap)
			}
			a.append(a.block(1, 5011, 5011, format.Place{Seq: 5011}))
			if got := a.read(r); strings.Contains(got, "gap") || (got == "") != (tc.want == "") {
				t.Errorf("tail %d, %s: then %q", tail, tc.name, got)
			}
		}
	}
}

// TestPositionBeforeBeginNewEpoch: the same, of a stream that never had a frame.
func TestPositionBeforeBeginNewEpoch(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	l := mustOpen(t, cfg)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.NewEpoch, cfg.Relay = true, "other.example.com"
	a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
	for epoch, relay := range map[uint32]string{1: testRelay, 2: cfg.Relay} {
		r := mustRead(t, a.l, ReaderConfig{Cursor: PositionCursor(translate.Position{Stream: StreamOf(relay, epoch), Seq: 3})})
		defer func() {
			if got := a.read(r); got != "gap 2-7-0" {
				t.Errorf("epoch %d: %q, want the gap before 2-7-0", epoch, got)
			}
		}()
	}
	a.append(a.block(2, 7, 7, format.Place{Seq: 7}))
}

// TestPositionBeforeBeginGap: the log's own gap before its first event comes in a chunk after that.
// Nothing a subscriber may resume from lies before its position.
func TestPositionBeforeBeginGap(t *testing.T) {
	clock := newTestClock()
	a := &lines{t: t, l: mustOpen(t, testConfig(t, vfs.NewMem(), clock)), clock: clock}
	at := translate.Position{Stream: StreamOf(testRelay, 1), Seq: 4000}
	r := mustRead(t, a.l, ReaderConfig{Cursor: PositionCursor(at)})
	b := a.block(1, 5000, 5000, format.Place{Seq: 5000})
	us := b.events[0].timeUS
	b.gap = &Gap{From: translate.Position{Stream: at.Stream, Seq: 4500}, To: translate.Position{Stream: at.Stream, Seq: 5000}, TimeUS: us}
	a.append(b)
	first := translate.Position{Stream: at.Stream, Seq: 5000}
	type seen struct {
		Gap     *Gap
		Events  int
		Through Point
		Live    bool
	}
	want := []seen{
		{Gap: &Gap{From: at, To: first, TimeUS: us}, Through: Point{us - 1, at}},
		{Gap: b.gap, Events: 1, Through: Point{us, first}, Live: true},
		{Through: Point{us, first}, Live: true},
	}
	var got []seen
	var c Chunk
	for range want {
		if err := r.Next(&c); err != nil {
			t.Fatal(err)
		}
		got = append(got, seen{c.Gap, c.Events, c.Through, c.Live})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestGaps: a reader is informed of a gap if it crosses it, between the chunks it lies between.
func TestGaps(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
	stream := StreamOf(testRelay, 1)
	gapped := func(b testBlock, from int64, us int64) testBlock {
		b.gap = &Gap{From: translate.Position{Stream: stream, Seq: from}, To: translate.Position{Stream: stream, Seq: b.firstSeq}, TimeUS: us}
		return b
	}
	a.append(a.block(1, 1, 2, format.Place{Seq: 1}, format.Place{Seq: 2}))
	b := a.block(1, 10, 11, format.Place{Seq: 10}, format.Place{Seq: 11})
	a.append(gapped(b, 2, b.events[0].timeUS))
	a.stamp++
	a.append(gapped(a.block(1, 20, 20), 11, a.stamp)) // nothing came after it yet
	at := func(seq int64) Cursor { return PositionCursor(translate.Position{Stream: stream, Seq: seq}) }
	for _, tc := range []struct {
		c    Cursor
		want string
	}{
		{TimeCursor(0), "1-1-0 1-2-0 gap 1-10-0 1-11-0 gap"},
		{at(2), "gap 1-10-0 1-11-0 gap"},
		{at(5), "gap 1-10-0 1-11-0 gap"}, // its events may be what is missing
		{at(10), "1-11-0 gap"},
		{at(11), "gap"},
		{at(15), "gap"},
		{at(20), ""},
		{at(21), ""},
		{Cursor{}, ""},
		// newer than the newest event, not than the gap
		{TimeCursor(b.events[1].timeUS + 1), "gap"},
		{TimeCursor(a.stamp), "gap"},
		{TimeCursor(a.stamp + 1), ""},
		{TimeCursor(b.events[1].timeUS), "1-11-0 gap"},
	} {
		for range 2 {
			r := mustRead(t, a.l, ReaderConfig{Cursor: tc.c, MaxChunkBytes: 1})
			if got := a.read(r); got != tc.want {
				t.Errorf("%v: %q, want %q", tc.c, got, tc.want)
			}
		}
	}
	if err := a.l.Close(); err != nil {
		t.Fatal(err)
	}
	a.l = mustOpen(t, cfg)
	if n := len(a.l.Range().Gaps); n != 2 {
		t.Errorf("%d gaps after a restart, want 2", n)
	}
	r := mustRead(t, a.l, ReaderConfig{Cursor: at(15)})
	if got := a.read(r); got != "gap" {
		t.Errorf("after a restart: %q", got)
	}
}

// TestFilterAfterGap: what a filter left out before a gap does not come after it, if the filter is
// replaced there.
func TestFilterAfterGap(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.TailBytes = 1
	a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
	gapped := func(from, seq int64) testBlock {
		b := a.block(1, seq, seq, format.Place{Seq: seq})
		stream := StreamOf(testRelay, 1)
		b.gap = &Gap{From: translate.Position{Stream: stream, Seq: from}, To: translate.Position{Stream: stream, Seq: seq}, TimeUS: a.stamp}
		return b
	}
	a.append(a.block(1, 1, 1, format.Place{Seq: 1}), gapped(1, 5), gapped(5, 9))
	clock.advance(cfg.Retention / 2)
	a.append(a.block(1, 10, 10, format.Place{Seq: 10})) // the first three are a span
	none, err := NewFilter(FilterConfig{Kinds: Kinds(translate.KindIdentity)})
	if err != nil {
		t.Fatal(err)
	}
	r := mustRead(t, a.l, ReaderConfig{Cursor: TimeCursor(0), Filter: none})
	var c Chunk
	if err := r.Next(&c); err != nil || c.Gap == nil || c.Live {
		t.Fatalf("gap %v, live %t: %v", c.Gap, c.Live, err)
	}
	r.SetFilter(nil)
	if got := a.read(r); got != "1-5-0 gap 1-9-0 1-10-0" {
		t.Errorf("after the gap came %q", got)
	}
}

func TestStamper(t *testing.T) {
	clock := newTestClock()
	s := NewStamper(0, clock.now)
	first := s.Next()
	if first != clock.us() {
		t.Errorf("first stamp %d, the clock says %d", first, clock.us())
	}
	clock.step(-time.Hour)
	if got := s.Next(); got != first+1 {
		t.Errorf("after the clock went back: %d, want %d", got, first+1)
	}
	clock.step(2 * time.Hour)
	if got := s.Next(); got != clock.us() {
		t.Errorf("after the clock went on: %d, want %d", got, clock.us())
	}
	rng := rand.New(rand.NewPCG(1, 1))
	last := NewStamper(first+1_000_000, clock.now)
	prev := first + 1_000_000
	for range 1000 {
		clock.step(time.Duration(rng.IntN(2000)-1000) * time.Millisecond)
		next := last.Next()
		if next <= prev {
			t.Fatalf("%d follows %d", next, prev)
		}
		prev = next
	}
}
