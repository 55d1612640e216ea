package format

import (
	"bytes"
	"errors"
	"testing"
)

// TestTrailer: any flipped bit, another key or another range is found.
func TestTrailer(t *testing.T) {
	sealed := AppendTrailer([]byte("some bytes"), RangePlain, 42)
	if got, err := OpenTrailer(sealed, RangePlain, 42); err != nil || string(got) != "some bytes" {
		t.Fatalf("%q, %v", got, err)
	}
	for i := range 8 * len(sealed) {
		bad := bytes.Clone(sealed)
		bad[i/8] ^= 1 << (i % 8)
		if _, err := OpenTrailer(bad, RangePlain, 42); err == nil {
			t.Errorf("bit %d flipped, nobody noticed", i)
		}
	}
	for n := range sealed {
		if _, err := OpenTrailer(sealed[:n], RangePlain, 42); err == nil {
			t.Errorf("cut to %d bytes, nobody noticed", n)
		}
	}
	if _, err := OpenTrailer(sealed, RangePlain, 43); err == nil {
		t.Error("under another key, nobody noticed")
	}
	if _, err := OpenTrailer(sealed, RangeZstd, 42); err == nil {
		t.Error("in another range, nobody noticed")
	}
	newer := append([]byte("x"), byte(RangePlain), Version+1, 0, 0)
	newer = newer[:len(newer):len(newer)]
	h := valueHash(newer, 1)
	for i := range 8 {
		newer = append(newer, byte(h>>(8*i)))
	}
	if _, err := OpenTrailer(newer, RangePlain, 1); !errors.Is(err, ErrNewerVersion) {
		t.Errorf("a newer version: %v", err)
	}
}
