package replay

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/replay/internal/format"
)

// TestHold: neither age nor a lack of room trims what comes after the frame that is held, and no
// more is kept than that.
func TestHold(t *testing.T) {
	for name, trim := range map[string]func(l *Log) error{
		"by age":   func(l *Log) error { return l.Trim(t.Context()) },
		"by bytes": func(l *Log) error { return l.TrimTo(t.Context(), 0) },
	} {
		for i, tail := range []int64{1, 1 << 20, 1, 1 << 20} {
			apart := time.Minute
			if i > 1 {
				apart = time.Microsecond // no stamp is between two events
			}
			clock := newTestClock()
			cfg := testConfig(t, vfs.NewMem(), clock)
			cfg.Retention, cfg.TailBytes = time.Hour, tail
			held := EpochEnd{}
			cfg.Hold = func() EpochEnd { return held }
			a := tenBlocksApart(t, cfg, clock, apart)
			clock.advance(2 * time.Hour)
			for _, step := range []struct {
				epoch uint32
				seq   int64
				want  string
			}{
				{0, 0, "1-1-0 1-2-0 1-3-0 1-4-0 1-5-0 1-6-0 1-7-0 1-8-0 1-9-0 1-10-0"},
				{1, 4, "1-5-0 1-6-0 1-7-0 1-8-0 1-9-0 1-10-0"},
				{1, 3, "1-5-0 1-6-0 1-7-0 1-8-0 1-9-0 1-10-0"},
				{1, 9, "1-10-0"},
				{1, 10, ""},
			} {
				held = EpochEnd{Epoch: step.epoch, Seq: step.seq}
				if err := trim(a.l); err != nil {
					t.Fatal(err)
				}
				if got := a.read(mustRead(t, a.l, ReaderConfig{Cursor: TimeCursor(0)})); got != step.want {
					t.Errorf("%s, tail %d, events %v apart, held after %d: the log has %q, want %q", name, tail, apart, step.seq, got, step.want)
				}
			}
		}
	}
}

// TestHoldIsSaidOnce: Run trims each second, and says when trims begin to be held, not each time.
func TestHoldIsSaidOnce(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.Retention = time.Hour
	var held EpochEnd
	cfg.Hold = func() EpochEnd { return held }
	var logged strings.Builder
	cfg.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	a := tenBlocks(t, cfg, clock)
	clock.advance(2 * time.Hour)
	for i, step := range []struct {
		seq   int64
		times int
	}{{4, 1}, {4, 1}, {6, 1}, {10, 1}, {0, 2}, {0, 2}} {
		held = EpochEnd{Epoch: 1, Seq: step.seq}
		if step.seq == 0 {
			a.append(a.block(1, 11+int64(i), 11+int64(i), format.Place{Seq: 11 + int64(i)}))
			clock.advance(2 * time.Hour)
		}
		if err := a.l.Trim(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(logged.String(), "not trimmed as it should be"); n != step.times {
			t.Errorf("trim %d, held after %d: said %d times, want %d", i, step.seq, n, step.times)
		}
	}
}

// TestReferencesBegin: the log knows since when it has references, over restarts, until it is
// opened without them, or for other collections; a look at it does not change that. What an older
// version noted stays.
func TestReferencesBegin(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	for i, step := range []struct {
		on    bool
		of    string
		since int64 // seq; -1: off
	}{{false, "", -1}, {true, "", 1}, {true, "", 1}, {false, "", -1}, {true, "", 4}, {true, "a", 5}, {true, "a", 5}, {true, "", 7}, {true, "a", 7}} {
		if i == 8 {
			forgetCollections(t, cfg)
		}
		cfg.References, cfg.Collections = step.on, step.of
		a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
		check := func(what string, l *Log) {
			t.Helper()
			after, ok := l.References()
			if r := l.Range().References; ok != (step.since >= 0) || ok && after != (EpochEnd{Epoch: 1, Seq: step.since}) ||
				ok != (r != nil) || ok && r.Position.Seq != step.since {
				t.Errorf("start %d, %s: references after %v, %t, %v; want them after %d", i, what, after, ok, r, step.since)
			}
		}
		check("at the start", a.l)
		clock.advance(time.Second)
		seq := int64(i + 1)
		a.append(a.block(1, seq, seq, format.Place{Seq: seq}))
		check("after an event", a.l)
		if err := a.l.Close(); err != nil {
			t.Fatal(err)
		}
		look := cfg
		look.ReadOnly, look.Retention, look.References = true, 0, false
		l := mustOpen(t, look)
		check("read only", l)
		_ = l.Close()
	}
	a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
	if err := a.l.TrimTo(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if after, ok := a.l.References(); !ok || after != (EpochEnd{Epoch: 1, Seq: 9}) {
		t.Errorf("after a trim of all: %v, %t", after, ok)
	}
}

// forgetCollections makes the log that of a version that does not note its collections.
func forgetCollections(t *testing.T, cfg Config) {
	t.Helper()
	l := mustOpen(t, cfg)
	if err := l.store.Pebble().Delete(format.MetaKey(format.MetaCollections), pebble.Sync); err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

// TestReferencesOfANewLog: before a log that began with references and was not trimmed there was
// nothing, whatever the relay's first frame is.
func TestReferencesOfANewLog(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.References = true
	a := &lines{t: t, l: mustOpen(t, cfg), clock: clock}
	before, ok := a.l.References()
	clock.advance(time.Second)
	a.append(a.block(1, 700, 700, format.Place{Seq: 700}))
	if after, on := a.l.References(); !ok || !on || after != before {
		t.Errorf("references after %v, %t; before the first event %v, %t", after, on, before, ok)
	}
}
