package replay

import "testing"

// TestFingerprint checks the reference implementation's vectors: key 00 01 … 0f, input 00 01 … of n bytes.
func TestFingerprint(t *testing.T) {
	key := make([]byte, fingerprintKeyBytes)
	for i := range key {
		key[i] = byte(i)
	}
	k := decodeFingerprintKey(key)
	input := make([]byte, 16)
	for i := range input {
		input[i] = byte(i)
	}
	for n, want := range map[int]uint64{
		0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 7: 0xab0200f58b01d137, 8: 0x93f5f5799a932462, 15: 0xa129ca6149be45e5,
	} {
		if got := k.of(string(input[:n])); got != want {
			t.Errorf("%d bytes: %016x, want %016x", n, got, want)
		}
	}
}
