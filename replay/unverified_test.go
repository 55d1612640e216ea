package replay

import (
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/replay/internal/format"
	"millrace/translate"
	"millrace/translate/verify"
)

// TestUnverifiedVersion: a log is one that an older program can open until it has an unverified
// event, and not from then on. It keeps the reason where small blocks become one.
func TestUnverifiedVersion(t *testing.T) {
	cfg := testConfig(t, vfs.NewMem(), newTestClock())
	cfg.hooks.keepSmall = false
	l := mustOpen(t, cfg)
	seq := int64(0)
	add := func(events int, reason verify.Reason) {
		t.Helper()
		b := testBlock{epoch: 1, firstSeq: seq + 1}
		for range events {
			seq++
			b.events = append(b.events, testEvent{Place: format.Place{Epoch: 1, Seq: seq}, timeUS: testStart.UnixMicro() + seq, kind: translate.KindCommit,
				operation: translate.OpDelete, collection: "a.b.c", did: testDID(1), payload: "{}", unverified: reason})
		}
		b.lastSeq = seq
		if err := l.Append(b.seal(t, l)); err != nil {
			t.Fatal(err)
		}
	}
	reopen := func(want uint32) {
		t.Helper()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if l = mustOpen(t, cfg); versionOf(t, l) != want {
			t.Errorf("version %d, want %d", versionOf(t, l), want)
		}
	}
	add(5, verify.Valid)
	reopen(format.Version)
	add(1, verify.BrokenChain)
	reopen(format.VersionUnverified)
	add(1, verify.BrokenChain) // it becomes part of a larger block
	for range 2000 {
		add(1, verify.Valid)
	}
	it, err := l.store.NewIter(&pebble.IterOptions{LowerBound: format.RangeIndex.Start(), UpperBound: format.RangeIndex.End()})
	if err != nil {
		t.Fatal(err)
	}
	blocks := 0
	for ok := it.First(); ok; ok = it.Next() {
		blocks++
	}
	if err := it.Close(); err != nil || blocks == 0 || blocks > 1500 {
		t.Fatalf("%d blocks: none were merged; %v", blocks, err)
	}
	reopen(format.VersionUnverified)
	r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0), Extended: true})
	want := []int64{6, 7}
	var got []int64
	for n := int64(1); n <= seq; {
		var c Chunk
		if err := r.Next(&c); err != nil {
			t.Fatal(err)
		}
		for _, p := range parseFrames(t, &c, format.OpcodeText) {
			e := testEvent{Place: format.Place{Epoch: 1, Seq: n}, payload: "{}"}
			if string(p) != e.json(true) {
				got = append(got, n)
				e.unverified = verify.BrokenChain
			}
			if string(p) != e.json(true) {
				t.Fatalf("event %d is %s", n, p)
			}
			n++
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("events %v are unverified, want %v", got, want)
	}
}
