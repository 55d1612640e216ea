package translate

import (
	"bytes"
	"encoding/base32"
)

// The CID of a repository's block: version 1, a codec, and 32 bytes of SHA-256
// (https://atproto.com/specs/data-model#link-and-cid-formats).
const (
	cidBytes  = 36 // of such a CID in binary
	cidDigest = 4  // where the digest begins

	codecRaw     = 0x55
	codecDAGCBOR = 0x71
	hashSHA256   = 0x12
)

// isBlockCID reports whether b begins with a CID that a repository's block can have.
func isBlockCID(b []byte) bool {
	return len(b) >= cidBytes && b[0] == 1 && (b[1] == codecDAGCBOR || b[1] == codecRaw) &&
		b[2] == hashSHA256 && b[3] == cidBytes-cidDigest
}

// cidLen returns the length of the CID that b begins with, of any version, codec and hash, or 0 if
// there is none.
func cidLen(b []byte) int {
	if isBlockCID(b) {
		return cidBytes
	}
	if isCIDv0(b) {
		return cidV0Bytes
	}
	version, n := multiVarint(b)
	if n == 0 || version != 1 {
		return 0
	}
	at := n
	if _, n = multiVarint(b[at:]); n == 0 { // codec
		return 0
	}
	at += n
	if _, n = multiVarint(b[at:]); n == 0 { // hash function
		return 0
	}
	at += n
	length, n := multiVarint(b[at:])
	at += n
	if n == 0 || length > uint64(len(b)-at) {
		return 0
	}
	return at + int(length)
}

// cidV0Bytes is the length of a CID of version 0: a bare SHA-256 multihash.
const cidV0Bytes = 34

func isCIDv0(b []byte) bool {
	return len(b) >= cidV0Bytes && b[0] == hashSHA256 && b[1] == cidV0Bytes-2
}

// multiVarint reads an unsigned varint as multiformats has it: at most nine bytes, none in vain. n
// is 0 if b does not begin with one.
func multiVarint(b []byte) (v uint64, n int) {
	const maxVarintBytes = 9
	for i := 0; i < len(b) && i < maxVarintBytes; i++ {
		v |= uint64(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			if b[i] == 0 && i > 0 {
				return 0, 0
			}
			return v, i + 1
		}
	}
	return 0, 0
}

// linkCID returns the CID within the bytes of a link, which begin with the multibase prefix of
// binary, or nil if they hold anything else. It aliases b.
func linkCID(b []byte) []byte {
	if len(b) < 2 || b[0] != 0 || cidLen(b[1:]) != len(b)-1 {
		return nil
	}
	return b[1:]
}

// appendCID appends the text form of a whole CID: base32 with its prefix "b", or base58 for version
// 0.
func appendCID(dst, cid []byte) []byte {
	if len(cid) == cidV0Bytes && isCIDv0(cid) {
		return appendBase58(dst, cid)
	}
	return cidEncoding.AppendEncode(append(dst, 'b'), cid)
}

const base32Lower = "abcdefghijklmnopqrstuvwxyz234567"

// cidEncoding is lower-case base32 (RFC 4648) without padding.
var cidEncoding = base32.NewEncoding(base32Lower).WithPadding(base32.NoPadding) //nolint:gochecknoglobals // a table

// appendFromBase32 appends what cidEncoding spells as s. It refuses every other spelling: upper
// case, a superfluous character, bits left over. The library's decoder would allocate.
func appendFromBase32(dst, s []byte) ([]byte, bool) {
	if extra := len(s) % 8; extra == 1 || extra == 3 || extra == 6 {
		return dst, false
	}
	var v uint32
	bits := 0
	for _, c := range s {
		digit := bytes.IndexByte([]byte(base32Lower), c)
		if digit < 0 {
			return dst, false
		}
		v = v<<5 | uint32(digit)
		bits += 5
		if bits >= 8 {
			bits -= 8
			dst = append(dst, byte(v>>bits))
		}
	}
	return dst, v&(1<<bits-1) == 0
}

// validCIDText reports whether s is what appendCID would append for a CID of version 1. scratch is
// used for decoding and returned for reuse.
func validCIDText(s, scratch []byte) ([]byte, bool) {
	if len(s) < 2 || s[0] != 'b' {
		return scratch, false
	}
	raw, ok := appendFromBase32(scratch[:0], s[1:])
	return raw, ok && !isCIDv0(raw) && cidLen(raw) == len(raw)
}

// appendBase58 appends cid, the 34 bytes of a CID of version 0, in Bitcoin's base58. Such a CID
// begins with a byte that is not zero, and no zeros have to be kept.
func appendBase58(dst, cid []byte) []byte {
	const alphabet = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
	var digits [2 * cidV0Bytes]byte // least significant first; base58 needs 1.37 digits a byte
	used := 0
	for _, c := range cid {
		carry := uint(c)
		for i := range used {
			carry += uint(digits[i]) << 8
			digits[i] = byte(carry % 58)
			carry /= 58
		}
		for ; carry > 0; carry /= 58 {
			digits[used] = byte(carry % 58)
			used++
		}
	}
	for i := used - 1; i >= 0; i-- {
		dst = append(dst, alphabet[digits[i]])
	}
	return dst
}
