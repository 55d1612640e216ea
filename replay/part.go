package replay

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// formatVersion is the version of everything this package writes. A change that older code would
// misread raises it.
const formatVersion = 7

// trailerBytes is the length of what seals each value: range, version, two zero bytes, hash.
const trailerBytes = 4 + 8

// appendTrailer seals value, which is to be stored under (r, key): it appends r's byte, the version
// and xxhash64 of the key, the value and the trailer so far, so that neither a flipped bit nor a value
// under the wrong key goes unnoticed.
func appendTrailer(value []byte, r byte, key int64) []byte {
	value = append(value, r, formatVersion, 0, 0)
	return binary.LittleEndian.AppendUint64(value, partHash(value, key))
}

// openTrailer checks what appendTrailer made and returns the value without its trailer, aliasing it.
func openTrailer(sealed []byte, r byte, key int64) ([]byte, error) {
	if len(sealed) < trailerBytes {
		return nil, fmt.Errorf("%d bytes are too few", len(sealed))
	}
	n := len(sealed) - trailerBytes
	body, sum := sealed[:n+4], binary.LittleEndian.Uint64(sealed[n+4:])
	if got := partHash(body, key); got != sum {
		return nil, fmt.Errorf("checksum is %016x, not %016x", got, sum)
	}
	if body[n] != r {
		return nil, fmt.Errorf("it is of range %#02x, not %#02x", body[n], r)
	}
	if v := body[n+1]; v != formatVersion {
		return nil, fmt.Errorf("%w: version %d, this is %d", ErrNewerFormat, v, formatVersion)
	}
	return sealed[:n:n], nil
}

func partHash(body []byte, key int64) uint64 {
	var d xxhash.Digest
	d.Reset()
	var k [8]byte
	binary.BigEndian.PutUint64(k[:], uint64(key))
	_, _ = d.Write(k[:]) // never fails
	_, _ = d.Write(body)
	return d.Sum64()
}

// rangeName is what errors and metrics call a range.
func rangeName(r byte) string {
	switch r {
	case rangeMeta:
		return "meta"
	case rangeDictionary:
		return "dictionary"
	case rangeGap:
		return "gap"
	case rangeSeq:
		return "seq"
	case rangeIndex:
		return "index"
	case rangePlain:
		return "plain"
	case rangeZstd:
		return "zstd"
	case rangeOutline:
		return "outline"
	case rangeSpan:
		return "span"
	case rangeSpanDIDs:
		return "span_dids"
	case rangeOthersIndex:
		return "others_index"
	case rangeOthersPlain:
		return "others_plain"
	case rangeOthersZstd:
		return "others_zstd"
	}
	return fmt.Sprintf("range %#02x", r)
}

var errMissing = errors.New("it is missing")

func corrupt(r byte, key int64, err error) error {
	return &CorruptionError{Part: rangeName(r), Key: uint64(key), Err: err}
}
