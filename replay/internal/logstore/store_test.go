package logstore

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"millrace/dict"
	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
	"millrace/replay/internal/pebblestore"
	"millrace/translate"
)

// value is a key of the store and what it has.
type value struct{ key, value []byte }

// sealed is a value with its trailer.
func sealed(key []byte, v []byte, r format.Range, of int64) value {
	return value{key, format.AppendTrailer(bytes.Clone(v), r, of)}
}

func storeOf(t *testing.T, values ...value) *pebblestore.Store {
	t.Helper()
	st, err := Open(pebblestore.Config{Dir: "log", FS: vfs.NewMem(), Bytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = st.Close() })
	b := st.Pebble().NewBatch()
	for _, v := range values {
		err = errors.Join(err, b.Set(v.key, v.value, nil))
	}
	if err := errors.Join(err, st.Commit(b, true)); err != nil {
		t.Fatal(err)
	}
	return st
}

func gapAt(us int64) value {
	g := format.Gap{From: translate.Position{Stream: 1, Seq: us}, To: translate.Position{Stream: 1, Seq: us + 1}}
	return sealed(format.TimeKey(format.RangeGap, us), format.AppendGap(nil, &g), format.RangeGap, us)
}

func pointerTo(key, seq, bytes int64) value {
	p := format.BlockPointer{Key: key, Seq: seq, Totals: format.Totals{Bytes: bytes}}
	return sealed(format.SeqKey(1, seq), format.AppendBlockPointer(nil, p), format.RangeSeq, seq)
}

func sourceOf(number uint32, source string) value {
	return sealed(format.SourceKey(number), []byte(source), format.RangeSource, int64(number))
}

// reader reads something of a range.
type reader struct {
	r  format.Range
	of func(st *pebblestore.Store) (any, error)
}

var errDisk = errors.New("the disk")

// failReads fails each read of the disk in turn, which is no damage and no end.
func failReads(t *testing.T, name string, values []value, want any, read func(st *pebblestore.Store) (any, error)) {
	t.Helper()
	fs, fails := vfs.NewCrashableMem(), 0
	cfg := pebblestore.Config{Dir: "log", Bytes: 8 << 20, FS: fs}
	st, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b := st.Pebble().NewBatch()
	for _, v := range values {
		err = errors.Join(err, b.Set(v.key, v.value, nil))
	}
	if err := errors.Join(err, st.Commit(b, true), st.Flush(), st.Close()); err != nil {
		t.Fatal(err)
	}
	for n := int64(1); ; n++ {
		var calls atomic.Int64
		var armed atomic.Bool
		cfg.FS = errorfs.Wrap(fs.CrashClone(vfs.CrashCloneCfg{}), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if armed.Load() && op.Kind == errorfs.OpFileReadAt && calls.Add(1) == n {
				return errDisk
			}
			return nil
		}))
		st, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		armed.Store(true)
		got, err := read(st)
		armed.Store(false)
		_ = st.Close()
		var damage *CorruptionError
		if err == nil && !cmp.Equal(got, want) || err != nil && (!errors.Is(err, errDisk) || errors.As(err, &damage)) {
			t.Errorf("%s: read %d fails: %v, %v", name, n, got, err)
		}
		if err != nil {
			fails++
		}
		if calls.Load() < n {
			break
		}
	}
	if fails == 0 {
		t.Errorf("%s: no read fails", name)
	}
}

