package replay

import (
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/go-cmp/cmp"

	"millrace/replay/internal/format"
)

// check compares what the log says of itself with the model.
func (w *world) check() {
	w.t.Helper()
	w.adoptBlocks()
	m := w.m
	want := Progress{Stream: StreamOf(testRelay, m.epoch), Epoch: m.epoch, Seq: m.seq, TimeUS: m.timeUS}
	if diff := cmp.Diff(want, w.log.Progress()); diff != "" {
		w.t.Fatalf("progress: -want +got\n%s", diff)
	}
	r := Range{Retention: w.cfg.Retention}
	for _, g := range m.gaps {
		if g.TimeUS > m.floorUS() {
			r.Gaps = append(r.Gaps, g)
		}
	}
	if held := m.blocks[m.first:]; len(held) > 0 {
		r.Oldest, r.Newest = pointOf(held[0].events[0]), pointOf(held[len(held)-1].last())
		for _, b := range held {
			r.Events += int64(len(b.events))
			r.Bytes += b.stored
		}
	}
	got := w.log.Range()
	if len(got.Gaps) == 0 {
		got.Gaps = nil
	}
	if diff := cmp.Diff(r, got); diff != "" {
		w.t.Fatalf("range: -want +got\n%s", diff)
	}
	w.checkStore()
	w.checkDictionaries()
	s := w.log.snap.Load()
	if len(s.tail) > 0 && s.tail[0].idx.Key() <= s.Floor.TimeUS {
		w.t.Fatalf("the tail keeps block %d, the floor is %d", s.tail[0].idx.Key(), s.Floor.TimeUS)
	}
	var bytes int64
	for _, b := range s.tail {
		bytes += b.memory()
	}
	if bytes != s.tailBytes || bytes > w.cfg.TailBytes && len(s.tail) > 1 {
		w.t.Fatalf("the tail has %d bytes in %d blocks, says %d, limit %d", bytes, len(s.tail), s.tailBytes, w.cfg.TailBytes)
	}
}

// checkStore compares the keys in the store with the model: nothing is missing, and nothing left.
func (w *world) checkStore() {
	w.t.Helper()
	var want []string
	for _, b := range w.m.blocks[w.m.first:] {
		us := b.last().timeUS
		for _, r := range format.BlockRanges() {
			want = append(want, string(format.TimeKey(r, us)))
			for s := 1; r == format.RangePlain && s < b.substreams; s++ {
				want = append(want, string(format.SubstreamKey(us, s)))
			}
		}
		if slices.ContainsFunc(b.events, func(e testEvent) bool { return len(e.refs) > 0 || e.repeated }) {
			want = append(want, string(format.TimeKey(format.RangeReferences, us)))
		}
		want = append(want, string(format.SeqKey(b.epoch, b.lastSeq)))
	}
	for _, g := range w.m.gaps {
		if g.TimeUS > w.m.floorUS() {
			want = append(want, string(format.TimeKey(format.RangeGap, g.TimeUS)))
		}
	}
	slices.Sort(want)
	var got []string
	var spans []int64
	it, err := w.log.store.NewIter(&pebble.IterOptions{LowerBound: format.RangeGap.Start()})
	if err != nil {
		w.t.Fatal(err)
	}
	defer it.Close()
	for it.First(); it.Valid(); it.Next() {
		if r := format.Range(it.Key()[0]); r == format.RangeSpan || r >= format.RangeSpanDIDs && r != format.RangeSlimIndex && r != format.RangeReferences {
			us, ok := format.ParseTimeKey(it.Key())
			if r == format.RangeSpanDIDs || r == format.RangeSpanSubjects {
				us, ok = format.ParseShardKey(it.Key())
			}
			if !ok || us <= w.m.floorUS() {
				w.t.Fatalf("%s %d is left, the floor is %d", r.String(), us, w.m.floorUS())
			}
			if r == format.RangeSpan {
				spans = append(spans, us)
			}
			continue
		}
		got = append(got, string(it.Key()))
	}
	if !slices.Equal(want, got) {
		w.t.Fatalf("keys in the store: want %d, got %d\n%x\n%x", len(want), len(got), want, got)
	}
	if known := w.log.snap.Load().spans; !slices.Equal(spans, known) {
		w.t.Fatalf("spans in the store: %d; readers know %d", spans, known)
	}
}

// checkDictionaries: every block's dictionary is in the store, and no other than the log says it
// keeps.
func (w *world) checkDictionaries() {
	w.t.Helper()
	kept := make(map[uint32]bool)
	for _, u := range w.log.Dictionaries() {
		kept[u.ID] = true
	}
	scan := func(r format.Range, f func(key, value []byte)) {
		it, err := w.log.store.NewIter(&pebble.IterOptions{LowerBound: r.Start(), UpperBound: r.End()})
		if err != nil {
			w.t.Fatal(err)
		}
		defer it.Close()
		for it.First(); it.Valid(); it.Next() {
			f(it.Key(), it.Value())
		}
	}
	held := make(map[uint32]bool)
	scan(format.RangeDictionary, func(key, _ []byte) { held[binary.BigEndian.Uint32(key[1:])] = true })
	if diff := cmp.Diff(kept, held); diff != "" {
		w.t.Fatalf("dictionaries: -kept +held\n%s", diff)
	}
	scan(format.RangeIndex, func(key, value []byte) {
		us, _ := format.ParseTimeKey(key)
		body, err := format.OpenTrailer(value, format.RangeIndex, us)
		if err != nil {
			w.t.Fatal(err)
		}
		x, err := format.DecodeIndex(body)
		if err != nil {
			w.t.Fatal(err)
		}
		if !held[x.Dictionary] {
			w.t.Fatalf("block %d is made with dictionary %d, the store has %v", us, x.Dictionary, held)
		}
	})
}
