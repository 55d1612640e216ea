package replay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"millrace/dict"
	"millrace/replay/internal/format"
	"millrace/translate"
)

// TestOpenRefuses: what must not be mixed is refused, and the error says what to do.
func TestOpenRefuses(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
	a.append(a.block(1, 1, 1, format.Place{Seq: 1}))
	if err := a.l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		change func(*Config)
		is     error
		says   string
	}{
		{"another relay", func(c *Config) { c.Relay = "other.example.com" }, ErrRelayMismatch, "--new-epoch"},
		{"another UID store", func(c *Config) { c.UIDStore = "store-2" }, errUIDStoreMismatch, "store-2"},
		{"no directory", func(c *Config) { c.Dir = "" }, nil, "replay: field Dir: "},
		{"a URL", func(c *Config) { c.Relay = "wss://relay.example.com" }, nil, "replay: field Relay: "},
		{"no dictionaries", func(c *Config) { c.Dictionaries = nil }, nil, "replay: field Dictionaries: "},
		{"a relay of 260 bytes", func(c *Config) { c.Relay = strings.Repeat("a", 260) }, nil, "replay: field Relay: "},
		{"negative retention", func(c *Config) { c.Retention = -1 }, nil, "replay: field Retention: "},
		{"negative bytes", func(c *Config) { c.RetentionBytes = -1 }, nil, "replay: field RetentionBytes: "},
		{"negative tail", func(c *Config) { c.TailBytes = -1 }, nil, "replay: field TailBytes: "},
		{"negative cache", func(c *Config) { c.CacheBytes = -1 }, nil, "replay: field CacheBytes: "},
		{"negative memtables", func(c *Config) { c.PebbleBytes = -1 }, nil, "replay: field PebbleBytes: "},
		{"negative files", func(c *Config) { c.MaxOpenFiles = -1 }, nil, "replay: field MaxOpenFiles: "},
		{"reading with a new epoch", func(c *Config) { c.ReadOnly, c.NewEpoch, c.Retention = true, true, 0 }, nil, "replay: field ReadOnly: "},
		{"reading with retention", func(c *Config) { c.ReadOnly, c.Retention = true, 1 }, nil, "replay: field ReadOnly: "},
		{"reading with a limit", func(c *Config) { c.ReadOnly, c.Retention, c.RetentionBytes = true, 0, 1 }, nil, "replay: field ReadOnly: "},
	} {
		c := cfg
		tc.change(&c)
		l, err := Open(c)
		if err == nil {
			_ = l.Close()
			t.Errorf("%s is taken", tc.name)
			continue
		}
		if tc.is != nil && !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	for _, change := range []func(*Config){
		func(c *Config) { c.UIDStore = "" }, // interning was turned off
		func(c *Config) { c.Relay = "RELAY.example.com" },
		func(*Config) {},
	} {
		c := cfg
		change(&c)
		if err := mustOpen(t, c).Close(); err != nil {
			t.Error(err)
		}
	}
	db, err := pebble.Open(cfg.Dir, &pebble.Options{FS: cfg.FS, Logger: silent{}, FormatMajorVersion: pebble.FormatNewest})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Set(format.MetaKey(format.MetaFormat), binary.BigEndian.AppendUint32(nil, format.NewestVersion+1), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(cfg); !errors.Is(err, ErrNewerFormat) {
		t.Errorf("a newer format: %v", err)
	}
}

// TestNewEpoch: the operator's new epoch begins a stream; the old one's positions stay known, and
// another relay is taken with it.
func TestNewEpoch(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	a := tenBlocks(t, cfg, clock)
	old := a.l.Range().Oldest.Position
	stamp := a.l.Progress().TimeUS
	_ = a.l.Close()
	cfg.NewEpoch = true
	cfg.Relay = "other.example.com"
	a.l = mustOpen(t, cfg)
	want := Progress{Stream: StreamOf("other.example.com", 2), Epoch: 2, TimeUS: stamp, Previous: EpochEnd{Epoch: 1, Seq: 10}}
	if got := a.l.Progress(); got != want {
		t.Errorf("progress %+v, want %+v", got, want)
	}
	_ = a.l.Close()
	cfg.NewEpoch = false
	a.l = mustOpen(t, cfg)
	if got := a.l.Progress(); got != want {
		t.Errorf("progress after a restart %+v, want %+v", got, want)
	}
	if err := a.l.Append(a.block(1, 50, 50, format.Place{Seq: 50}).seal(t, a.l)); !errors.Is(err, errOutOfOrder) {
		t.Errorf("an old epoch's block: %v", err)
	}
	a.append(a.block(2, 1, 1, format.Place{Seq: 1}))
	r := mustRead(t, a.l, ReaderConfig{Cursor: PositionCursor(old)})
	if got := a.read(r); got != "1-2-0 1-3-0 1-4-0 1-5-0 1-6-0 1-7-0 1-8-0 1-9-0 1-10-0 2-1-0" {
		t.Errorf("got %q", got)
	}
	if got := a.l.Range().Newest.Position; got != (translate.Position{Stream: want.Stream, Seq: 1}) {
		t.Errorf("newest is %v", got)
	}
}

// TestPrepare: a log that is prepared is at once what Begin makes of it. It stays what it was if it
// is closed instead.
func TestPrepare(t *testing.T) {
	clock := newTestClock()
	mem := vfs.NewCrashableMem()
	cfg := testConfig(t, mem, clock)
	cfg.References, cfg.UIDStore = true, ""
	if err := tenBlocks(t, cfg, clock).l.Close(); err != nil {
		t.Fatal(err)
	}
	type opened struct {
		Progress Progress
		Range    Range
		About    About
	}
	is := func(l *Log) (o opened) {
		t.Helper()
		o.Progress, o.Range = l.Progress(), l.Range()
		o.Range.Retention = 0
		return o
	}
	stored := func(fs vfs.FS) opened {
		t.Helper()
		l := mustOpen(t, readOnly(t, cfg.Dir, fs))
		o := is(l)
		var err error
		if o.About, err = l.About(); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		return o
	}
	for name, change := range map[string]func(*Config){
		"a new epoch":        func(c *Config) { c.NewEpoch = true },
		"another relay":      func(c *Config) { c.NewEpoch, c.Relay = true, "other.example.com" },
		"references off":     func(c *Config) { c.References = false },
		"other collections":  func(c *Config) { c.Collections = "a.b.c" },
		"no retention":       func(c *Config) { c.Retention = 0 },
		"the first UIDs":     func(c *Config) { c.UIDStore = "store-1" },
		"nothing is changed": func(*Config) {},
	} {
		c := cfg
		fs := mem.CrashClone(vfs.CrashCloneCfg{})
		c.FS = fs
		change(&c)
		before, prepared := stored(fs), opened{}
		for _, begin := range []bool{false, true} {
			l, err := Prepare(c)
			if err != nil {
				t.Fatal(err)
			}
			prepared = is(l)
			if begin {
				err = l.Begin()
			}
			if err := errors.Join(err, l.Close()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, stored(fs)); !begin && diff != "" {
				t.Errorf("%s: closed before it begins: -was +is\n%s", name, diff)
			}
		}
		after := stored(fs)
		if after.About.UIDStore != c.UIDStore || after.About.Relay != c.Relay {
			t.Errorf("%s: begun, it says of itself %+v", name, after.About)
		}
		if after.About = (About{}); cmp.Diff(prepared, after) != "" {
			t.Errorf("%s: begun: -prepared +stored\n%s", name, cmp.Diff(prepared, after))
		}
	}
}

// TestPreviousEpoch: where the last epoch with a frame ended is known until the next has one. So it
// is across restarts and epochs without a frame, and though the log holds no event. One without a
// frame is followed by another only for another relay.
func TestPreviousEpoch(t *testing.T) {
	for _, retention := range []time.Duration{0, time.Hour} {
		clock := newTestClock()
		cfg := testConfig(t, vfs.NewMem(), clock)
		cfg.Retention = retention
		a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
		expect := func(what string, epoch uint32, seq int64, previous EpochEnd) {
			t.Helper()
			want := Progress{Stream: StreamOf(cfg.Relay, epoch), Epoch: epoch, Seq: seq, TimeUS: a.stamp, Previous: previous}
			if diff := cmp.Diff(want, a.l.Progress()); diff != "" {
				t.Errorf("retention %v, %s: -want +got\n%s", retention, what, diff)
			}
		}
		reopen := func(newEpoch bool) {
			t.Helper()
			if err := a.l.Close(); err != nil {
				t.Fatal(err)
			}
			cfg.NewEpoch = newEpoch
			a.l = mustOpen(t, cfg)
		}
		reopen(true)
		expect("new epoch of a log without frames", 1, 0, EpochEnd{})
		a.append(a.block(1, 5, 7, format.Place{Seq: 6}))
		a.append(a.block(1, 8, 9)) // gives no event, and counts all the same
		expect("frames", 1, 9, EpochEnd{})
		clock.advance(2 * time.Hour)
		if err := a.l.Trim(t.Context()); err != nil {
			t.Fatal(err)
		}
		reopen(true)
		if got := a.l.Range().Newest; got != (Point{}) {
			t.Fatalf("the log still holds %v", got)
		}
		expect("new epoch", 2, 0, EpochEnd{Epoch: 1, Seq: 9})
		reopen(false)
		expect("restart", 2, 0, EpochEnd{Epoch: 1, Seq: 9})
		reopen(true) // as if the start before had failed late
		expect("new epoch, asked for again", 2, 0, EpochEnd{Epoch: 1, Seq: 9})
		cfg.Relay = "other.example.com"
		reopen(true)
		expect("new epoch, of another relay", 3, 0, EpochEnd{Epoch: 1, Seq: 9})
		a.append(a.block(3, 1, 1))
		expect("first frame", 3, 1, EpochEnd{})
		reopen(false)
		expect("restart after it", 3, 1, EpochEnd{})
		reopen(true)
		expect("new epoch after a frame without events", 4, 0, EpochEnd{Epoch: 3, Seq: 1})
	}
}

func TestAppendOutOfOrder(t *testing.T) {
	clock := newTestClock()
	a := tenBlocks(t, testConfig(t, vfs.NewMem(), clock), clock)
	before := a.l.Progress()
	twice := a.block(1, 11, 11, format.Place{Seq: 11}).seal(t, a.l)
	late := a.block(1, 12, 12, format.Place{Seq: 12})
	late.events[0].timeUS = before.TimeUS
	behind := a.block(1, 12, 12, format.Place{Seq: 12})
	gap := &Block{epoch: 1, firstSeq: 11, lastSeq: 11, gap: &Gap{TimeUS: behind.events[0].timeUS}}
	for name, bs := range map[string][]*Block{
		"a repeat":              {a.block(1, 10, 12, format.Place{Seq: 12}).seal(t, a.l)},
		"an older stamp":        {late.seal(t, a.l)},
		"the same block twice":  {twice, twice},
		"a good one, then not":  {a.block(1, 11, 11, format.Place{Seq: 11}).seal(t, a.l), a.block(1, 11, 12, format.Place{Seq: 12}).seal(t, a.l)},
		"position going back":   {a.block(1, 9, 9).seal(t, a.l)},
		"a gap's own stamp":     {gap, behind.seal(t, a.l)},
		"gap stamped in before": {&Block{epoch: 1, firstSeq: 11, lastSeq: 11, gap: &Gap{TimeUS: before.TimeUS}}},
	} {
		if err := a.l.Append(bs...); !errors.Is(err, errOutOfOrder) {
			t.Errorf("%s: %v", name, err)
		}
		if got := a.l.Progress(); got != before {
			t.Errorf("%s: progress is %+v, was %+v", name, got, before)
		}
	}
	a.append(a.block(1, 30, 30, format.Place{Seq: 30}))
}

// TestDictionaryChange: blocks made with an older dictionary are read without its file at hand.
func TestDictionaryChange(t *testing.T) {
	w := newWorld(t, 9)
	w.cfg.RetentionBytes = 0
	for range 20 {
		w.append()
	}
	if err := w.log.Close(); err != nil {
		t.Fatal(err)
	}
	reg, err := dict.NewRegistry(otherDictionary(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reg.Close)
	w.cfg.Dictionaries = reg
	w.open()
	if _, ok := reg.Get(dict.BuiltIn().ID()); !ok {
		t.Fatal("the log's dictionary is not in the registry")
	}
	for range 20 {
		w.append()
	}
	for _, id := range []uint32{dict.BuiltIn().ID(), otherDictionaryID} {
		cfg := ReaderConfig{Cursor: TimeCursor(0), Dictionary: id, MaxChunkBytes: 1 << 20}
		r := mustRead(t, w.log, cfg)
		got := w.drain(r, cfg)
		want := w.render(w.m.items(), ReaderConfig{}, FilterConfig{})
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("dictionary %d: %d items, want %d", id, len(got), len(want))
		}
	}
	if _, err := w.log.NewReader(ReaderConfig{Dictionary: 1}); !errors.Is(err, errUnknownDictionary) {
		t.Errorf("an unknown dictionary: %v", err)
	}
}

func TestClose(t *testing.T) {
	clock := newTestClock()
	a := tenBlocks(t, testConfig(t, vfs.NewMem(), clock), clock)
	r := mustRead(t, a.l, ReaderConfig{})
	var c Chunk
	if err := r.Next(&c); err != nil || !c.Live {
		t.Fatal(err, c.Live)
	}
	wait := a.l.Changed()
	for range 2 {
		if err := a.l.Close(); err != nil {
			t.Error(err)
		}
	}
	select {
	case <-wait:
	default:
		t.Error("a waiting reader was not woken")
	}
	if err := r.Next(&c); !errors.Is(err, ErrClosed) {
		t.Errorf("next: %v", err)
	}
	if _, err := a.l.NewReader(ReaderConfig{}); !errors.Is(err, ErrClosed) {
		t.Errorf("new reader: %v", err)
	}
	if err := a.l.Append(a.block(1, 11, 11).seal(t, a.l)); !errors.Is(err, ErrClosed) {
		t.Errorf("append: %v", err)
	}
	if err := a.l.Run(t.Context()); err != nil {
		t.Errorf("run: %v", err)
	}
	if err := a.l.Trim(t.Context()); err != nil {
		t.Errorf("trim: %v", err)
	}
}

// TestMistypedRelay: a log that holds nothing yet follows whatever relay it is opened with.
func TestMistypedRelay(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.Relay = "relay.exmaple.com"
	if err := mustOpen(t, cfg).Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is known
		cfg.Relay = testRelay
		l := mustOpen(t, cfg)
		if got, want := l.Progress().Stream, StreamOf(testRelay, firstEpoch); got != want {
			t.Fatalf("the stream is %v, want %v", got, want)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	l := mustOpen(t, cfg)
	position := testBlock{epoch: firstEpoch, firstSeq: 7, lastSeq: 7} // no event, but a position
	if err := l.Append(position.seal(t, l)); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Relay = "relay.exmaple.com"
	if l, err := Open(cfg); !errors.Is(err, ErrRelayMismatch) {
		_ = l.Close()
		t.Errorf("a log with a position: %v", err)
	}
}
