package replay

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/replay/internal/clocktrust"
	"millrace/replay/internal/format"
	"millrace/translate"
)

// tenBlocks appends ten blocks a minute apart, of one event each.
func tenBlocks(t *testing.T, cfg Config, clock *testClock) *lines {
	t.Helper()
	return tenBlocksApart(t, cfg, clock, time.Minute)
}

func tenBlocksApart(t *testing.T, cfg Config, clock *testClock, apart time.Duration) *lines {
	t.Helper()
	a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
	for i := range int64(10) {
		clock.advance(apart)
		a.append(a.block(1, i+1, i+1, format.Place{Seq: i + 1}))
	}
	return a
}

func TestReaderIsTrimmed(t *testing.T) {
	for _, tail := range []int64{1, 1 << 20} {
		clock := newTestClock()
		cfg := testConfig(t, vfs.NewMem(), clock)
		cfg.Retention, cfg.TailBytes = time.Hour, tail
		a := tenBlocks(t, cfg, clock)
		reader := func(c Cursor) *Reader {
			r := mustRead(t, a.l, ReaderConfig{Cursor: c, MaxChunkBytes: 1})
			return r
		}
		third := a.l.Range().Oldest.TimeUS + 2*time.Minute.Microseconds()
		var c Chunk
		lost, oldest, started, live := reader(TimeCursor(third)), reader(TimeCursor(0)), reader(TimeCursor(0)), reader(Cursor{})
		if err := started.Next(&c); err != nil {
			t.Fatal(err)
		}
		clock.advance(56 * time.Minute)
		if err := a.l.Trim(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := lost.Next(&c); !errors.Is(err, ErrTrimmed) || c.Events > 0 {
			t.Errorf("tail %d: a reader in what was trimmed: %v", tail, err)
		}
		if err := started.Next(&c); !errors.Is(err, ErrTrimmed) {
			t.Errorf("tail %d: a reader that began there: %v", tail, err)
		}
		if got := a.read(oldest); got != "1-6-0 1-7-0 1-8-0 1-9-0 1-10-0" {
			t.Errorf("tail %d: a reader that asked for the oldest and had nothing yet: %q", tail, got)
		}
		if got := a.read(live); got != "" {
			t.Errorf("tail %d: a live reader: %q", tail, got)
		}
		r := reader(TimeCursor(third))
		point, clamped := r.Clamped()
		if !clamped || point != a.l.Range().Oldest || point.TimeUS <= third {
			t.Errorf("tail %d: clamped %t to %v", tail, clamped, point)
		}
		clock.advance(24 * time.Hour)
		if err := a.l.Trim(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := a.l.Range(); got.Oldest != (Point{}) || got.Newest != (Point{}) || got.Events != 0 || got.Bytes != 0 {
			t.Errorf("tail %d: everything is old, range is %+v", tail, got)
		}
		if got := a.read(live); got != "" {
			t.Errorf("tail %d: a live reader on the empty log: %q", tail, got)
		}
		a.append(a.block(1, 11, 11, format.Place{Seq: 11}))
		if got := a.read(live); got != "1-11-0" {
			t.Errorf("tail %d: a live reader: %q", tail, got)
		}
	}
}

// TestReaderBeforeTheLastTrimmed: a reader whose next event is the last one that a trim took gets
// an error, also where it holds the block open.
func TestReaderBeforeTheLastTrimmed(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.Retention, cfg.TailBytes = time.Hour, 1
	a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
	a.append(a.block(1, 1, 1, format.Place{Seq: 1}, format.Place{Seq: 1, Op: 1}))
	last := a.stamp
	clock.advance(30 * time.Minute)
	a.append(a.block(1, 2, 2, format.Place{Seq: 2}))
	within := mustRead(t, a.l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1})
	atLast := mustRead(t, a.l, ReaderConfig{Cursor: TimeCursor(last)})
	var c Chunk
	if err := within.Next(&c); err != nil || c.Events != 1 {
		t.Fatalf("%d events, %v", c.Events, err)
	}
	clock.advance(31 * time.Minute)
	if err := a.l.Trim(t.Context()); err != nil {
		t.Fatal(err)
	}
	if floor := a.l.snap.Load().Floor.TimeUS; floor != last {
		t.Fatalf("the floor is %d, want %d", floor, last)
	}
	for what, r := range map[string]*Reader{"within the block": within, "at its last event": atLast} {
		if err := r.Next(&c); !errors.Is(err, ErrTrimmed) || c.Events > 0 {
			t.Errorf("a reader %s: %d events, %v", what, c.Events, err)
		}
	}
}

func TestTrimTo(t *testing.T) {
	clock := newTestClock()
	a := tenBlocks(t, testConfig(t, vfs.NewMem(), clock), clock)
	all := a.l.Range().Bytes
	if err := a.l.TrimTo(t.Context(), all/2+10); err != nil { // the last block is a digit longer
		t.Fatal(err)
	}
	if r := a.l.Range(); r.Bytes > all/2+10 || r.Events != 5 {
		t.Errorf("trimmed to %d of %d bytes, %d events", r.Bytes, all, r.Events)
	}
	if err := a.l.TrimTo(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if r := a.l.Range(); r.Bytes != 0 || r.Oldest != (Point{}) {
		t.Errorf("trimmed to nothing: %+v", r)
	}
}

// TestTrimToBesideRetention: of the retention's limit of bytes and that of TrimTo the lower one
// holds, and none means everything goes.
func TestTrimToBesideRetention(t *testing.T) {
	for name, test := range map[string]struct{ retention, trimTo, want int64 }{ // in blocks
		"trim lower":      {8, 5, 5},
		"retention lower": {4, 6, 4},
		"nothing":         {8, 0, 0},
	} {
		clock := newTestClock()
		cfg := testConfig(t, vfs.NewMem(), clock)
		a := tenBlocks(t, cfg, clock)
		bytes := func(blocks int64) int64 { return (a.l.Range().Bytes/10 + 5) * blocks }
		a.l.cfg.RetentionBytes = bytes(test.retention)
		if err := a.l.TrimTo(t.Context(), bytes(test.trimTo)); err != nil {
			t.Fatal(err)
		}
		if got := a.l.Range().Events; got != test.want {
			t.Errorf("%s: %d events are left, want %d", name, got, test.want)
		}
	}
}

// TestTrimToWithinSpans: a limit of bytes holds, also where it lies within a span.
func TestTrimToWithinSpans(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.Retention = time.Hour
	a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
	for seq := range int64(60) {
		clock.advance(10 * time.Second)
		a.append(a.block(1, seq+1, seq+1, format.Place{Seq: seq + 1}))
	}
	if n := len(a.l.snap.Load().spans); n < 5 || n > 20 {
		t.Fatalf("%d spans, want some blocks in each", n)
	}
	for r := a.l.Range(); r.Events > 0; r = a.l.Range() {
		limit := r.Bytes - 1
		if err := a.l.TrimTo(t.Context(), limit); err != nil {
			t.Fatal(err)
		}
		if got := a.l.Range(); got.Bytes > limit {
			t.Fatalf("trimmed to %d bytes, %d events are left of %d: want %d bytes at most", got.Bytes, got.Events, r.Events, limit)
		}
	}
}

// TestClockStep: after the clock was set, age does not count until it was steady for ten minutes.
func TestClockStep(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.Retention = time.Hour
	var logged strings.Builder
	cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	a := tenBlocks(t, cfg, clock)
	events := func(step, wait time.Duration) int64 {
		t.Helper()
		clock.step(step)
		clock.advance(wait)
		if err := a.l.Trim(t.Context()); err != nil {
			t.Fatal(err)
		}
		return a.l.Range().Events
	}
	if n := events(0, 55*time.Minute); n > 6 || n < 5 {
		t.Fatalf("%d events are left after an hour", n)
	}
	left := a.l.Range().Events
	if n := events(59*time.Second, 0); n >= left {
		t.Errorf("a step of 59 s: %d events are left", n)
	}
	left = a.l.Range().Events
	if strings.Contains(logged.String(), "level=ERROR") {
		t.Errorf("alarm without a reason: %s", &logged)
	}
	if n := events(5*time.Hour, 0); n != left {
		t.Errorf("after a step of 5 h: %d events are left of %d", n, left)
	}
	if !strings.Contains(logged.String(), "level=ERROR") {
		t.Error("no alarm")
	}
	if n := events(0, 9*time.Minute); n != left {
		t.Errorf("9 minutes later: %d events are left of %d", n, left)
	}
	if n := events(-2*time.Minute, 0); n != left {
		t.Errorf("after a step back: %d events are left of %d", n, left)
	}
	if n := events(0, 9*time.Minute); n != left {
		t.Errorf("9 minutes after that: %d events are left of %d", n, left)
	}
	if n := events(0, 2*time.Minute); n != 0 {
		t.Errorf("once steady: %d events are left", n)
	}
}

// TestClockBehindAtOpen: a clock that is behind the log when it opens counts as a step.
func TestClockBehindAtOpen(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	a := tenBlocks(t, cfg, clock)
	if err := a.l.Close(); err != nil {
		t.Fatal(err)
	}
	clock.step(-time.Hour)
	a.l = mustOpen(t, cfg)
	if a.l.trims.clock.Trusted() {
		t.Error("trimming by age is not paused")
	}
	if got, want := NewStamper(a.l.Progress().TimeUS, clock.now).Next(), a.stamp+1; got != want {
		t.Errorf("next stamp %d, want %d", got, want)
	}
}

// TestClockWasAhead: stamps stay ahead of a clock that was ahead once. Trims by age wait for it,
// and that is said.
func TestClockWasAhead(t *testing.T) {
	clock := newTestClock()
	a := tenBlocks(t, testConfig(t, vfs.NewMem(), clock), clock)
	paused := func() bool {
		t.Helper()
		if err := a.l.Trim(t.Context()); err != nil {
			t.Fatal(err)
		}
		return a.l.metrics.trimPaused.Load()
	}
	clock.step(2 * time.Hour)
	a.append(a.block(1, 900, 900, format.Place{Seq: 900}))
	clock.step(-2 * time.Hour)
	paused()
	for range 11 {
		clock.advance(time.Minute)
		paused()
	}
	if !a.l.trims.clock.Trusted() || !paused() {
		t.Errorf("trusted %t, paused %t", a.l.trims.clock.Trusted(), paused())
	}
	for range 2 * 60 {
		clock.advance(time.Minute)
		paused()
	}
	if paused() {
		t.Error("paused when the clock is where it was")
	}
}

// TestRetentionZero: position and tail only.
func TestRetentionZero(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	a := tenBlocks(t, cfg, clock) // with retention
	if err := a.l.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Retention = 0
	cfg.TailBytes = 3000
	open := func() {
		a.l = mustOpen(t, cfg)
		r := mustRead(t, a.l, ReaderConfig{Cursor: TimeCursor(0)})
		if got := a.read(r); got != "" {
			t.Errorf("an old log's events: %q", got)
		}
		it, err := a.l.store.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer it.Close()
		if it.SeekGE(format.RangeGap.Start()); it.Valid() {
			t.Errorf("the store holds %x", it.Key())
		}
		_, err = a.l.NewReader(ReaderConfig{Cursor: PositionCursor(a.l.Range().Newest.Position)})
		if !errors.Is(err, ErrUnknownStream) {
			t.Errorf("a zero position: %v", err)
		}
	}
	open()
	slow := mustRead(t, a.l, ReaderConfig{Cursor: Cursor{}})
	for i := range int64(50) {
		a.append(a.block(1, 100+i, 100+i, format.Place{Seq: 100 + i}))
	}
	var c Chunk
	if err := slow.Next(&c); !errors.Is(err, ErrTrimmed) {
		t.Errorf("a reader older than the tail: %v", err)
	}
	r := mustRead(t, a.l, ReaderConfig{Cursor: TimeCursor(0)})
	got := a.read(r)
	if !strings.HasSuffix(got, "1-148-0 1-149-0") || strings.Contains(got, "1-120-0") {
		t.Errorf("the tail: %q", got)
	}
	if n := int64(len(strings.Fields(got))); a.l.Range().Events != n || a.l.Range().Oldest.Position.Seq != 150-n {
		t.Errorf("range %+v, the tail has %d", a.l.Range(), n)
	}
	var stored int64
	for _, b := range a.l.snap.Load().tail {
		stored += b.storedBytes
	}
	if got := a.l.Range().Bytes; got != stored {
		t.Errorf("range says %d bytes, the tail's blocks have %d", got, stored)
	}
	end := a.l.Range().Newest
	if err := a.l.Close(); err != nil {
		t.Fatal(err)
	}
	open()
	if p := a.l.Progress(); p.Seq != 149 || p.TimeUS != a.stamp {
		t.Errorf("progress %+v", p)
	}
	for seq, want := range map[int64]bool{end.Position.Seq: false, end.Position.Seq - 1: true} {
		p := end.Position
		p.Seq = seq
		r := mustRead(t, a.l, ReaderConfig{Cursor: PositionCursor(p)})
		if _, clamped := r.Clamped(); clamped != want {
			t.Errorf("position %v after a restart: clamped %t", p, clamped)
		}
	}
	a.append(a.block(1, 200, 200, format.Place{Seq: 200}))
	_ = a.l.Close()
	cfg.Retention = time.Hour // from now on; what was not stored must not be looked for
	a.l = mustOpen(t, cfg)
	if r := a.l.Range(); r.Events != 0 || r.Oldest != (Point{}) {
		t.Errorf("with retention again: %+v", r)
	}
	a.append(a.block(1, 201, 201, format.Place{Seq: 201}))
	r = mustRead(t, a.l, ReaderConfig{Cursor: PositionCursor(end.Position)})
	if got := a.read(r); got != "1-201-0" {
		t.Errorf("with retention again: %q", got)
	}
	if _, clamped := r.Clamped(); !clamped {
		t.Error("what was not stored is not told")
	}
}

// TestRetentionZeroGap: a gap behind the newest event outlives a restart. One before it does not: a
// cursor from before it is older than the log.
func TestRetentionZeroGap(t *testing.T) {
	clock := newTestClock()
	fs := vfs.NewMem()
	cfg := testConfig(t, fs, clock)
	cfg.Retention = 0
	a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
	stream := StreamOf(testRelay, 1)
	at := func(seq int64) Cursor { return PositionCursor(translate.Position{Stream: stream, Seq: seq}) }
	gapped := func(from int64, b testBlock) {
		b.gap = &Gap{From: translate.Position{Stream: stream, Seq: from}, To: translate.Position{Stream: stream, Seq: b.firstSeq}}
		if b.gap.TimeUS = a.stamp; b.events != nil {
			b.gap.TimeUS = b.events[0].timeUS - 1
		}
		a.append(b)
	}
	a.append(a.block(1, 1, 1, format.Place{Seq: 1}))
	a.stamp += 2
	gapped(1, a.block(1, 10, 10, format.Place{Seq: 10}))
	a.stamp += 2
	gapped(10, a.block(1, 20, 20)) // gives no event
	_ = a.l.Close()
	a.l = mustOpen(t, cfg)
	if r := mustRead(t, a.l, ReaderConfig{Cursor: at(10)}); a.read(r) != "gap" {
		t.Errorf("the gap behind the newest event is forgotten; gaps %v", a.l.Range().Gaps)
	}
	r := mustRead(t, a.l, ReaderConfig{Cursor: at(1)})
	if _, clamped := r.Clamped(); !clamped || a.read(r) != "gap" {
		t.Errorf("a cursor from before both: clamped %t; gaps %v", clamped, a.l.Range().Gaps)
	}
	a.append(a.block(1, 21, 21, format.Place{Seq: 21}))
	_ = a.l.Close()
	if r := mustVerify(t, fs); !r.Sound() || r.Gaps != 0 {
		t.Errorf("%d gaps from before the log are in the store: %v", r.Gaps, r.Examples)
	}
	a.l = mustOpen(t, cfg)
	if gaps := a.l.Range().Gaps; len(gaps) != 0 {
		t.Errorf("gaps from before the log: %v", gaps)
	}
}

// TestPositionIsTrimmed: a position that a trim passes while it is sought is older than the log,
// and a reader that began there does not wait for it.
func TestPositionIsTrimmed(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.TailBytes = 1
	a := tenBlocks(t, cfg, clock)
	before := a.l.snap.Load()
	c := PositionCursor(a.l.Range().Oldest.Position)
	r := mustRead(t, a.l, ReaderConfig{})
	if err := a.l.TrimTo(t.Context(), a.l.Range().Bytes/2); err != nil {
		t.Fatal(err)
	}
	if err := r.seek(before, c); !errors.Is(err, ErrTrimmed) {
		t.Fatalf("sought in what was trimmed: %v", err)
	}
	if err := r.seek(a.l.snap.Load(), c); err != nil {
		t.Fatal(err)
	}
	if _, clamped := r.Clamped(); !clamped {
		t.Error("it is not clamped")
	}
	if got := a.read(r); strings.Contains(got, "gap") {
		t.Errorf("it is clamped, and a gap is given: %q", got)
	}
}

// TestTrimUnderReader: a reader that looked at the log before a trim, and at the store after it,
// is trimmed instead of skipping what was deleted.
func TestTrimUnderReader(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.TailBytes, cfg.CacheBytes = 1, 1
	a := tenBlocks(t, cfg, clock)
	s := a.l.snap.Load()
	before := blockScan{bs: a.l.blocks}
	defer before.close()
	x, err := before.find(s, s.Oldest.TimeUS)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.l.TrimTo(t.Context(), a.l.Range().Bytes/2); err != nil {
		t.Fatal(err)
	}
	after := blockScan{bs: a.l.blocks}
	defer after.close()
	if _, err := after.find(s, s.Oldest.TimeUS); !errors.Is(err, ErrTrimmed) {
		t.Errorf("find after the trim: %v", err)
	}
	if _, err := a.l.blocks.openPart(x, format.RangePlain, x.Key(), 0); !errors.Is(err, ErrTrimmed) {
		t.Errorf("read a part after the trim: %v", err)
	}
	if y, err := before.find(s, x.Key()+1); err != nil || y.Seq[0] != 2 {
		t.Errorf("the scan made before the trim goes on: %v", err)
	}
	if _, err := a.l.blocks.findAfter(s, s.Oldest.Place); !errors.Is(err, ErrTrimmed) {
		t.Errorf("find a position after the trim: %v", err)
	}
	if a.l.store.Err() != nil {
		t.Error(a.l.store.Err())
	}
}

// TestRun trims in the background and ends with its context, and with a failure.
func TestRun(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.Retention = time.Minute + time.Second
	a := tenBlocks(t, cfg, clock)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.l.Run(ctx) }()
	deadline := time.After(time.Minute)
	for changed := a.l.Changed(); a.l.Range().Events > 2; changed = a.l.Changed() {
		select {
		case <-deadline:
			t.Fatal("Run did not trim")
		case <-changed:
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
	go func() { done <- a.l.Run(context.Background()) }()
	a.l.store.Fail(errors.New("disk gone"))
	if err := <-done; !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "disk gone") {
		t.Errorf("Run of a failed log: %v", err)
	}
}

// TestClockAheadAtOpen opens a log with a clock two days ahead. Nothing is trimmed by age, however
// often it is tried, until the clock was put right and agrees with frames.
func TestClockAheadAtOpen(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.Retention = time.Hour
	a := tenBlocks(t, cfg, clock)
	all := a.l.Range().Events
	if err := a.l.Close(); err != nil {
		t.Fatal(err)
	}
	var logged strings.Builder
	cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	age, known := 48*time.Hour, false
	cfg.FrameAge = func() (time.Duration, bool) { return age, known }
	clock.step(48 * time.Hour)
	a.l = mustOpen(t, cfg)
	events := func(wait time.Duration) int64 {
		t.Helper()
		clock.advance(wait)
		if err := a.l.Trim(t.Context()); err != nil {
			t.Fatal(err)
		}
		return a.l.Range().Events
	}
	for _, wait := range []time.Duration{0, time.Second, clocktrust.SteadyTime, time.Minute} {
		if n := events(wait); n != all {
			t.Fatalf("%v later %d events are left of %d", wait, n, all)
		}
	}
	known = true
	for range 3 {
		if n := events(time.Minute); n != all {
			t.Fatalf("%d events are left of %d, though frames disagree", n, all)
		}
	}
	if n := strings.Count(logged.String(), "the clock does not agree"); n != 1 {
		t.Errorf("logged %d times that the clock does not agree:\n%s", n, &logged)
	}
	clock.step(-48 * time.Hour)
	age = time.Second
	if n := events(0); n != all {
		t.Errorf("%d events are left of %d just when the clock was put right", n, all)
	}
	if n := events(2 * time.Hour); n != 0 {
		t.Errorf("%d events are left, though the clock agrees", n)
	}
}
