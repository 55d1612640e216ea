package intern

// A TID is 13 characters of the alphabet 234567abcdefghijklmnopqrstuvwxyz, 5 bits each, 65 together
// (https://atproto.com/specs/tid). A string packs into 64 bits if its first character is one of the
// first sixteen, 2 to j; that is every valid TID. Packed TIDs order as their strings do. Others
// stay strings.
const tidLen = 13

const tidAlphabet = "234567abcdefghijklmnopqrstuvwxyz"

var tidDigits = digitsOf(tidAlphabet) //nolint:gochecknoglobals // a table

// digitsOf returns each byte's place in a 32-character alphabet, 0xff for bytes not in it.
func digitsOf(alphabet string) (t [256]uint8) {
	for i := range t {
		t[i] = 0xff
	}
	for i, c := range []byte(alphabet) {
		t[c] = uint8(i)
	}
	return t
}

// packTID packs a record key that looks like a TID. ok is false for all others.
func packTID(s []byte) (tid uint64, ok bool) {
	if len(s) != tidLen || tidDigits[s[0]] > 15 {
		return 0, false
	}
	var bad uint8
	for _, c := range s {
		d := tidDigits[c]
		bad |= d
		tid = tid<<5 | uint64(d&31)
	}
	return tid, bad < 32
}

// appendTID is the inverse of packTID.
func appendTID(dst []byte, tid uint64) []byte {
	for shift := 60; shift >= 0; shift -= 5 {
		dst = append(dst, tidAlphabet[tid>>shift&31])
	}
	return dst
}

// A did:plc is "did:plc:" and 24 characters of RFC 4648's lower-case base32, 120 bits: 15 bytes.
const (
	plcPrefix = "did:plc:"
	plcChars  = 24
	plcBytes  = 15
)

const plcAlphabet = "abcdefghijklmnopqrstuvwxyz234567"

var plcDigits = digitsOf(plcAlphabet) //nolint:gochecknoglobals // a table

// isPLC says whether s is a DID that appendPLC packs.
func isPLC(s []byte) bool {
	if len(s) != len(plcPrefix)+plcChars || string(s[:len(plcPrefix)]) != plcPrefix {
		return false
	}
	var bad uint8
	for _, c := range s[len(plcPrefix):] {
		bad |= plcDigits[c]
	}
	return bad < 32
}

// appendPLC appends the 15 bytes of a DID that isPLC.
func appendPLC(dst, did []byte) []byte {
	for chars := did[len(plcPrefix):]; len(chars) > 0; chars = chars[8:] {
		var v uint64
		for _, c := range chars[:8] {
			v = v<<5 | uint64(plcDigits[c])
		}
		dst = append(dst, byte(v>>32), byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
	}
	return dst
}

// appendPLCString is the inverse of appendPLC; packed has 15 bytes.
func appendPLCString(dst, packed []byte) []byte {
	dst = append(dst, plcPrefix...)
	for ; len(packed) >= 5; packed = packed[5:] {
		v := uint64(packed[0])<<32 | uint64(packed[1])<<24 | uint64(packed[2])<<16 | uint64(packed[3])<<8 | uint64(packed[4])
		for shift := 35; shift >= 0; shift -= 5 {
			dst = append(dst, plcAlphabet[v>>shift&31])
		}
	}
	return dst
}