// TestReads: each reader takes what is within its bounds. What is not as it was written is damage,
// and names the range.
func TestReads(t *testing.T) {
	gaps := reader{format.RangeGap, func(st *pebblestore.Store) (any, error) {
		all, err := Gaps(st, 5)
		var at []int64
		for _, g := range all {
			if at = append(at, g.TimeUS); g.From.Seq != g.TimeUS {
				return nil, fmt.Errorf("gap %+v", g)
			}
		}
		return at, err
	}}
	spans := reader{format.RangeSpan, func(st *pebblestore.Store) (any, error) { return Spans(st, 5, 9) }}
	span := func(us int64) value { return value{format.TimeKey(format.RangeSpan, us), nil} }
	frames := reader{format.RangeSeq, func(st *pebblestore.Store) (any, error) {
		var last [3]int64
		var err error
		for i := range last {
			if last[i], err = LastFrame(st, uint32(i+1)); err != nil {
				return nil, err
			}
		}
		return last, nil
	}}
	blocks := reader{format.RangeIndex, func(st *pebblestore.Store) (any, error) {
		var last [4]int64
		var err error
		for i, through := range []int64{9, 8, 6, 5} {
			if last[i], err = LastBlock(st, 5, through); err != nil {
				return nil, err
			}
		}
		return last, nil
	}}
	index := func(us int64) value { return value{format.TimeKey(format.RangeIndex, us), nil} }
	cuts := reader{format.RangeSeq, func(st *pebblestore.Store) (any, error) {
		var keys []int64
		for _, c := range []struct{ newest, most int64 }{{3, 20}, {3, 19}, {3, 0}, {2, 0}, {0, 0}} {
			s := format.State{Newest: format.Point{TimeUS: c.newest}, Total: format.Totals{Bytes: 30}}
			key, more, err := CutByBytes(st, &s, c.most)
			if err != nil || more {
				return more, err
			}
			keys = append(keys, key)
		}
		return keys, nil
	}}
	pointer := reader{format.RangeSeq, func(st *pebblestore.Store) (any, error) {
		p, err := Pointer(st, 1, 7, 3)
		return p.Bytes, err
	}}
	meta := reader{format.RangeMeta, func(st *pebblestore.Store) (any, error) {
		v, ok, err := Meta(st, "x", func(b []byte) (string, error) {
			if len(b) == 0 {
				return "", errors.New("it is empty")
			}
			return string(b), nil
		})
		return fmt.Sprint(v, ok), err
	}}
	dictionaries := reader{format.RangeDictionary, func(st *pebblestore.Store) (any, error) {
		files, err := Dictionaries(st)
		var ids []uint32
		for id, d := range files {
			if ids = append(ids, id); d.ID() != id {
				return nil, fmt.Errorf("dictionary %d under %d", d.ID(), id)
			}
		}
		return ids, err
	}}
	builtIn := int64(dict.BuiltInID)
	sources := reader{format.RangeSource, func(st *pebblestore.Store) (any, error) {
		table := NewSources()
		err := table.Load(st)
		return table.Known(), err
	}}
	malformed := func(r format.Range) value { return value{append(format.TimeKey(r, 7), 0), nil} }
	untrailed := func(v value) value { return value{v.key, v.value[:len(v.value)-1]} }
	dictionary := sealed(format.DictionaryKey(dict.BuiltInID), dict.BuiltIn().Bytes(), format.RangeDictionary, builtIn)
	for _, tc := range []struct {
		name   string
		read   reader
		values []value
		want   any // without an error
		says   string
	}{
		{"no gaps", gaps, nil, []int64(nil), ""},
		{"gaps", gaps, []value{gapAt(5), gapAt(6), gapAt(9)}, []int64{6, 9}, ""},
		{"a gap's key", gaps, []value{malformed(format.RangeGap)}, nil, "gap part of block 0: malformed key"},
		{"a gap's trailer", gaps, []value{gapAt(6), untrailed(gapAt(7))}, nil, "gap part of block 7"},
		{"a gap's value", gaps, []value{sealed(format.TimeKey(format.RangeGap, 7), nil, format.RangeGap, 7)}, nil, "gap part of block 7"},
		{"no spans", spans, nil, []int64(nil), ""},
		{"spans", spans, []value{span(5), span(6), span(9)}, []int64{6, 9}, ""},
		{"a span of later", spans, []value{span(10)}, nil, "span part of block 10: malformed key"},
		{"a span's key", spans, []value{malformed(format.RangeSpan)}, nil, "malformed key"},
		{"no frames", frames, nil, [3]int64{}, ""},
		{"frames", frames, []value{pointerTo(1, 7, 0), {format.SeqKey(2, 3), nil}, {format.SeqKey(2, 4), nil}}, [3]int64{7, 4, 0}, ""},
		{"a frame's key", frames, []value{{append(format.SeqKey(1, 7), 0), nil}}, nil, "seq part of block 0: malformed key"},
		{"no blocks", blocks, nil, [4]int64{}, ""},
		{"blocks", blocks, []value{index(5), index(6), index(9)}, [4]int64{9, 6, 6, 0}, ""},
		{"a block's key", blocks, []value{malformed(format.RangeIndex)}, nil, "index part of block 9: malformed key"},
		{"cuts", cuts, []value{pointerTo(1, 5, 10), pointerTo(2, 6, 20), pointerTo(3, 7, 30)}, []int64{1, 2, 3, 2, 0}, ""},
		{"a cut's pointer", cuts, []value{untrailed(pointerTo(1, 5, 10))}, nil, "seq part of block 5"},
		{"a pointer", pointer, []value{pointerTo(3, 7, 30)}, int64(30), ""},
		{"no pointer", pointer, nil, nil, "seq part of block 3: " + format.ErrMissing.Error()},
		{"a pointer to another", pointer, []value{pointerTo(4, 7, 30)}, nil, "seq part of block 3: it refers to block 4"},
		{"a pointer's trailer", pointer, []value{untrailed(pointerTo(3, 7, 30))}, nil, "seq part of block 3"},
		{"no meta value", meta, nil, "false", ""},
		{"a meta value", meta, []value{sealed(format.MetaKey("x"), []byte("y"), format.RangeMeta, 0)}, "ytrue", ""},
		{"a meta value's trailer", meta, []value{{format.MetaKey("x"), []byte("y")}}, nil, "meta part of block 0: x: "},
		{"a meta value that is none", meta, []value{sealed(format.MetaKey("x"), nil, format.RangeMeta, 0)}, nil, "x: it is empty"},
		{"no dictionaries", dictionaries, nil, []uint32(nil), ""},
		{"a dictionary", dictionaries, []value{dictionary}, []uint32{dict.BuiltInID}, ""},
		{"a dictionary's key", dictionaries, []value{{append(format.DictionaryKey(7), 0), nil}}, nil, "malformed key of 6 bytes"},
		{"a dictionary's trailer", dictionaries, []value{untrailed(dictionary)}, nil, fmt.Sprintf("part of block %d", builtIn)},
		{"no dictionary", dictionaries, []value{sealed(format.DictionaryKey(7), []byte("x"), format.RangeDictionary, 7)}, nil, "not a zstd dictionary"},
		{"no sources", sources, nil, []string(nil), ""},
		{"sources", sources, []value{sourceOf(1, "a"), sourceOf(2, "b")}, []string{"a", "b"}, ""},
		{"a source is missing", sources, []value{sourceOf(1, "a"), sourceOf(3, "b")}, nil, "part of block 2: malformed key"},
		{"a source's key", sources, []value{{append(format.SourceKey(1), 0), nil}}, nil, "part of block 1: malformed key"},
		{"a source twice", sources, []value{sourceOf(1, "a"), sourceOf(2, "a")}, nil, `"a" has two numbers`},
		{"a source's trailer", sources, []value{untrailed(sourceOf(1, "a"))}, nil, "part of block 1"},
	} {
		values := tc.values
		for _, r := range format.Ranges() {
			if r != tc.read.r {
				values = append(values, value{[]byte{byte(r), 0xff}, nil}) // which is not looked at
			}
		}
		got, err := tc.read.of(storeOf(t, values...))
		var damage *CorruptionError
		switch {
		case tc.says == "" && (err != nil || !cmp.Equal(tc.want, got)):
			t.Errorf("%s: %v, %v; want %v", tc.name, got, err, tc.want)
		case tc.says == "" && tc.values != nil:
			failReads(t, tc.name, tc.values, tc.want, tc.read.of)
		case tc.says != "" && (!errors.As(err, &damage) || !strings.Contains(err.Error(), tc.says)):
			t.Errorf("%s: %v, want %q", tc.name, err, tc.says)
		}
	}
}

