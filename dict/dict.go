package dict

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// Bounds of a dictionary file. A larger one than MaxBytes gains nothing on events of some hundred
// bytes, and each costs that much memory several times over.
const (
	minBytes = 64
	MaxBytes = 2 << 20
)

// IDs from MinPrivateID to MaxPrivateID are free for private use; RFC 8878, section 5, reserves the
// others. Parse takes any ID but 0: others' dictionaries are as they are.
const (
	MinPrivateID = 1 << 15
	MaxPrivateID = 1<<31 - 1
)

// magic begins every dictionary: 0xEC30A437, little-endian.
const magic = "\x37\xa4\x30\xec"

// Errors that callers distinguish.
var (
	errNotDictionary     = errors.New("not a zstd dictionary")
	errUnknownDictionary = errors.New("unknown dictionary")
)

// Dictionary is a checked zstd dictionary. It is immutable and safe for concurrent use.
type Dictionary struct {
	raw     []byte
	id      uint32
	content int // offset of the content in raw
	sum     [sha256.Size]byte
}

// Parse checks that raw is a zstd dictionary (RFC 8878, section 5) that both the encoders and the
// decoder can load, and returns it. It copies raw. Every error wraps errNotDictionary.
func Parse(raw []byte) (*Dictionary, error) {
	fail := func(format string, args ...any) (*Dictionary, error) {
		return nil, fmt.Errorf("%w: %w", errNotDictionary, fmt.Errorf(format, args...))
	}
	if len(raw) < minBytes || len(raw) > MaxBytes {
		return fail("it has %d bytes, not %d to %d", len(raw), minBytes, MaxBytes)
	}
	if !bytes.HasPrefix(raw, []byte(magic)) {
		return fail("it begins with % x instead of % x", raw[:len(magic)], []byte(magic))
	}
	id := binary.LittleEndian.Uint32(raw[len(magic):])
	if id == 0 {
		return fail("its ID is 0")
	}
	info, err := zstd.InspectDictionary(raw)
	if err != nil {
		return fail("load tables: %w", err)
	}
	if err := checkLoads(raw); err != nil {
		return fail("load tables: %w", err)
	}
	return &Dictionary{
		raw:     bytes.Clone(raw),
		id:      id,
		content: len(raw) - info.ContentSize(),
		sum:     sha256.Sum256(raw),
	}, nil
}

// ID returns the ID in the dictionary's header, never 0.
func (d *Dictionary) ID() uint32 { return d.id }

// Bytes returns the whole file. The caller must not modify it.
func (d *Dictionary) Bytes() []byte { return d.raw }

// Content returns the part that frames refer back to, without header and entropy tables. The caller
// must not modify it.
func (d *Dictionary) Content() []byte { return d.raw[d.content:] }

// SHA256 returns the hash of Bytes.
func (d *Dictionary) SHA256() [sha256.Size]byte { return d.sum }

// idOf returns d's ID, 0 for nil: what a frame's header says.
func idOf(d *Dictionary) uint32 {
	if d == nil {
		return 0
	}
	return d.id
}
