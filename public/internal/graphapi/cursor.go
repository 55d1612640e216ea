package graphapi

import (
	"encoding/base64"
	"encoding/binary"
)

// kind is the first byte of a cursor. Those of links have other ones.
const kind = 's'

// encodeCursor returns the cursor of the page after a member; nil if after is 0. It is valid for
// one build of the graph.
func encodeCursor(build, after uint64) *string {
	if after == 0 {
		return nil
	}
	return new(base64.RawURLEncoding.EncodeToString(binary.AppendUvarint(binary.AppendUvarint([]byte{kind}, build), after)))
}

// parseCursor is the inverse of encodeCursor. It refuses every other spelling.
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
	again := encodeCursor(build, after)
	return build, after, again != nil && *again == s
}
