package cbor

import (
	"crypto/sha256"
	"encoding/binary"
)

// CID returns the CID of a DAG-CBOR block.
func CID(block []byte) []byte {
	sum := sha256.Sum256(block)
	return append([]byte{1, 0x71, 0x12, 32}, sum[:]...)
}

// AppendCARHeader appends the header of a CAR (version 1) with one root, which is a CID.
func AppendCARHeader(dst, root []byte) []byte {
	return AppendCARSection(dst, Append(nil, map[string]any{"roots": []any{Link(root)}, "version": 1}))
}

// AppendCARSection appends a section of a CAR: its length and its parts. Those of a block are its
// CID and its data.
func AppendCARSection(dst []byte, parts ...[]byte) []byte {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	for _, p := range parts {
		dst = append(dst, p...)
	}
	return dst
}
