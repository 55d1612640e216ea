package replay

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"millrace/dict"
	"millrace/replay/internal/format"
	"millrace/translate"
)

// TestSparse: few events that lie anywhere in a block come out of its zstd part, as the plain
// frames that they are. Many, and those of a collection, come out of the plain part.
func TestSparse(t *testing.T) {
	cfg := testConfig(t, vfs.NewMem(), newTestClock())
	cfg.TailBytes = 1
	opened := noteParts(&cfg)
	l := mustOpen(t, cfg)
	rng := rand.New(rand.NewPCG(8, 8))
	var all []testEvent
	var keys []int64
	for range 5 {
		tb := testBlock{epoch: 1, firstSeq: int64(len(all) + 1)}
		for n := range 512 {
			i := int64(len(all) + 1)
			e := randomEvent(rng, format.Place{Epoch: 1, Seq: i, Op: 0}, testStart.UnixMicro()+1000*i)
			e.kind, e.operation, e.collection, e.refs = translate.KindCommit, translate.OpCreate, "app.bsky.feed.like", nil
			switch n % 100 {
			case 7:
				e.did = "did:plc:rare"
			case 8:
				e.collection = "com.example.rare"
			case 9:
				e.refs = []Reference{{Source: 1, Subject: 5, Authority: 6}}
			}
			all = append(all, e)
			tb.events = append(tb.events, e)
		}
		tb.lastSeq = int64(len(all))
		keys = append(keys, tb.events[511].timeUS)
		if err := l.Append(tb.seal(t, l)); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, cfg: cfg, log: l, m: &model{blocks: []modelBlock{{testBlock: testBlock{events: all}}}}}
	var err error
	if w.dec, err = dict.NewDecoder(1<<20, cfg.Dictionaries.All()...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.dec.Close)
	plain, zstd := []format.Range{format.RangePlain}, []format.Range{format.RangeZstd}
	for _, tc := range []struct {
		name       string
		cfg        FilterConfig
		dictionary uint32
		want       []format.Range
	}{
		{"a rare DID", FilterConfig{DIDs: []string{"did:plc:rare"}}, 0, zstd},
		{"not all of a rare DID", FilterConfig{DIDs: []string{"did:plc:rare"}, MaxPayloadBytes: 320}, 0, zstd},
		{"a rare subject", FilterConfig{SubjectDIDs: []uint64{6}}, 0, zstd},
		{"a rare DID, compressed", FilterConfig{DIDs: []string{"did:plc:rare"}}, dict.BuiltIn().ID(), zstd},
		{"a rare DID, built", FilterConfig{DIDs: []string{"did:plc:rare"}}, otherDictionaryID, plain},
		{"many DIDs", FilterConfig{DIDs: []string{testDID(1), testDID(2), testDID(3)}}, 0, plain},
		{"a rare collection", FilterConfig{Collections: []string{"com.example.rare"}}, 0, plain},
	} {
		for _, bytes := range []int{1, 1000, 1 << 20} {
			opened.forget()
			rc := ReaderConfig{Cursor: TimeCursor(0), Filter: must(NewFilter(tc.cfg)), Dictionary: tc.dictionary, MaxChunkBytes: bytes}
			if diff := cmp.Diff(w.render(w.m.items(), rc, tc.cfg), w.drain(mustRead(t, l, rc), rc)); diff != "" {
				t.Fatalf("%s: -want +got\n%s", tc.name, diff)
			}
			waitReadAhead(l)
			for _, key := range keys[:4] { // the last is in the tail
				if got := opened.of(key); !slices.Equal(got, tc.want) {
					t.Errorf("%s: of block %d it opened %v, want %v", tc.name, key, got, tc.want)
				}
			}
		}
	}
}

// TestSparseBroken: an event whose compressed frame is another, or is no frame, is damage.
func TestSparseBroken(t *testing.T) {
	reg := testRegistry(t)
	enc, err := reg.Encoder(dict.BuiltIn().ID())
	if err != nil {
		t.Fatal(err)
	}
	dec, err := reg.Decoder(dict.BuiltIn().ID())
	if err != nil {
		t.Fatal(err)
	}
	frame := format.AppendCompressed(nil, enc, []byte(`{"a":"b"}`))
	size := len(`{"a":"b"}`) + 2
	room := make([]byte, 2*size)
	if err := plainFrame(room[:0:size], frame, size, dec); err != nil || string(room[2:size]) != `{"a":"b"}` {
		t.Fatalf("%q, %v", room, err)
	}
	for name, err := range map[string]error{
		"longer":   plainFrame(room[:0:size-1], frame, size-1, dec),
		"shorter":  plainFrame(room[:0:size+1], frame, size+1, dec),
		"no frame": plainFrame(room[:0:size], append([]byte{0x82, 4}, "none"...), size, dec),
	} {
		if err == nil || name == "no frame" && !errors.Is(err, zstd.ErrMagicMismatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
