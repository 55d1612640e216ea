package dict

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// TestHeaders: the header of each size and dictionary is as another implementation reads it, and in
// no more bytes than the format needs.
func TestHeaders(t *testing.T) {
	var sizes int
	for size, sizeBytes := range map[uint64]int{0: 1, 1: 1, 255: 1, 256: 2, 1<<16 + 255: 2, 1<<16 + 256: 4, 1 << 17: 4, 1<<17 + 1: 4, 1<<32 - 1: 4, 1 << 32: 8} {
		for id, idBytes := range map[uint32]int{0: 0, 1: 1, 255: 1, 256: 2, 1<<16 - 1: 2, 1 << 16: 4, MaxPrivateID: 4} {
			frame := appendHeader([]byte("before"), int(size), id)
			var h zstd.Header
			if err := h.Decode(frame[len("before"):]); err != nil {
				t.Fatal(err)
			}
			window := 0
			if size > 1<<17 {
				window = 1
			}
			if !h.HasFCS || h.FrameContentSize != size || h.DictionaryID != id || h.SingleSegment != (window == 0) || h.HasCheckSum ||
				h.WindowSize != uint64(window)<<17 || !bytes.HasPrefix(frame, []byte("before")) {
				t.Errorf("%d bytes, dictionary %d: %+v", size, id, h)
			}
			if got, want := h.HeaderSize, 5+window+idBytes+sizeBytes; got != want || len(frame) != len("before")+want {
				t.Errorf("%d bytes, dictionary %d: header of %d, not %d", size, id, got, want)
			}
			sizes++
		}
	}
	if sizes != 70 {
		t.Errorf("%d", sizes)
	}
	for n, blocks := range map[int]int{0: 1, 1: 1, maxBlockBytes: 1, maxBlockBytes + 1: 2, 3 * maxBlockBytes: 3} {
		header := len(appendHeader(nil, n, 9))
		if got := len(appendStored(nil, make([]byte, n), 9)); got != header+n+3*blocks || got > maxCompressedLen(n) {
			t.Errorf("%d bytes in a frame of %d", n, got)
		}
	}
}

// TestClosedRegistry: the coders of a registry hold no memory after it is closed. An encoder then
// stores the content uncompressed. A decoder returns an error that names the dictionary.
func TestClosedRegistry(t *testing.T) {
	d, other := withID(t, 40_000), withID(t, 40_001)
	r, err := NewRegistry(d, other)
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Encoder(40_000)
	if err != nil {
		t.Fatal(err)
	}
	dec, err := r.Decoder(40_000)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := r.Decoder(40_000); err != nil || again != dec {
		t.Errorf("the decoder is not shared: %v", err)
	}
	// It decodes up to a bound, and no more.
	for _, n := range []int{maxShared, maxShared + 1} {
		frame := append(appendHeader(nil, n, 40_000), bytes.Repeat([]byte{0x02, 0x00, 0x10, 'a'}, n/maxBlockBytes)...)
		frame = append(frame, byte(n%maxBlockBytes)<<3|3, 0, 0, 'a')
		if got, err := dec.Append(nil, frame); errors.Is(err, zstd.ErrDecoderSizeExceeded) != (n > maxShared) || err == nil && len(got) != n {
			t.Errorf("%d bytes: %d, %v", n, len(got), err)
		}
	}
	compressed := len(e.Append(nil, []byte(testEvent)))
	r.Close()
	if got := len(e.Append(nil, []byte(testEvent))); Libzstd && (got <= len(testEvent) || compressed > len(testEvent)/2) {
		t.Errorf("compressed to %d, and to %d after the registry was closed", compressed, got)
	}
	for _, id := range []uint32{40_000, 40_001, 7} {
		_, encErr := r.Encoder(id)
		_, decErr := r.Decoder(id)
		for _, err := range []error{encErr, decErr} {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprint(id)) || errors.Is(err, errUnknownDictionary) != (id == 7) {
				t.Errorf("%d: %v", id, err)
			}
		}
	}
	changed := bytes.Clone(d.Bytes())
	changed[len(changed)-1]++
	twin, err := Parse(changed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewRegistry(other, d, twin); err == nil {
		t.Error("a registry of two dictionaries with one ID")
	}
}

