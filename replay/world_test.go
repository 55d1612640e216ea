package replay

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"millrace/dict"
	"millrace/translate"
)

// cursor draws a cursor of any sort.
func (w *world) cursor() Cursor {
	m := w.m
	var events []testEvent
	for _, b := range m.blocks {
		events = append(events, b.events...)
	}
	jitter := int64(w.rng.IntN(3)) - 1
	switch k := w.rng.IntN(12); {
	case k == 0 || len(events) == 0:
		return TimeCursor(0)
	case k == 1:
		return Cursor{}
	case k == 2:
		return TimeCursor(m.timeUS + jitter)
	case k == 3:
		return PositionCursor(translate.Position{Stream: StreamOf(testRelay, m.epoch), Seq: max(m.seq+jitter, 0)})
	case k == 4 && w.rng.IntN(2) == 0:
		return TimeCursor(events[0].timeUS - 1 - int64(w.rng.IntN(1000)))
	case k == 4:
		return PositionCursor(translate.Position{Stream: StreamOf(testRelay, 1+uint32(w.rng.IntN(int(m.epoch)))), Seq: int64(w.rng.IntN(200))})
	}
	e := events[w.rng.IntN(len(events))]
	if w.rng.IntN(2) == 0 {
		return TimeCursor(e.timeUS + jitter)
	}
	if w.rng.IntN(3) == 0 {
		return SeqCursor(m.v2Seq(e.Place) + jitter)
	}
	p := pointOf(e).Position
	switch w.rng.IntN(4) {
	case 0:
		p.Seq += jitter
	case 1:
		p.Op = uint32(max(int64(p.Op)+jitter, 0))
	}
	return PositionCursor(p)
}

// filter draws a filter, nil among them.
func (w *world) filter() (*Filter, FilterConfig) {
	var cfg FilterConfig
	if w.rng.IntN(3) == 0 {
		return nil, cfg
	}
	if w.rng.IntN(2) == 0 {
		for range 1 + w.rng.IntN(3) {
			c := testCollections[w.rng.IntN(len(testCollections))]
			switch w.rng.IntN(4) {
			case 0:
				c = c[:strings.LastIndexByte(c, '.')+1] + "*"
			case 1:
				c = c[:w.rng.IntN(len(c))] + "*"
			}
			cfg.Collections = append(cfg.Collections, c)
		}
	}
	if w.rng.IntN(3) == 0 {
		for range 1 + w.rng.IntN(8) {
			cfg.DIDs = append(cfg.DIDs, testDID(w.rng.IntN(33)))
		}
	}
	if w.rng.IntN(3) == 0 {
		cfg.Kinds = KindSet(w.rng.IntN(16)) << 1
	}
	if w.rng.IntN(2) == 0 {
		w.referenceFilter(&cfg)
	}
	if w.rng.IntN(3) == 0 {
		cfg.MaxPayloadBytes = 60 + w.rng.IntN(500)
	}
	f, err := NewFilter(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return f, cfg
}

// matches is the filter as the specification has it, size apart.
func (w *world) matches(cfg FilterConfig, e *testEvent) bool {
	if asked := cfg.Kinds&(1<<e.kind) != 0; !asked && (cfg.Kinds != 0 || e.kind == translate.KindSync) {
		return false
	}
	ok := len(cfg.DIDs) == 0
	for _, d := range cfg.DIDs {
		ok = ok || d == e.did
	}
	if !ok {
		return false
	}
	ok = len(cfg.Collections) == 0 || e.kind != translate.KindCommit
	for _, c := range cfg.Collections {
		p, prefix := strings.CutSuffix(c, "*")
		ok = ok || c == e.collection || prefix && strings.HasPrefix(e.collection, p)
	}
	return ok && w.matchesReferences(cfg, e)
}

// read reads with a random reader until it is live, and compares.
func (w *world) read() {
	t := w.t
	t.Helper()
	f, fcfg := w.filter()
	cfg := ReaderConfig{Cursor: w.cursor(), Filter: f, Extended: w.rng.IntN(2) == 0, MaxChunkBytes: 1 << w.rng.IntN(18)}
	cfg.V2 = !cfg.Extended && w.rng.IntN(2) == 0
	cfg.References = (cfg.Extended || cfg.V2) && w.rng.IntN(2) == 0
	switch w.rng.IntN(3) {
	case 0:
		cfg.Dictionary = dict.BuiltIn().ID()
	case 1:
		cfg.Dictionary = otherDictionaryID
	}
	items, clamped := w.m.want(cfg.Cursor)
	what := fmt.Sprintf("cursor %s, filter %+v, extended %t, references %t, v2 %t, dictionary %d", cfg.Cursor, fcfg, cfg.Extended, cfg.References, cfg.V2, cfg.Dictionary)
	r, err := w.log.NewReader(cfg)
	if tooOld := clamped && cfg.Cursor.kind == cursorSeq; tooOld || err != nil {
		if !tooOld || !errors.Is(err, ErrTooOld) {
			t.Fatalf("%s: %v, too old: %t", what, err, tooOld)
		}
		return
	}
	oldest, gotClamped := r.Clamped()
	if gotClamped != clamped {
		t.Fatalf("%s: clamped %t, want %t", what, gotClamped, clamped)
	}
	if clamped && oldest != w.log.Range().Oldest {
		t.Fatalf("%s: clamped to %v, oldest is %v", what, oldest, w.log.Range().Oldest)
	}
	w.checkBefore(r, items)
	want := w.render(items, cfg, fcfg)
	got := w.drain(r, cfg)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s: -want +got\n%s", what, diff)
	}
}

