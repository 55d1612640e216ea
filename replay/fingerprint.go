package replay

import (
	"encoding/binary"
	"math/bits"
)

// fingerprintKey keys the fingerprints of a log's DIDs. It is random and secret, so that nobody can
// choose DIDs whose fingerprints collide.
type fingerprintKey struct{ k0, k1 uint64 }

// fingerprintKeyBytes is the length of a key in the store.
const fingerprintKeyBytes = 16

func decodeFingerprintKey(b []byte) fingerprintKey {
	return fingerprintKey{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}
}

// of returns SipHash-2-4 (Aumasson and Bernstein, 2012) of s.
func (k fingerprintKey) of(s string) uint64 {
	v := sipState{k.k0 ^ 0x736f6d6570736575, k.k1 ^ 0x646f72616e646f6d,
		k.k0 ^ 0x6c7967656e657261, k.k1 ^ 0x7465646279746573}
	last := uint64(len(s)) << 56
	for ; len(s) >= 8; s = s[8:] {
		m := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		v.d ^= m
		v.round()
		v.round()
		v.a ^= m
	}
	for i := range len(s) {
		last |= uint64(s[i]) << (8 * i)
	}
	v.d ^= last
	v.round()
	v.round()
	v.a ^= last
	v.c ^= 0xff
	for range 4 {
		v.round()
	}
	return v.a ^ v.b ^ v.c ^ v.d
}

type sipState struct{ a, b, c, d uint64 }

func (v *sipState) round() {
	v.a += v.b
	v.b = bits.RotateLeft64(v.b, 13) ^ v.a
	v.a = bits.RotateLeft64(v.a, 32)
	v.c += v.d
	v.d = bits.RotateLeft64(v.d, 16) ^ v.c
	v.a += v.d
	v.d = bits.RotateLeft64(v.d, 21) ^ v.a
	v.c += v.b
	v.b = bits.RotateLeft64(v.b, 17) ^ v.c
	v.c = bits.RotateLeft64(v.c, 32)
}