// TestPutMeta: the version and the streams are what is read again; bases of seqs are there if one
// is not 0.
func TestPutMeta(t *testing.T) {
	for _, base := range []int64{0, 7} {
		st := storeOf(t)
		streams := format.Streams{{Relay: "a.test", Epoch: 1}, {Relay: "b.test", Epoch: 2, SeqBase: base}}
		b := st.Pebble().NewBatch()
		if err := errors.Join(PutStreams(b, streams), PutVersion(b, 9), st.Commit(b, true)); err != nil {
			t.Fatal(err)
		}
		got, ok, err := Meta(st, format.MetaStreams, format.DecodeStreams)
		if err != nil || !ok || len(got) != 2 || got[1].Relay != "b.test" || got[1].Epoch != 2 {
			t.Errorf("%+v, %v", got, err)
		}
		_, bases, err := st.Value(format.MetaKey(format.MetaSeqBases))
		version, _, versionErr := st.Value(format.MetaKey(format.MetaFormat))
		if errors.Join(err, versionErr) != nil || bases != (base != 0) || !bytes.Equal(version, []byte{0, 0, 0, 9}) {
			t.Errorf("base %d: bases are there: %t, version %x, %v, %v", base, bases, version, err, versionErr)
		}
	}
	torn := errors.New("torn")
	err := Corrupt(format.RangeGap, 7, &pebbleguard.CorruptionError{File: "000001.sst", Advice: "look", Err: torn})
	if want := "log is corrupt: gap part of block 7 in 000001.sst: torn (" + pebblestore.Advice + ")"; err.Error() != want || !errors.Is(err, torn) {
		t.Errorf("%v, want %s", err, want)
	}
	if err := MissingMeta("x"); !errors.Is(err, format.ErrMissing) || !strings.Contains(err.Error(), "meta part of block 0: x: ") {
		t.Errorf("%v", err)
	}
}

