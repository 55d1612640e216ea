package format

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

const (
	// Version is the version of everything this package writes, and of a log that has had no
	// references, #sync or unverified events. A change that older code would misread raises it.
	Version = 7
	// VersionReferences is the version of a log that has had references. Its values are of Version,
	// but code that knows no later one than that would not trim references, and lose them where it
	// merges blocks.
	VersionReferences = 8
	// VersionSync is the version of a log that has had #sync events, and maybe references. Its
	// values are of Version, but code that knows no later one than those two would send such events
	// to subscribers that did not ask for them.
	VersionSync = 9
	// VersionUnverified is the version of a log that has had unverified events, and maybe what the
	// versions before it are for. Its values are of Version, but older code would send such events
	// without their reason, and lose it where it merges blocks.
	VersionUnverified = 10
	// NewestVersion is the newest that this code knows.
	NewestVersion = VersionUnverified
)

// TrailerBytes is the length of the trailer that ends each stored value: range, version, two zero
// bytes, hash.
const TrailerBytes = 4 + 8

// Errors that callers branch on. They come wrapped; use errors.Is.
var (
	// ErrNewerVersion: a newer version of this program wrote the value.
	ErrNewerVersion = errors.New("the log has a newer format")
	// ErrMissing: the store lacks a value that others refer to.
	ErrMissing = errors.New("missing")
)

// AppendTrailer ends a value that is stored under a key of range r with the given number. That is
// time_us, last seq, dictionary ID, source number, or 0 for meta values. It appends the range, the
// version, and xxhash64 of the number, the value and the trailer so far. So neither a flipped bit
// nor a value under a wrong key goes unnoticed.
func AppendTrailer(value []byte, r Range, key int64) []byte {
	value = append(value, byte(r), Version, 0, 0)
	return binary.LittleEndian.AppendUint64(value, valueHash(value, key))
}

// OpenTrailer checks what AppendTrailer appended and returns the value without it, aliasing sealed.
// A value of a newer version is ErrNewerVersion.
func OpenTrailer(sealed []byte, r Range, key int64) ([]byte, error) {
	if len(sealed) < TrailerBytes {
		return nil, fmt.Errorf("%d bytes are too few", len(sealed))
	}
	n := len(sealed) - TrailerBytes
	body, sum := sealed[:n+4], binary.LittleEndian.Uint64(sealed[n+4:])
	if got := valueHash(body, key); got != sum {
		return nil, fmt.Errorf("checksum is %016x, not %016x", got, sum)
	}
	if body[n] != byte(r) {
		return nil, fmt.Errorf("it is of range %#02x, not %#02x", body[n], byte(r))
	}
	switch v := body[n+1]; {
	case v > Version:
		return nil, fmt.Errorf("%w: version %d, and this millrace knows version %d", ErrNewerVersion, v, Version)
	case v < Version:
		return nil, fmt.Errorf("it is too old: version %d, and this millrace knows version %d", v, Version)
	}
	return sealed[:n:n], nil
}

// Open checks the trailer of a value, and decodes what precedes it.
func Open[T any](sealed []byte, r Range, key int64, decode func([]byte) (T, error)) (v T, err error) {
	b, err := OpenTrailer(sealed, r, key)
	if err != nil {
		return v, err
	}
	return decode(b)
}

func valueHash(body []byte, key int64) uint64 {
	var d xxhash.Digest
	d.Reset()
	var k [8]byte
	binary.BigEndian.PutUint64(k[:], uint64(key))
	_, _ = d.Write(k[:]) // never fails
	_, _ = d.Write(body)
	return d.Sum64()
}
