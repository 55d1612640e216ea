package dict

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// madeEvents returns n likes by some authors, with random DIDs, keys and CIDs.
func madeEvents(n, authors int) [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	letters := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abcdefghijklmnopqrstuvwxyz234567"[rng.IntN(32)]
		}
		return string(b)
	}
	dids := make([]string, authors)
	for i := range dids {
		dids[i] = letters(24)
	}
	var events [][]byte
	for range n {
		events = append(events, fmt.Appendf(nil,
			`{"did":"did:plc:%s","time_us":1783175888%06d,"kind":"commit","commit":{"rev":"3mp%s","operation":"create","collection":"app.bsky.feed.like","rkey":"3mp%s","record":{"$type":"app.bsky.feed.like","createdAt":"2026-07-04T14:38:08.999Z","subject":{"cid":"bafyrei%s","uri":"at://did:plc:%s/app.bsky.feed.post/3mp%s"}},"cid":"bafyrei%s"}}`,
			dids[rng.IntN(authors)], rng.IntN(1e6), letters(10), letters(10), letters(52), letters(24), letters(10), letters(52)))
	}
	return events
}

func TestTrain(t *testing.T) {
	events := madeEvents(1000, 100)
	var steps []TrainStep
	d, err := Train(t.Context(), TrainConfig{Events: events, MaxBytes: 8 << 10, Progress: func(s TrainStep) { steps = append(steps, s) }})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Bytes()) > 8<<10 {
		t.Errorf("%d bytes", len(d.Bytes()))
	}
	if d.ID() < MinPrivateID || d.ID() >= 1<<16 || d.ID() == BuiltInID {
		t.Errorf("ID %d", d.ID())
	}
	if len(steps) != len(trainers()) || steps[len(steps)-1].Step != len(steps) {
		t.Errorf("%d steps reported", len(steps))
	}
	e, err := NewEncoder(d)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	plain, err := NewEncoder(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	_, held := SplitByAuthor(events, 25, "")
	with, _ := Measure(e, held, 0)
	without, _ := Measure(plain, held, 0)
	if with > 0.8*without || with == 0 {
		t.Errorf("ratio %.3f, %.3f without dictionary", with, without)
	}
}

// TestPickTrainer: the setting that is reported to compress best is the one taken.
func TestPickTrainer(t *testing.T) {
	fit, check := SplitByAuthor(madeEvents(600, 60), 25, "")
	var steps []TrainStep
	got, err := pickTrainer(t.Context(), TrainConfig{MaxBytes: 4 << 10, Progress: func(s TrainStep) { steps = append(steps, s) }}, fit, check)
	if err != nil {
		t.Fatal(err)
	}
	best := slices.MinFunc(steps, func(a, b TrainStep) int { return cmp.Compare(a.Ratio, b.Ratio) })
	if got.setting != best.Setting {
		t.Errorf("took %s, but %s compresses best: %+v", got.setting, best.Setting, steps)
	}
}

