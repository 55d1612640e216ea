package replay

import (
	"bytes"
	"encoding/hex"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/replay/internal/format"
	"millrace/translate"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// fakeCompressor makes frames that do not depend on which zstd is built in.
type fakeCompressor struct{}

func (fakeCompressor) Append(dst, src []byte) []byte {
	return append(append(dst, "zstd:"...), src[:len(src)/2]...)
}

func goldenBlock(t testing.TB) *Block {
	t.Helper()
	b := &Block{epoch: 3, firstSeq: 31527015320, lastSeq: 31527015330}
	s := newSealer(3, fakeCompressor{}, 51001, 4, 100)
	for _, e := range []testEvent{
		{place{3, 31527015321, 0}, 1782907200000001, translate.KindCommit, translate.OpCreate, "app.bsky.feed.like",
			"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", 4611686018427387905, 9223372036854775809, `{"did":"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa","n":1}`},
		{place{3, 31527015321, 2}, 1782907200000002, translate.KindCommit, translate.OpDelete, "app.bsky.feed.post",
			"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", 4611686018427387905, 1, `{"did":"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa","n":2}`},
		{place{3, 31527015325, 0}, 1782907200001000, translate.KindIdentity, translate.OpNone, "",
			"did:web:example.com", 7, 0, `{"did":"did:web:example.com","kind":"identity","x":"` + strings.Repeat("y", 200) + `"}`},
		{place{3, 31527015330, 0}, 1782907200300000, translate.KindCommit, translate.OpUpdate, "app.bsky.feed.like",
			"did:web:example.com", 7, 8, `{"did":"did:web:example.com","n":4}`},
	} {
		if err := s.add(e.event()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.finish(b); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGolden pins every format that is on disk. If it fails, logs in the field no longer open: raise
// Version and keep reading the old one.
func TestGolden(t *testing.T) {
	b := goldenBlock(t)
	st := state{epoch: 3, seq: 31527015330, timeUS: 1782907200300000,
		floor:  mark{1782900000000000, place{2, 77, 5}},
		oldest: mark{1782900000000009, place{3, 1, 0}},
		newest: mark{1782907200300000, place{3, 31527015330, 1}},
		total:  totals{1000, 512000, 1 << 40}, trimmed: totals{10, 5000, 1 << 30},
		previous: EpochEnd{2, 90}}
	tag := StreamOf(testRelay, 3)
	gap := &Gap{From: translate.Position{Stream: StreamOf(testRelay, 2), Seq: 77, Op: 5}, To: translate.Position{Stream: tag, Seq: 1}, TimeUS: 1782900000000005}
	var out strings.Builder
	add := func(name string, key, value []byte) {
		out.WriteString(name + "\nkey " + hex.EncodeToString(key) + "\n" + hex.Dump(value) + "\n")
	}
	us := b.idx.key()
	add("index", format.TimeKey(format.RangeIndex, us), b.sealedIndex)
	for s, value := range b.sealedPlain {
		add("plain", format.SubstreamKey(us, s), value)
	}
	add("zstd", format.TimeKey(format.RangeZstd, us), b.sealedZstd)
	add("slim_index", format.TimeKey(format.RangeSlimIndex, us), b.sealedOutline)
	add("seq", format.SeqKey(3, 31527015330), format.AppendTrailer(appendBlockRef(nil, blockRef{us, 31527015330, 1, st.total}), format.RangeSeq, 31527015330))
	add("gap", format.TimeKey(format.RangeGap, gap.TimeUS), format.AppendTrailer(appendGap(nil, gap), format.RangeGap, gap.TimeUS))
	add("state", format.MetaKey(format.MetaState), format.AppendTrailer(appendState(nil, &st), format.RangeMeta, 0))
	add("streams", format.MetaKey(format.MetaStreams), format.AppendTrailer(appendStreams(nil, []stream{{epoch: 1, relay: "bsky.network"}, {epoch: 3, relay: testRelay}}), format.RangeMeta, 0))
	uses := []use{{id: 51001, sinceUS: 1782900000000000, through: 1782900000000009}, {id: otherDictionaryID, sinceUS: 1782907200000000, from: 1782900000000009}}
	add("dictionaries", format.MetaKey(format.MetaDictionaries), format.AppendTrailer(appendUses(nil, uses), format.RangeMeta, 0))
	add("dictionary", format.DictionaryKey(51001), nil)
	span := newOpenSpan(3)
	span.add(fingerprintKey{1, 2}, b.idx, b.plain, b.zstd, b.stored())
	for _, v := range span.values() {
		add(format.Range(v.key[0]).String(), v.key, v.value)
	}
	out.WriteString("stream of bsky.network, epoch 1: " + StreamOf("bsky.network", 1).String() + "\n")
	if StreamOf("BSKY.Network", 1) != StreamOf("bsky.network", 1) {
		t.Error("the case of a host matters")
	}
	file := filepath.Join("testdata", "formats.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	// What was written can be read.
	if got, err := decodeUses(appendUses(nil, uses)); err != nil || !slices.Equal(got, uses) {
		t.Errorf("dictionaries become %+v, %v", got, err)
	}
	if _, err := decodeUses(appendUses(nil, []use{uses[0], uses[0]})); err == nil {
		t.Error("a dictionary that is there twice is taken")
	}
	if _, err := decodeUses(appendUses(nil, uses)[1:]); err == nil {
		t.Error("cut dictionaries are taken")
	}
	if got, err := decodeState(appendState(nil, &st)); err != nil || got != st {
		t.Errorf("state becomes %+v, %v", got, err)
	}
	if got, err := decodeGap(appendGap(nil, gap), gap.TimeUS); err != nil || got != *gap {
		t.Errorf("gap becomes %+v, %v", got, err)
	}
}

var compareIndex = cmp.Options{
	cmp.AllowUnexported(index{}, table{}),
	cmpopts.IgnoreFields(index{}, "didHashes", "checked", "touched", "after"),
	cmpopts.EquateEmpty(),
}

func TestIndexRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for n := 1; n < 600; n = n*3/2 + 1 {
		s := newSealer(2, fakeCompressor{}, 5, n, 100)
		us, seq := int64(1782907200000000), int64(1)
		for range n {
			us += 1 + int64(rng.Uint64()>>(20+rng.IntN(44)))>>4
			seq += int64(rng.Uint64() >> (32 + rng.IntN(32)))
			seq++
			if err := s.add(randomEvent(rng, place{2, seq, rng.Uint32() >> rng.IntN(32)}, us).event()); err != nil {
				t.Fatal(err)
			}
		}
		b := &Block{epoch: 2, firstSeq: 1, lastSeq: seq}
		if err := s.finish(b); err != nil {
			t.Fatal(err)
		}
		prefix := []byte("prefix")
		enc := appendIndex(prefix, b.idx)
		if !bytes.HasPrefix(enc, prefix) {
			t.Fatal("the prefix is gone")
		}
		got, err := decodeIndex(enc[len(prefix):])
		if err != nil {
			t.Fatal(err)
		}
		for i := range enc {
			enc[i] = 0xaa // decodeIndex keeps nothing of it
		}
		if diff := cmp.Diff(b.idx, got, compareIndex); diff != "" {
			t.Fatalf("%d events: -want +got\n%s", n, diff)
		}
	}
}

func TestColumn(t *testing.T) {
	for _, values := range [][]uint64{
		{}, {0}, {5}, {0, 0, 0}, {7, 7, 7}, {1, 2, 3}, {0, 255}, {0, 256}, {9, 9 + math.MaxUint16}, {9, 9 + math.MaxUint16 + 1},
		{0, math.MaxUint32}, {0, math.MaxUint32 + 1}, {0, math.MaxUint64}, {math.MaxUint64},
	} {
		for _, delta := range []bool{false, true} {
			enc := appendColumn(nil, 9, delta, values)
			d := &decoder{b: enc}
			c := d.column(len(values))
			got := make([]uint64, len(values))
			decode(c, got)
			if err := d.end(); err != nil || c.id != 9 || !cmp.Equal(values, got, cmpopts.EquateEmpty()) {
				t.Errorf("%v, delta %t: %v, %v", values, delta, got, err)
			}
		}
	}
	if got := len(appendColumn(nil, 1, true, []uint64{1782907200000000, 1782907200000100, 1782907200000300})); got > 3+8+3 {
		t.Errorf("three stamps take %d bytes", got)
	}
}

// FuzzDecodeIndex: no bytes make the decoder panic, or a reader of what it took.
func FuzzDecodeIndex(f *testing.F) {
	b := goldenBlock(f)
	body := b.sealedIndex[:len(b.sealedIndex)-format.TrailerBytes]
	f.Add(body)
	f.Add(body[:50])
	filter, err := NewFilter(FilterConfig{Collections: []string{"app.*"}, DIDs: []string{"did:web:example.com"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := decodeIndex(b)
		if err != nil {
			return
		}
		var m matcher
		if m.reset(filter, x) {
			for i := m.next(0); i < x.events(); i = m.next(i + 1) {
				_ = x.plainEnd[i]
			}
		}
		x.firstAt(x.key())
		x.firstAfter(place{x.epoch, 5, 5})
		y, err := decodeIndex(appendIndex(nil, x))
		if err != nil {
			t.Fatalf("what was decoded does not decode again: %v", err)
		}
		if diff := cmp.Diff(x, y, compareIndex); diff != "" {
			t.Fatal(diff)
		}
	})
}

type copyCompressor struct{}

func (copyCompressor) Append(dst, src []byte) []byte { return append(dst, src...) }