// checkBefore checks that a reader that gives these items knows whether it is before an event
// of the log.
func (w *world) checkBefore(r *Reader, items []item) {
	w.t.Helper()
	all := w.m.items()
	if len(all) == 0 {
		return
	}
	e := all[w.rng.IntN(len(all))].event
	if e == nil {
		return
	}
	want := slices.ContainsFunc(items, func(it item) bool { return it.event == e })
	if got := r.Before(e.timeUS); got != want {
		w.t.Fatalf("a reader at %d is before %d: %t, want %t", r.next, e.timeUS, got, want)
	}
}

// render turns items into what drain returns.
func (w *world) render(items []item, cfg ReaderConfig, fcfg FilterConfig) []string {
	var enc *dict.Encoder
	if cfg.Dictionary != 0 {
		var err error
		if enc, err = w.cfg.Dictionaries.Encoder(cfg.Dictionary); err != nil {
			w.t.Fatal(err)
		}
	}
	var out []string
	for _, it := range items {
		if it.gap != nil {
			out = append(out, fmt.Sprintf("gap %v", *it.gap))
			continue
		}
		if !w.matches(fcfg, it.event) {
			continue
		}
		s := it.event.json(cfg.Extended)
		switch {
		case cfg.V2:
			s = it.event.v2JSON(w.t, w.m.v2Seq(it.event.Place), cfg.References)
		case cfg.References:
			s = strings.TrimSuffix(s, "}") + referencesJSON(it.event) + "}"
		}
		size := len(s)
		if enc != nil && !cfg.V2 {
			size = len(enc.Append(nil, []byte(s)))
		}
		if fcfg.MaxPayloadBytes > 0 && size > fcfg.MaxPayloadBytes {
			continue
		}
		out = append(out, s)
	}
	return out
}

// drain reads until the reader is live, and checks what must hold of each chunk.
func (w *world) drain(r *Reader, cfg ReaderConfig) []string {
	t := w.t
	t.Helper()
	var out []string
	var c Chunk
	var last Point
	opcode := byte(0x81)
	if cfg.Dictionary != 0 {
		opcode = 0x82
	}
	for calls := 0; ; calls++ {
		if calls > 100_000 {
			t.Fatal("the reader does not come to the end")
		}
		if err := r.Next(&c); err != nil {
			t.Fatal(err)
		}
		if c.Through.TimeUS < last.TimeUS {
			t.Fatalf("through went back from %v to %v", last, c.Through)
		}
		last = c.Through
		if c.Gap != nil {
			out = append(out, fmt.Sprintf("gap %v", *c.Gap))
		}
		bound := cfg.MaxChunkBytes
		if v := r.variant; v.extended || v.v2 || v.dictionary != 0 {
			bound = r.builtBound()
		}
		if c.Bytes > bound && c.Events > 1 {
			t.Fatalf("chunk of %d events has %d bytes, more than %d", c.Events, c.Bytes, bound)
		}
		for _, p := range parseFrames(t, &c, opcode) {
			if cfg.Dictionary != 0 {
				var err error
				if p, err = w.dec.Append(nil, p); err != nil {
					t.Fatal(err)
				}
			}
			out = append(out, string(p))
		}
		if c.Live {
			return out
		}
	}
}