func TestTrainRefuses(t *testing.T) {
	if _, err := Train(t.Context(), TrainConfig{MaxBytes: MinTrainBytes, Events: madeEvents(minTrainEvents-1, 50)}); !errors.Is(err, errTooFewEvents) {
		t.Errorf("few events: %v", err)
	}
	if _, err := Train(t.Context(), TrainConfig{MaxBytes: MinTrainBytes, Events: madeEvents(1000, 1)}); !errors.Is(err, errTooFewEvents) {
		t.Errorf("one author: %v", err)
	}
	for _, size := range []int{MinTrainBytes - 1, MaxBytes + 1, 0, -1} {
		if _, err := Train(t.Context(), TrainConfig{Events: madeEvents(1000, 50), MaxBytes: size}); err == nil {
			t.Errorf("size %d is taken", size)
		}
	}
	for n, want := range map[int]string{1024: errTooFewEvents.Error(), 1025: "take fewer"} {
		if _, err := Train(t.Context(), TrainConfig{MaxBytes: MinTrainBytes, Events: slices.Repeat([][]byte{make([]byte, 1<<20)}, n)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d MiB: %v", n, err)
		}
	}
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stopped)
	if _, err := Train(ctx, TrainConfig{MaxBytes: MinTrainBytes, Events: madeEvents(1000, 50)}); !errors.Is(err, stopped) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestTrainOnNothing: events too short to learn from give an error or a dictionary that works, as
// the trainer sees fit, but no crash.
func TestTrainOnNothing(t *testing.T) {
	var events [][]byte
	for i := range 1000 {
		events = append(events, fmt.Appendf(nil, "%c", i%64+'!'))
	}
	d, err := Train(t.Context(), TrainConfig{Events: events, MaxBytes: 4096})
	if err != nil {
		if !errors.Is(err, errTooFewEvents) {
			t.Errorf("error %v", err)
		}
		return
	}
	dec, err := NewDecoder(1<<20, d)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	for name, e := range encoders(t, d) {
		if got, err := dec.Append(nil, e.Append(nil, []byte(testEvent))); err != nil || string(got) != testEvent {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestWithID(t *testing.T) {
	raw := BuiltIn().Bytes()
	if d, err := WithID(raw, 123_456_789); err != nil || d.ID() != 123_456_789 || !bytes.Equal(d.Content(), BuiltIn().Content()) {
		t.Errorf("chosen ID: %v", err)
	}
	// A derived ID is a function of the content, small, private, and not one of ours.
	seen, above := make(map[uint32]bool), 0
	for i := range 300 {
		other := bytes.Clone(raw)
		other[len(other)-1], other[len(other)-2] = byte(i), byte(i>>8)
		d, err := WithID(other, 0)
		if err != nil {
			t.Fatal(err)
		}
		if id := d.ID(); id < MinPrivateID || id >= 1<<16 || id >= firstBuiltInID && id <= lastBuiltInID {
			t.Errorf("derived ID %d", id)
		}
		again, err := WithID(d.Bytes(), 0)
		if err != nil || again.ID() != d.ID() {
			t.Errorf("derived again: %v", err)
		}
		if seen[d.ID()] = true; d.ID() > lastBuiltInID {
			above++
		}
	}
	if above < 30 {
		t.Errorf("%d of 300 IDs are above those that are built in", above)
	}
	if len(seen) < 280 {
		t.Errorf("300 dictionaries have %d IDs", len(seen))
	}
	if _, err := WithID(nil, 0); !errors.Is(err, errNotDictionary) {
		t.Errorf("no bytes: %v", err)
	}
}

func TestSplitByAuthor(t *testing.T) {
	events := madeEvents(2000, 200)
	train, held := SplitByAuthor(events, 25, "")
	if len(train)+len(held) != len(events) {
		t.Fatalf("%d and %d events of %d", len(train), len(held), len(events))
	}
	if share := float64(len(held)) / float64(len(events)); share < 0.15 || share > 0.35 {
		t.Errorf("%.2f of the events are held out", share)
	}
	authors := make(map[string]bool)
	for _, e := range train {
		authors[string(author(e))] = true
	}
	for _, e := range held {
		if authors[string(author(e))] {
			t.Fatalf("%s is on both sides", author(e))
		}
	}
	// Another salt splits either side again, in about the same proportion.
	again, heldAgain := SplitByAuthor(held, 50, "other")
	if len(again) < len(held)/5 || len(heldAgain) < len(held)/5 {
		t.Errorf("%d events are split again into %d and %d", len(held), len(again), len(heldAgain))
	}
	if got := string(author([]byte(testEvent))); got != "did:plc:abcdefghijklmnopqrstuvwx" {
		t.Errorf("author %q", got)
	}
}

func TestMeasure(t *testing.T) {
	e, err := NewEncoder(BuiltIn())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	events := [][]byte{[]byte(testEvent), []byte("x")}
	ratio, perEvent := Measure(e, events, time.Millisecond)
	want := float64(len(e.Append(nil, events[0]))+len(e.Append(nil, events[1]))) / float64(len(testEvent)+1)
	if ratio != want || perEvent <= 0 {
		t.Errorf("ratio %v, want %v; %v", ratio, want, perEvent)
	}
	if ratio, perEvent := Measure(e, nil, time.Hour); ratio != 1 || perEvent != 0 {
		t.Errorf("no events: ratio %v, %v", ratio, perEvent)
	}
}
