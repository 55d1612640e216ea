package dict

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// testEvent is a like, made up, as Jetstream spells it.
const testEvent = `{"did":"did:plc:abcdefghijklmnopqrstuvwx","time_us":1783175888085434,"kind":"commit","commit":{"rev":"3mptbypluud2a","operation":"create","collection":"app.bsky.feed.like","rkey":"3mptbyplj5d2a","record":{"$type":"app.bsky.feed.like","createdAt":"2026-07-04T14:38:08.999Z","subject":{"cid":"bafyreiaaaabbbbccccddddeeeeffffgggghhhhiiiijjjjkkkkllllmmmm","uri":"at://did:plc:zyxwvutsrqponmlkjihgfedc/app.bsky.feed.post/3mpsjbtci2c2o"}},"cid":"bafyreizzzzyyyyxxxxwwwwvvvvuuuuttttssssrrrrqqqqppppoooonnnn"}}`

// corpus returns the path of a file of real data, or skips the test where there is none.
func corpus(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join("..", "..", "shared", "corpus", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the corpus of real data is not there: %v", err)
	}
	return path
}

// jetstreamDictionary returns Jetstream's dictionary, or skips the test.
func jetstreamDictionary(t testing.TB) *Dictionary {
	t.Helper()
	raw, err := os.ReadFile(corpus(t, "jetstream_v1.zdict"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// inputs are contents of all kinds: empty, tiny, around every boundary of the frame format, an
// event, incompressible, and of a relay's largest size.
func inputs() map[string][]byte {
	random := make([]byte, 6<<20)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(random)
	repeated := bytes.Repeat([]byte(testEvent), 6<<20/len(testEvent)+1)
	in := map[string][]byte{
		"event":    []byte(testEvent),
		"two":      []byte(testEvent + testEvent),
		"zeros":    make([]byte, 300_000),
		"6MiB":     repeated[:6<<20],
		"6MiB raw": random,
	}
	for _, n := range []int{0, 1, 7, 255, 256, 257, 511, 1023, 1024, 1025, 8 << 10, 1<<16 + 255, 1<<16 + 256, 1<<17 - 1, 1 << 17, 1<<17 + 1, 1 << 18, 1 << 20} {
		in[fmt.Sprintf("%d", n)] = repeated[:n]
		in[fmt.Sprintf("%d raw", n)] = random[:n]
	}
	return in
}

// encoders returns what NewEncoder returns, and an encoder in Go, which is that without cgo.
func encoders(t testing.TB, d *Dictionary) map[string]*Encoder {
	t.Helper()
	own, err := NewEncoder(d)
	if err != nil {
		t.Fatal(err)
	}
	pure, err := newPureCoder(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Close)
	return map[string]*Encoder{"own": own, "klauspost": {d: d, c: pure}}
}

// TestRoundTrip has every encoder's frames of every input and dictionary decoded by our decoder and
// by one set up as Jetstream's Go client does.
func TestRoundTrip(t *testing.T) {
	dictionaries := map[string]*Dictionary{"none": nil}
	for _, d := range Shipped() {
		dictionaries[fmt.Sprint(d.ID())] = d
	}
	if _, err := os.Stat("../../shared/corpus/jetstream_v1.zdict"); err == nil {
		dictionaries["jetstream"] = jetstreamDictionary(t)
	}
	for name, d := range dictionaries {
		var ds []*Dictionary
		jetstreamOpts := []zstd.DOption{zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(6 << 20)}
		smallOpts := []zstd.DOption{zstd.WithDecoderMaxWindow(maxWindowBytes)}
		if d != nil {
			ds = append(ds, d)
			jetstreamOpts = append(jetstreamOpts, zstd.WithDecoderDicts(d.Bytes()))
			smallOpts = append(smallOpts, zstd.WithDecoderDicts(d.Bytes()))
		}
		ours, err := NewDecoder(7<<20, ds...)
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		jetstream, err := zstd.NewReader(nil, jetstreamOpts...)
		if err != nil {
			t.Fatal(err)
		}
		defer jetstream.Close()
		small, err := zstd.NewReader(nil, smallOpts...)
		if err != nil {
			t.Fatal(err)
		}
		defer small.Close()
		for encName, e := range encoders(t, d) {
			for inName, in := range inputs() {
				if len(in) > 1<<20 && idOf(d) != BuiltInID {
					continue // the largest take long, and differ in nothing
				}
				frame := e.Append([]byte("prefix"), in)
				if !bytes.HasPrefix(frame, []byte("prefix")) {
					t.Fatalf("%s/%s/%s: the prefix is lost", name, encName, inName)
				}
				frame = frame[len("prefix"):]
				checkHeader(t, frame, d, len(in))
				if got, err := ours.Append([]byte("before"), frame); err != nil || !bytes.Equal(got, append([]byte("before"), in...)) {
					t.Errorf("%s/%s/%s: our decoder: %d bytes, error %v", name, encName, inName, len(got), err)
				}
				if got, err := jetstream.DecodeAll(frame, nil); err != nil || !bytes.Equal(got, in) {
					t.Errorf("%s/%s/%s: Jetstream's decoder: %d bytes, error %v", name, encName, inName, len(got), err)
				}
				if got, err := small.DecodeAll(frame, nil); err != nil || !bytes.Equal(got, in) {
					t.Errorf("%s/%s/%s: decoder with a window of 128 KiB: %d bytes, error %v", name, encName, inName, len(got), err)
				}
			}
		}
	}
}

// checkHeader holds a frame against the package comment.
func checkHeader(t *testing.T, frame []byte, d *Dictionary, n int) {
	t.Helper()
	var h zstd.Header
	if err := h.Decode(frame); err != nil {
		t.Fatal(err)
	}
	if !h.HasFCS || h.FrameContentSize != uint64(n) || h.DictionaryID != idOf(d) || h.HasCheckSum {
		t.Errorf("content size %d (%t) of %d, dictionary %d of %d, checksum %t", h.FrameContentSize, h.HasFCS, n, h.DictionaryID, idOf(d), h.HasCheckSum)
	}
	if h.SingleSegment != (n <= maxWindowBytes) || h.WindowSize > maxWindowBytes {
		t.Errorf("%d bytes: single segment %t, window %d", n, h.SingleSegment, h.WindowSize)
	}
	if limit := maxCompressedLen(n); len(frame) > limit {
		t.Errorf("%d bytes made a frame of %d, over the %d of maxCompressedLen", n, len(frame), limit)
	}
}

// TestAppendStored holds the frames that need no encoder against the same rules.
func TestAppendStored(t *testing.T) {
	dec, err := NewDecoder(6<<20, BuiltIn(), withID(t, 7), withID(t, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	for _, d := range []*Dictionary{nil, withID(t, 7), BuiltIn(), withID(t, 1<<20)} {
		for name, in := range inputs() {
			frame := appendStored(nil, in, idOf(d))
			checkHeader(t, frame, d, len(in))
			if got, err := dec.Append(nil, frame); err != nil || !bytes.Equal(got, in) {
				t.Errorf("%s, dictionary %d: %d bytes, error %v", name, idOf(d), len(got), err)
			}
		}
	}
}

// withID returns the built-in dictionary under another ID.
func withID(t testing.TB, id uint32) *Dictionary {
	t.Helper()
	raw := slices.Clone(BuiltIn().Bytes())
	for i := range 4 {
		raw[4+i] = byte(id >> (8 * i))
	}
	d, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestClose(t *testing.T) {
	for name, e := range encoders(t, BuiltIn()) {
		first := e.Append(nil, []byte(testEvent))
		e.Close()
		e.Close()
		dec, err := NewDecoder(1<<20, BuiltIn())
		if err != nil {
			t.Fatal(err)
		}
		defer dec.Close()
		for _, frame := range [][]byte{first, e.Append(nil, []byte(testEvent))} {
			if got, err := dec.Append(nil, frame); err != nil || string(got) != testEvent {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
	}
}

// TestConcurrent has many goroutines share an encoder and a decoder while it is closed: every frame
// must still be whole. Meant for -race.
func TestConcurrent(t *testing.T) {
	dec, err := NewDecoder(1<<20, BuiltIn())
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	for name, e := range encoders(t, BuiltIn()) {
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 50 {
					in := strings.Repeat(testEvent, i%4) + strings.Repeat("x", g*i)
					frame := e.Append(nil, []byte(in))
					if got, err := dec.Append(nil, frame); err != nil || string(got) != in {
						t.Errorf("%s: goroutine %d, round %d: %d bytes of %d, error %v", name, g, i, len(got), len(in), err)
						return
					}
					if g == 0 && i == 25 {
						e.Close()
					}
				}
			})
		}
		wg.Wait()
	}
}
