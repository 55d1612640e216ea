package replay

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"millrace/replay/internal/format"
	"millrace/replay/internal/logstore"
)

// TestSources: a source has one number for ever, whichever goroutine asks first. One that is in no
// block may be forgotten in a crash, one that is in a block never is.
func TestSources(t *testing.T) {
	fs := vfs.NewCrashableMem()
	cfg := testConfig(t, fs, newTestClock())
	l := mustOpen(t, cfg)
	var wg sync.WaitGroup
	got := make([]uint32, 8)
	for i := range got {
		wg.Go(func() { got[i], _ = l.SourceNumber([]byte("a.b.c:x")) })
	}
	wg.Wait()
	if slices.ContainsFunc(got, func(n uint32) bool { return n != 1 }) {
		t.Fatalf("one source has numbers %v", got)
	}
	if n, ok := l.FindSource("a.b.c:y"); ok {
		t.Errorf("a source that nobody gave has number %d", n)
	}
	block := func(l *Log, i int64) *Block {
		e := shapedEvent(format.Place{Epoch: 1, Seq: i, Op: 0}, testStart.UnixMicro()+i, 0)
		return testBlock{epoch: 1, firstSeq: i, lastSeq: i, events: []testEvent{e}}.seal(t, l) // has path 1 of the tests
	}
	first := block(l, 1)
	l.SourceNumber([]byte("a.b.c:second")) // after the block was sealed, before it is appended
	if err := l.Append(first); err != nil {
		t.Fatal(err)
	}
	if n, _ := l.SourceNumber([]byte("a.b.c:third")); n != 4 {
		t.Errorf("the fourth source has number %d", n)
	}
	cfg.FS = fs.CrashClone(vfs.CrashCloneCfg{})
	again := mustOpen(t, cfg)
	for n, source := range []string{"", "a.b.c:x", testSource(testCollections[0], 1), "a.b.c:second"} {
		if got, ok := again.SourceOf(uint32(n)); got != source || ok != (n > 0) {
			t.Errorf("after a crash path %d is %q, %t; not %q", n, got, ok, source)
		}
		if got, ok := again.FindSource(source); ok != (n > 0) || ok && int(got) != n {
			t.Errorf("after a crash %q has number %d, %t; not %d", source, got, ok, n)
		}
	}
	if source, ok := again.SourceOf(4); ok {
		t.Errorf("after a crash path 4 is %q, which no block had", source)
	}
	if n, _ := again.SourceNumber([]byte("a.b.c:other")); n != 4 {
		t.Errorf("the next source has number %d", n)
	}
	if err := again.Append(block(again, 2)); err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
	ro := readOnly(t, cfg.Dir, cfg.FS)
	last := mustOpen(t, ro)
	if n, ok := last.SourceNumber([]byte("a.b.c:other")); n != 4 || !ok {
		t.Errorf("to a reader it has number %d, %t", n, ok)
	}
	if n, ok := last.SourceNumber([]byte("a.b.c:new")); ok {
		t.Errorf("a reader gives a source number %d", n)
	}
}

// TestNumberSources: sources get numbers after those that are there, once, and nothing else of the
// log changes; beside an open log none do.
func TestNumberSources(t *testing.T) {
	clock := newTestClock()
	cfg := testConfig(t, vfs.NewMem(), clock)
	cfg.UIDStore = ""
	a := tenBlocks(t, cfg, clock)
	first, _ := a.l.SourceNumber([]byte("a.b.c:first"))
	sources := []string{"a.b.c:second", "a.b.c:first", "a.b.c:third", strings.Repeat("x", logstore.MaxSourceBytes+1), "a.b.c:second"}
	ro := readOnly(t, cfg.Dir, cfg.FS)
	if err := NumberSources(ro, sources); !errors.Is(err, ErrInUse) {
		t.Errorf("beside an open log: %v", err)
	}
	a.append(a.block(1, 11, 11, format.Place{Seq: 11}))
	held, at := a.l.Range(), a.l.Progress()
	if err := a.l.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := NumberSources(ro, sources); err != nil {
			t.Fatal(err)
		}
	}
	l := mustOpen(t, cfg)
	defer l.Close()
	if diff := cmp.Diff(held, l.Range()); diff != "" || l.Progress() != at {
		t.Errorf("the log is at %+v, was at %+v; its range: -want +got\n%s", l.Progress(), at, diff)
	}
	for i, source := range []string{"a.b.c:first", "a.b.c:second", "a.b.c:third"} {
		if n, ok := l.FindSource(source); !ok || n != first+uint32(i) {
			t.Errorf("%s has number %d, %t; the first has %d", source, n, ok, first)
		}
	}
	if n, _ := l.SourceNumber([]byte("a.b.c:last")); n != first+3 {
		t.Errorf("the next has number %d", n)
	}
	if err := NumberSources(readOnly(t, "none", vfs.NewMem()), sources); !errors.Is(err, ErrNoLog) {
		t.Errorf("without a log: %v", err)
	}
}

// TestBrokenSources: a log does not open without one of its sources.
func TestBrokenSources(t *testing.T) {
	for _, how := range []string{"flip", "cut", "delete"} {
		cfg := testConfig(t, vfs.NewMem(), newTestClock())
		l := mustOpen(t, cfg)
		for i := range 3 {
			l.SourceNumber([]byte(testSource("a.b.c", uint32(i))))
		}
		if err := l.Append(testBlock{epoch: 1, firstSeq: 1, lastSeq: 1}.seal(t, l)); err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		damage(t, cfg, format.RangeSource, how)
		_, err := Open(cfg)
		if c := (*CorruptionError)(nil); !errors.As(err, &c) || c.Part != "source" {
			t.Errorf("%s: %v", how, err)
		}
	}
}