// TestPutSources: sources go into a batch once, in the order of their numbers.
func TestPutSources(t *testing.T) {
	st, table := storeOf(t), NewSources()
	for i, source := range []string{"", "a", "b", ""} {
		if source != "" {
			table.Number([]byte(source), false)
		}
		b := st.Pebble().NewBatch()
		known, more, err := table.Put(b)
		if err := errors.Join(err, st.Commit(b, true)); err != nil {
			t.Fatal(err)
		}
		if more != (source != "") || b.Count() != map[bool]uint32{true: 1}[more] || table.Len() != len(known) {
			t.Errorf("step %d: %q, more %t, %d values", i, known, more, b.Count())
		}
		table.Stored(len(known))
	}
	again := NewSources()
	if err := again.Load(st); err != nil || !cmp.Equal(again.Known(), []string{"a", "b"}) {
		t.Errorf("%q, %v", again.Known(), err)
	}
	if _, more, err := again.Put(nil); more || err != nil {
		t.Errorf("what was loaded is put again: %v", err)
	}
	for number, want := range []string{"", "a", "b", ""} {
		if source, ok := again.Source(uint32(number)); source != want || ok != (want != "") {
			t.Errorf("source %d is %q, %t", number, source, ok)
		}
	}
	if _, ok := again.Number([]byte("c"), true); ok {
		t.Error("a table that is only read gives a number")
	}
}

// TestPutUses: dictionaries that are no longer used are deleted.
func TestPutUses(t *testing.T) {
	st := storeOf(t, value{format.DictionaryKey(1), nil}, value{format.DictionaryKey(2), nil}, value{format.DictionaryKey(3), nil})
	b := st.Pebble().NewBatch()
	next := []format.Use{{ID: 2}, {ID: 3}}
	if err := errors.Join(PutUses(b, []format.Use{{ID: 1}, {ID: 2}}, next), st.Commit(b, true)); err != nil {
		t.Fatal(err)
	}
	for id := range uint32(4) {
		if _, ok, err := st.Value(format.DictionaryKey(id)); ok != (id > 1) || err != nil {
			t.Errorf("dictionary %d is there: %t, %v", id, ok, err)
		}
	}
	if uses, _, err := Meta(st, format.MetaDictionaries, format.DecodeUses); err != nil || !cmp.Equal(uses, next) {
		t.Errorf("%+v, %v", uses, err)
	}
}

// TestDeleteThrough: all that belongs to blocks up to a point goes, and nothing else.
func TestDeleteThrough(t *testing.T) {
	kept := []value{{format.MetaKey("x"), nil}, {format.DictionaryKey(1), nil}, sourceOf(1, "a")}
	var gone []value
	for _, r := range format.Ranges()[len(kept):] {
		if r == format.RangeSeq {
			gone, kept = append(gone, pointerTo(7, 9, 0)), append(kept, pointerTo(8, 10, 0))
			continue
		}
		gone = append(gone, value{format.TimeKey(r, 7), nil}, value{format.ShardKey(r, 7, 1), nil})
		kept = append(kept, value{format.TimeKey(r, 8), nil})
	}
	st := storeOf(t, append(gone, kept...)...)
	b := st.Pebble().NewBatch()
	if err := errors.Join(DeleteThrough(b, format.Point{TimeUS: 7}, 1, 9), st.Commit(b, true)); err != nil {
		t.Fatal(err)
	}
	it, err := st.NewIter(&pebble.IterOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n == len(kept) || !bytes.Equal(it.Key(), kept[n].key) {
			t.Fatalf("key %d of those that are left is %x", n, it.Key())
		}
		n++
	}
	if n != len(kept) {
		t.Errorf("%d of %d keys are left", n, len(kept))
	}
}

// TestSpanPolicy: each range has tables of its own, and values that compression does not help are
// not compressed.
func TestSpanPolicy(t *testing.T) {
	if p, end, err := SpanPolicy(nil); p != (pebble.SpanPolicy{}) || !bytes.Equal(end, format.RangeMeta.Start()) || err != nil {
		t.Errorf("%+v to %x, %v", p, end, err)
	}
	if p, end, err := SpanPolicy([]byte{0xff}); p != (pebble.SpanPolicy{}) || end != nil || err != nil {
		t.Errorf("%+v to %x, %v", p, end, err)
	}
	for _, r := range format.Ranges() {
		p, end, err := SpanPolicy(format.TimeKey(r, 1))
		packed := strings.HasSuffix(r.String(), "plain") || strings.HasSuffix(r.String(), "zstd")
		if p.PreferFastCompression == packed || (p.ValueStoragePolicy == pebble.ValueStorageLowReadLatency) == packed || !bytes.Equal(end, r.End()) || err != nil {
			t.Errorf("%s: %+v to %x, %v", r, p, end, err)
		}
	}
}
