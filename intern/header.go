package intern

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"millrace/intern/kv"
)

// Limits and default of the prefix bits.
const (
	DefaultPrefixBits = 14
	minPrefixBits     = 1
	maxPrefixBits     = 32
)

// spreadBits is the stripe bits of a store whose keys should be spread.
const spreadBits = 8

// FormatVersion is the version of the store's format, the first number in the header.
const FormatVersion = 1

// ErrPrefixBits means: the store was created with another number of prefix bits.
var ErrPrefixBits = errors.New("UID store has other prefix bits")

// ErrNewerFormat means: a newer millrace made the store.
var ErrNewerFormat = errors.New("UID store has a newer format")

// ErrUnfinished means: an import into the store was begun and not finished.
var ErrUnfinished = errors.New("UID store holds an unfinished import; run the import again to finish it")

// ErrEmpty means: there is nothing in the store.
var ErrEmpty = errors.New("UID store is empty")

// errNoHeader means: the store is another program's, or damaged.
var errNoHeader = errors.New("it holds something, but no UID store")

// header is what is fixed when a store is created.
type header struct {
	codec
	storeID [16]byte
}

// ID returns the store ID as 32 hex digits.
func (h *header) ID() string { return hex.EncodeToString(h.storeID[:]) }

func newHeader(prefixBits int, limits kv.Limits) header {
	h := header{codec: codec{prefixBits: uint(prefixBits)}}
	if limits.Spread {
		h.stripeBits = spreadBits
	}
	_, _ = rand.Read(h.storeID[:]) // never fails
	return h
}

func (h *header) appendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, FormatVersion)
	dst = append(dst, byte(h.prefixBits), byte(h.stripeBits))
	return append(dst, h.storeID[:]...)
}

func parseHeader(b []byte) (h header, err error) {
	version, rest, ok := uvarint(b)
	if !ok {
		return header{}, broken("header", b)
	}
	if version > FormatVersion {
		return header{}, fmt.Errorf("%w: version %d, and this millrace knows up to %d", ErrNewerFormat, version, FormatVersion)
	}
	if version == 0 || len(rest) != 2+len(h.storeID) || rest[0] < minPrefixBits || rest[0] > maxPrefixBits || rest[1] > 8 {
		return header{}, broken("header", b)
	}
	h.prefixBits, h.stripeBits = uint(rest[0]), uint(rest[1])
	copy(h.storeID[:], rest[2:])
	return h, nil
}

// loadHeader reads the header of a store that is complete. It returns ErrEmpty or
// ErrUnfinished for others.
func loadHeader(ctx context.Context, txn kv.Txn) (header, error) {
	values := make([][]byte, 2)
	if err := txn.Get(ctx, [][]byte{[]byte(keyImport), []byte(keyStore)}, values); err != nil {
		return header{}, err
	}
	switch {
	case values[0] != nil:
		return header{}, ErrUnfinished
	case values[1] == nil:
		return header{}, ErrEmpty
	}
	return parseHeader(values[1])
}

// openHeader reads the header, or writes one to an empty store. prefixBits 0 takes what the store
// has.
func openHeader(ctx context.Context, txn kv.Txn, fresh header, prefixBits int) (header, error) {
	h, err := loadHeader(ctx, txn)
	if errors.Is(err, ErrEmpty) {
		err = txn.Scan(ctx, kv.Range{Begin: []byte{0}, End: []byte{0xff}}, func(p kv.Pair) (bool, error) {
			return false, fmt.Errorf("%w: it has the key %.16x", errNoHeader, p.Key)
		})
		txn.Set([]byte(keyStore), fresh.appendTo(nil)) // is not committed after an error
		return fresh, err
	}
	if err == nil && prefixBits != 0 && uint(prefixBits) != h.prefixBits {
		err = fmt.Errorf("%w: it was created with %d, which cannot be changed, and %d were asked for", ErrPrefixBits, h.prefixBits, prefixBits)
	}
	return h, err
}
