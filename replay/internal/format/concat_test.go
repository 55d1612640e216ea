package format

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// sealEvents returns the block of the events, with frames from firstSeq to lastSeq.
func sealEvents(t testing.TB, events []testEvent, firstSeq, lastSeq int64) SealedBlock {
	t.Helper()
	s := NewSealer(events[0].Epoch, fakeCompressor{}, 5, len(events), 100)
	for _, e := range events {
		if err := s.Add(e.event()); err != nil {
			t.Fatal(err)
		}
	}
	b, err := s.Finish(firstSeq, lastSeq, 0)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestConcatEqualsSeal: concatenated blocks are the block that all their events would have been
// sealed to, byte for byte in every value.
func TestConcatEqualsSeal(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 50 {
		var whole []testEvent
		var parts []BlockEvents
		seq, us := int64(0), int64(1782907200000000)
		for range 1 + rng.IntN(6) {
			first := len(whole)
			for range 1 + rng.IntN(20) {
				seq++
				us += int64(1 + rng.IntN(1000))
				e := randomEvent(rng, Place{1, seq, 0}, us)
				if rng.IntN(2) == 0 && len(parts)%2 == 0 {
					e.didUID, e.uriUID = 0, 0
				}
				if rng.IntN(3) > 0 && len(parts)%3 > 0 {
					e.refs, e.repeated = randomReferences(rng)
				}
				whole = append(whole, e)
			}
			parts = append(parts, sealEvents(t, whole[first:], int64(first+1), seq).BlockEvents)
		}
		want, got := sealEvents(t, whole, 1, seq), Concat(parts, 0)
		for name, p := range map[string][2][]byte{
			"index":      {want.Values.Index, got.Values.Index},
			"slim index": {want.Values.SlimIndex, got.Values.SlimIndex},
			"plain":      {slices.Concat(want.Values.Plain...), slices.Concat(got.Values.Plain...)},
			"zstd":       {want.Values.Zstd, got.Values.Zstd},
			"references": {want.Values.References, got.Values.References},
		} {
			if !bytes.Equal(p[0], p[1]) {
				t.Fatalf("seed %d: %s of %d blocks is not what sealing makes", seed, name, len(parts))
			}
		}
		if want.Values.Bytes() != got.Values.Bytes() {
			t.Fatalf("seed %d: %d bytes, want %d", seed, got.Values.Bytes(), want.Values.Bytes())
		}
		if diff := cmp.Diff(want.Index, got.Index, compareIndex); diff != "" {
			t.Fatalf("seed %d: -sealed +concatenated\n%s", seed, diff)
		}
	}
}
