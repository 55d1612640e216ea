package graphapi

import (
	"encoding/base64"
	"encoding/binary"
)

// kind is the first byte of a cursor. Those of links have other ones.
const kind = 's'

// appendCursor appends, as JSON, the cursor of the page after a member; null if after is 0. It is
// valid for one build of the graph.
func appendCursor(dst []byte, build, after uint64) []byte {
	if after == 0 {
		return append(dst, "null"...)
	}
	dst = append(dst, '"')
	dst = base64.RawURLEncoding.AppendEncode(dst, binary.AppendUvarint(binary.AppendUvarint([]byte{kind}, build), after))
	return append(dst, '"')
}

// parseCursor is the inverse of appendCursor. It refuses every other spelling.
func parseCursor(s string) (build, after uint64, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) == 0 {
		return 0, 0, false
	}
	build, n := binary.Uvarint(b[1:])
	if n <= 0 {
		return 0, 0, false
	}
	after, _ = binary.Uvarint(b[1+n:])
	return build, after, string(appendCursor(nil, build, after)) == `"`+s+`"`
}