// TestTryTrainer: a setting is judged by the dictionary that it makes of some events, on the
// others.
func TestTryTrainer(t *testing.T) {
	check := madeEvents(250, 20)
	fails := errors.New("the trainer's own")
	made := func(raw []byte, err error) trainer {
		return trainer{"made", func(events [][]byte, maxBytes int) ([]byte, error) {
			if len(events) != 1 || maxBytes != 4096 {
				t.Errorf("trained on %d events to %d bytes", len(events), maxBytes)
			}
			return raw, err
		}}
	}
	if _, _, err := tryTrainer(made(nil, fails), 4096, check[:1], check); !errors.Is(err, fails) {
		t.Errorf("%v", err)
	}
	if _, _, err := tryTrainer(made([]byte("no dictionary"), nil), 4096, check[:1], check); !errors.Is(err, errNotDictionary) {
		t.Errorf("%v", err)
	}
	raw := BuiltIn().Bytes()
	size, ratio, err := tryTrainer(made(raw, nil), 4096, check[:1], check)
	e, encErr := NewEncoder(BuiltIn())
	if encErr != nil {
		t.Fatal(encErr)
	}
	defer e.Close()
	plain, compressed := 0, 0
	for _, event := range check {
		plain += len(event)
		compressed += len(e.Append(nil, event))
	}
	if want := float64(compressed) / float64(plain); size != len(raw) || ratio != want || err != nil {
		t.Errorf("%d bytes, ratio %v, %v; want %d, %v", size, ratio, err, len(raw), want)
	}
	began := time.Now()
	_, perEvent := Measure(e, check, time.Nanosecond)
	if took := time.Since(began); perEvent <= 0 || perEvent*time.Duration(len(check)) > took {
		t.Errorf("%v for each of %d events in %v", perEvent, len(check), took)
	}
	if ratio, perEvent := Measure(e, check, 0); perEvent != 0 || ratio != float64(compressed)/float64(plain) {
		t.Errorf("untimed: ratio %v, %v", ratio, perEvent)
	}
}

// TestTrainSteps: each setting is tried once, in order, and reported with its result on the authors
// kept for it. The dictionary has the ID and at most the bytes that were asked for.
func TestTrainSteps(t *testing.T) {
	events := madeEvents(minTrainEvents, 20)
	fit, check := SplitByAuthor(events, checkPercent, "settings")
	var steps []TrainStep
	d, err := Train(t.Context(), TrainConfig{Events: events, MaxBytes: MinTrainBytes, ID: 77, Progress: func(s TrainStep) { steps = append(steps, s) }})
	if err != nil {
		t.Fatal(err)
	}
	if d.ID() != 77 || len(d.Bytes()) > MinTrainBytes {
		t.Errorf("ID %d, %d bytes", d.ID(), len(d.Bytes()))
	}
	ts := trainers()
	// one of them depends on Go's random order of maps
	random := func(setting string) bool { return strings.HasPrefix(setting, "klauspost") }
	for i, s := range steps {
		size, ratio, err := tryTrainer(ts[i], MinTrainBytes, fit, check)
		tolerance := 0.0
		if random(s.Setting) {
			tolerance = 0.05
		}
		same := math.Abs(float64(s.Bytes-size)) <= tolerance*float64(size) && math.Abs(s.Ratio-ratio) <= tolerance*ratio
		if s.Step != i+1 || s.Steps != len(ts) || s.Setting != ts[i].setting || !same || (s.Err == nil) != (err == nil) {
			t.Errorf("step %d: %+v, want %d bytes, ratio %v, %v", i, s, size, ratio, err)
		}
	}
	if len(steps) != len(ts) {
		t.Errorf("%d steps", len(steps))
	}
	steps = slices.DeleteFunc(steps, func(s TrainStep) bool { return s.Err != nil })
	best := slices.MinFunc(steps, func(a, b TrainStep) int { return cmp.Compare(a.Ratio, b.Ratio) })
	raw, err := ts[best.Step-1].train(events, MinTrainBytes)
	if err != nil {
		t.Fatal(err)
	}
	want, err := WithID(raw, 77)
	if err != nil {
		t.Fatal(err)
	}
	same := bytes.Equal(d.Bytes(), want.Bytes())
	if random(best.Setting) {
		same = math.Abs(float64(len(d.Bytes())-len(want.Bytes()))) <= 0.05*float64(len(want.Bytes()))
	}
	if !same {
		t.Errorf("the dictionary is not what %s makes of all events", best.Setting)
	}
	for percent, want := range map[int]int{0: 0, 100: len(events)} {
		if train, held := SplitByAuthor(events, percent, ""); len(held) != want || len(train) != len(events)-want {
			t.Errorf("%d %%: %d and %d", percent, len(train), len(held))
		}
	}
	if got := string(author([]byte(`{"time_us":1}`))); got != `{"time_us":1}` {
		t.Errorf("an event that begins otherwise is of %q", got)
	}
}
