package format

import (
	"bytes"
	"encoding/hex"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/translate"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// fakeCompressor makes frames that do not depend on which zstd is built in.
type fakeCompressor struct{}

func (fakeCompressor) Append(dst, src []byte) []byte {
	return append(append(dst, "zstd:"...), src[:len(src)/2]...)
}

func goldenBlock(t testing.TB) SealedBlock {
	t.Helper()
	s := NewSealer(3, fakeCompressor{}, 51001, 4, 100)
	for _, e := range []testEvent{
		{Place{3, 31527015321, 0}, 1782907200000001, translate.KindCommit, translate.OpCreate, "app.bsky.feed.like",
			"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", 4611686018427387905, 9223372036854775809, `{"did":"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa","n":1}`, nil, false, 0},
		{Place{3, 31527015321, 2}, 1782907200000002, translate.KindCommit, translate.OpDelete, "app.bsky.feed.post",
			"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", 4611686018427387905, 1, `{"did":"did:plc:aaaaaaaaaaaaaaaaaaaaaaaa","n":2}`, nil, false, 0},
		{Place{3, 31527015325, 0}, 1782907200001000, translate.KindIdentity, translate.OpNone, "",
			"did:web:example.com", 7, 0, `{"did":"did:web:example.com","kind":"identity","x":"` + strings.Repeat("y", 200) + `"}`, nil, false, 0},
		{Place{3, 31527015330, 0}, 1782907200300000, translate.KindCommit, translate.OpUpdate, "app.bsky.feed.like",
			"did:web:example.com", 7, 8, `{"did":"did:web:example.com","n":4}`, nil, false, 0},
	} {
		if err := s.Add(e.event()); err != nil {
			t.Fatal(err)
		}
	}
	b, err := s.Finish(31527015320, 31527015330, 0)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGolden pins every format that is on disk. If it fails, logs in the field no longer open. Undo
// the change, or raise Version and let OpenTrailer, replay.Open and the decoders, which take
// Version only, take the old one, too.
func TestGolden(t *testing.T) {
	b := goldenBlock(t)
	st := State{Epoch: 3, Seq: 31527015330, TimeUS: 1782907200300000,
		Floor:  Point{1782900000000000, Place{2, 77, 5}},
		Oldest: Point{1782900000000009, Place{3, 1, 0}},
		Newest: Point{1782907200300000, Place{3, 31527015330, 1}},
		Total:  Totals{1000, 512000, 1 << 40}, Trimmed: Totals{10, 5000, 1 << 30},
		Previous: EpochEnd{2, 90}}
	tag := StreamTag("relay.example.com", 3)
	gap := &Gap{From: translate.Position{Stream: StreamTag("relay.example.com", 2), Seq: 77, Op: 5}, To: translate.Position{Stream: tag, Seq: 1}, TimeUS: 1782900000000005}
	var out strings.Builder
	add := func(name string, key, value []byte) {
		out.WriteString(name + "\nkey " + hex.EncodeToString(key) + "\n" + hex.Dump(value) + "\n")
	}
	us := b.Index.Key()
	add("index", TimeKey(RangeIndex, us), b.Values.Index)
	for s, value := range b.Values.Plain {
		add("plain", SubstreamKey(us, s), value)
	}
	add("zstd", TimeKey(RangeZstd, us), b.Values.Zstd)
	add("slim_index", TimeKey(RangeSlimIndex, us), b.Values.SlimIndex)
	add("seq", SeqKey(3, 31527015330), AppendTrailer(AppendBlockPointer(nil, BlockPointer{us, 31527015330, 1, st.Total}), RangeSeq, 31527015330))
	add("gap", TimeKey(RangeGap, gap.TimeUS), AppendTrailer(AppendGap(nil, gap), RangeGap, gap.TimeUS))
	add("state", MetaKey(MetaState), AppendTrailer(AppendState(nil, &st), RangeMeta, 0))
	add("streams", MetaKey(MetaStreams), AppendTrailer(AppendStreams(nil, []Stream{{Epoch: 1, Relay: "bsky.network"}, {Epoch: 3, Relay: "relay.example.com"}}), RangeMeta, 0))
	bases := []Stream{{Epoch: 1}, {Epoch: 3, SeqBase: 99 << V2OpBits}}
	add("seq_bases", MetaKey(MetaSeqBases), AppendTrailer(AppendSeqBases(nil, bases), RangeMeta, 0))
	uses := []Use{{ID: 51001, SinceUS: 1782900000000000, ThroughUS: 1782900000000009}, {ID: 77_777, SinceUS: 1782907200000000, FromUS: 1782900000000009}}
	add("dictionaries", MetaKey(MetaDictionaries), AppendTrailer(AppendUses(nil, uses), RangeMeta, 0))
	add("dictionary", DictionaryKey(51001), nil)
	span := NewSpanBuilder(3, FingerprintKey{1, 2})
	span.Add(b.BlockEvents, b.Values.Bytes())
	for _, v := range span.Finish() {
		add(Range(v.Key[0]).String(), v.Key, v.Value)
	}
	out.WriteString("stream of bsky.network, epoch 1: " + StreamTag("bsky.network", 1).String() + "\n")
	if StreamTag("BSKY.Network", 1) != StreamTag("bsky.network", 1) {
		t.Error("the case of a host matters")
	}
	compareGolden(t, "formats.golden", out.String())
	// What was written can be read.
	got := []Stream{{Epoch: 1}, {Epoch: 3}, {Epoch: 4}}
	if known, err := DecodeSeqBases(AppendSeqBases(nil, bases), got); err != nil || known != 2 || !slices.Equal(got[:2], bases) {
		t.Errorf("bases become %+v, %v", got, err)
	}
	if _, err := DecodeSeqBases(AppendSeqBases(nil, []Stream{bases[1], bases[0]}), got); err == nil {
		t.Error("bases that fall are taken")
	}
	if got, err := DecodeUses(AppendUses(nil, uses)); err != nil || !slices.Equal(got, uses) {
		t.Errorf("dictionaries become %+v, %v", got, err)
	}
	if _, err := DecodeUses(AppendUses(nil, []Use{uses[0], uses[0]})); err == nil {
		t.Error("a dictionary that is there twice is taken")
	}
	if _, err := DecodeUses(AppendUses(nil, uses)[1:]); err == nil {
		t.Error("cut dictionaries are taken")
	}
	if got, err := DecodeState(AppendState(nil, &st)); err != nil || got != st {
		t.Errorf("state becomes %+v, %v", got, err)
	}
	if got, err := OpenGap(AppendTrailer(AppendGap(nil, gap), RangeGap, gap.TimeUS), gap.TimeUS); err != nil || got != *gap {
		t.Errorf("gap becomes %+v, %v", got, err)
	}
}

var compareIndex = cmp.Options{
	cmp.AllowUnexported(Index{}, SlimIndex{}, NameTable{}),
	cmpopts.EquateEmpty(),
}

func TestIndexRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	for n := 1; n < 600; n = n*3/2 + 1 {
		s := NewSealer(2, fakeCompressor{}, 5, n, 100)
		us, seq := int64(1782907200000000), int64(1)
		for range n {
			us += 1 + int64(rng.Uint64()>>(20+rng.IntN(44)))>>4
			seq += int64(rng.Uint64() >> (32 + rng.IntN(32)))
			seq++
			if err := s.Add(randomEvent(rng, Place{2, seq, rng.Uint32() >> rng.IntN(32)}, us).event()); err != nil {
				t.Fatal(err)
			}
		}
		b, err := s.Finish(1, seq, 0)
		if err != nil {
			t.Fatal(err)
		}
		prefix := []byte("prefix")
		enc := AppendIndex(prefix, b.Index)
		if !bytes.HasPrefix(enc, prefix) {
			t.Fatal("the prefix is gone")
		}
		got, err := DecodeIndex(enc[len(prefix):])
		if err != nil {
			t.Fatal(err)
		}
		for i := range enc {
			enc[i] = 0xaa // DecodeIndex keeps nothing of it
		}
		if diff := cmp.Diff(b.Index, got, compareIndex); diff != "" {
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

// FuzzDecodeIndex: no bytes make the decoders panic, and what they take is encoded to what they
// take.
func FuzzDecodeIndex(f *testing.F) {
	b := goldenBlock(f)
	for _, value := range [][]byte{b.Values.Index, b.Values.SlimIndex} {
		body := value[:len(value)-TrailerBytes]
		f.Add(body)
		f.Add(body[:50])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if x, err := DecodeSlimIndex(b); err == nil {
			x.FirstAt(x.Key())
			x.FirstAfter(Place{x.Epoch, 5, 5})
			y, err := DecodeSlimIndex(AppendSlimIndex(nil, x))
			if err != nil {
				t.Fatalf("what was decoded does not decode again: %v", err)
			}
			if diff := cmp.Diff(x, y, compareIndex); diff != "" {
				t.Fatal(diff)
			}
		}
		x, err := DecodeIndex(b)
		if err != nil {
			return
		}
		for i := range x.Events() {
			_, _ = x.UIDs(i)
			_ = x.DIDs.At(int(x.DID[i]))
		}
		y, err := DecodeIndex(AppendIndex(nil, x))
		if err != nil {
			t.Fatalf("what was decoded does not decode again: %v", err)
		}
		if diff := cmp.Diff(x, y, compareIndex); diff != "" {
			t.Fatal(diff)
		}
	})
}
