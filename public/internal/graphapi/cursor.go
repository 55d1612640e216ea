package graphapi

import (
	"encoding/base64"
	"encoding/binary"
)

// kind is the first byte of a cursor. Those of links have other ones.
const kind = 's'

// appendCursor appends the cursor behind a member as JSON; null for the end.
func appendCursor(dst []byte, after uint64) []byte {
	if after == 0 {
		return append(dst, "null"...)
	}
	dst = append(dst, '"')
	dst = base64.RawURLEncoding.AppendEncode(dst, binary.AppendUvarint([]byte{kind}, after))
	return append(dst, '"')
}

// parseCursor is the inverse of appendCursor. It refuses every other spelling.
func parseCursor(s string) (after uint64, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) == 0 {
		return 0, false
	}
	after, _ = binary.Uvarint(b[1:])
	return after, string(appendCursor(nil, after)) == `"`+s+`"`
}
