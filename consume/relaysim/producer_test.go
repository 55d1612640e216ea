package relaysim

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"
)

// TestTruthComesFirst: what cannot be written down is not sent.
func TestTruthComesFirst(t *testing.T) {
	p := startRelay(t, "--wait-for-consumer").producer
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full here: ", err)
	}
	defer full.Close()
	var failed error
	var next int64
	if err := p.do(t.Context(), func() error {
		truth := p.truth
		p.truth = &truthFile{f: full}
		_, failed = p.produce(1)
		next = p.now.win.next
		p.truth = truth
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if failed == nil || next != 0 {
		t.Errorf("error %v, %d messages in the window", failed, next)
	}
}

// TestClock: TIDs are valid and rise, also when many fall on one microsecond and when time stands
// still or goes back.
func TestClock(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	step := time.Duration(0)
	c := &clock{now: func() time.Time { now = now.Add(step); return now }}
	last := ""
	for i := range 5000 {
		switch i {
		case 1000:
			step = time.Microsecond
		case 2000:
			step = -time.Hour
		case 2001:
			step = time.Millisecond
		}
		stamp := string(c.tick())
		if _, err := syntax.ParseDatetime(stamp); err != nil {
			t.Fatal(err)
		}
		if want := now.Format("2006-01-02T15:04:05.000Z"); stamp != want {
			t.Fatalf("time %s, want %s", stamp, want)
		}
		for range 1 + i%1500 {
			id := c.tid()
			if _, err := syntax.ParseTID(string(id[:])); err != nil {
				t.Fatal(err)
			}
			if string(id[:]) <= last {
				t.Fatalf("TID %s after %s", id, last)
			}
			last = string(id[:])
		}
	}
}

// TestPopulation: valid DIDs, all different, the first ones drawn far more often.
func TestPopulation(t *testing.T) {
	p := newPopulation(8, 10_000, newRand(8, "test"))
	seen := make(map[string]bool)
	for i := range p.count {
		did := p.did(i)
		if _, err := syntax.ParseDID(did); err != nil || len(did) != didLen || seen[did] {
			t.Fatalf("DID %d is %s (%v), seen before: %v", i, did, err, seen[did])
		}
		seen[did] = true
	}
	drawn := make([]int, p.count)
	for range 100_000 {
		drawn[p.draw()]++
	}
	first := 0
	for _, n := range drawn[:100] {
		first += n
	}
	some := p.count - len(slices.DeleteFunc(drawn, func(n int) bool { return n > 0 }))
	if first < 20_000 || first > 80_000 || some < 5000 {
		t.Errorf("the first 100 of 10000 DIDs got %d of 100000 draws; %d were drawn at all", first, some)
	}
}

// TestCaptureErrors: files that are cut short or no captures.
func TestCaptureErrors(t *testing.T) {
	dir := t.TempDir()
	for content, frames := range map[string]int{
		"":                               0,
		"\x02\x00\x00\x00ab":             1,
		"\x02\x00\x00\x00ab\x00\x00":     -1,
		"\x03\x00\x00\x00ab":             -1,
		"\xff\xff\xff\xffab":             -1,
		"\x28\xb5\x2f\xfdnot really zst": -1,
	} {
		name := filepath.Join(dir, "capture")
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readCapture(name)
		if frames < 0 && err == nil || frames >= 0 && (err != nil || len(got) != frames) {
			t.Errorf("%q: %d frames, %v", content, len(got), err)
		}
	}
}

// TestScannerSurvives: no input makes the scanner panic or run on.
func TestScannerSurvives(t *testing.T) {
	frame := originals(testWorld(t, 2, 1, false))[0]
	rng := newRand(2, "noise")
	for cut := range frame {
		if _, err := newTemplate(frame[:cut], true); err == nil {
			t.Fatalf("%d of %d bytes make a template", cut, len(frame))
		}
	}
	for range 20_000 {
		noise := slices.Clone(frame)
		for range 1 + rng.IntN(4) {
			noise[rng.IntN(len(noise))] = byte(rng.Uint32())
		}
		_, _ = newTemplate(noise, false)
	}
}
