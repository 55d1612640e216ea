package format

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// TestTrailer: any flipped bit, another key, range or version is found.
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
	for version, says := range map[byte]string{Version + 1: ErrNewerVersion.Error(), Version - 1: "it is too old"} {
		other := bytes.Clone(sealed)
		end := len(other) - 8
		other[end-3] = version
		binary.LittleEndian.PutUint64(other[end:], valueHash(other[:end], 42))
		_, err := OpenTrailer(other, RangePlain, 42)
		if err == nil || !strings.HasPrefix(err.Error(), says) || errors.Is(err, ErrNewerVersion) != (version > Version) {
			t.Errorf("version %d: %v", version, err)
		}
	}
}
