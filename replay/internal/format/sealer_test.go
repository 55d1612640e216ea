package format

import (
	"strings"
	"testing"

	"millrace/consume/relaysim/testwait"
	"millrace/translate"
)

// growCompressor makes frames that are one KiB larger than their content.
type growCompressor struct{}

func (growCompressor) Append(dst, src []byte) []byte {
	return append(append(dst, make([]byte, 1<<10)...), src...)
}

// TestSealerOrder: stamps are positive and ascend, places ascend, and frames are those said.
func TestSealerOrder(t *testing.T) {
	for _, tc := range []struct {
		name         string
		first, next  Place
		stamp, later int64
		frames       [2]int64
		ok           bool
	}{
		{"least", Place{1, 5, 0}, Place{1, 5, 1}, 1, 2, [2]int64{5, 5}, true},
		{"stamp 0", Place{1, 5, 0}, Place{1, 5, 1}, 0, 2, [2]int64{5, 5}, false},
		{"equal stamps", Place{1, 5, 0}, Place{1, 5, 1}, 2, 2, [2]int64{5, 5}, false},
		{"equal places", Place{1, 5, 1}, Place{1, 5, 1}, 1, 2, [2]int64{5, 5}, false},
		{"lower op", Place{1, 5, 1}, Place{1, 5, 0}, 1, 2, [2]int64{5, 5}, false},
		{"lower seq", Place{1, 6, 0}, Place{1, 5, 1}, 1, 2, [2]int64{5, 6}, false},
		{"more frames", Place{1, 5, 0}, Place{1, 6, 0}, 1, 2, [2]int64{4, 7}, true},
		{"before its frames", Place{1, 5, 0}, Place{1, 6, 0}, 1, 2, [2]int64{6, 6}, false},
		{"behind its frames", Place{1, 5, 0}, Place{1, 6, 0}, 1, 2, [2]int64{5, 5}, false},
	} {
		s := NewSealer(1, fakeCompressor{}, 1, 2, 100)
		add := func(p Place, us int64) error {
			return s.Add(Event{Place: p, TimeUS: us, Kind: translate.KindIdentity, DID: []byte("did:web:example.com"), Payload: []byte("{}")})
		}
		err := add(tc.first, tc.stamp)
		if err == nil {
			err = add(tc.next, tc.later)
		}
		if err == nil {
			_, err = s.Finish(tc.frames[0], tc.frames[1], 0)
		}
		if (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestBlockLimits: a block takes what its exported limits say and not more.
func TestBlockLimits(t *testing.T) {
	add := func(s *Sealer, n int, payload string) error {
		return s.Add(Event{Place: Place{1, int64(n + 1), 0}, TimeUS: int64(n + 1), Kind: translate.KindIdentity,
			DID: []byte("did:web:example.com"), Payload: []byte(payload)})
	}
	s := NewSealer(1, fakeCompressor{}, 1, MaxBlockEvents, 4*MaxBlockEvents)
	for n := range MaxBlockEvents {
		if err := add(s, n, "{}"); err != nil {
			t.Fatalf("event %d: %v", n, err)
		}
	}
	if err := add(s, MaxBlockEvents, "{}"); err == nil || !strings.Contains(err.Error(), "events") {
		t.Errorf("one event more: %v", err)
	}
	if b, err := s.Finish(1, MaxBlockEvents, 0); err != nil || b.Index.Events() != MaxBlockEvents {
		t.Errorf("a full block: %v", err)
	}
	if testwait.Race {
		return // the detector would make what follows real memory
	}
	full := make([]byte, MaxBlockBytes+4<<10) // only its ends are ever written to
	text := strings.Repeat("x", 100)
	for _, tc := range []struct {
		name        string
		plain, zstd int // bytes free
		enc         Compressor
		ok          bool
	}{
		{"just enough plain", 100 + MaxFrameHeaderBytes, MaxBlockBytes, fakeCompressor{}, true},
		{"plain a byte short", 99 + MaxFrameHeaderBytes, MaxBlockBytes, fakeCompressor{}, false},
		{"just enough zstd", MaxBlockBytes, 1<<10 + 100 + 4, growCompressor{}, true},
		{"zstd a byte short", MaxBlockBytes, 1<<10 + 100 + 3, growCompressor{}, false},
	} {
		s := NewSealer(1, tc.enc, 1, 1, 100)
		s.plain = full[:MaxBlockBytes-tc.plain]
		s.sealScratch = &sealScratch{zstd: full[:MaxBlockBytes-tc.zstd]}
		if err := add(s, 0, text); (err == nil) != tc.ok {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
