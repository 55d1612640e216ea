package linksapi

import (
	"encoding/base64"
	"encoding/binary"

	"millrace/replay/links"
)

// kind is what a cursor counts. A cursor of one kind is none of another.
type kind byte

const (
	ofRecords kind = 'r'
	ofDIDs    kind = 'd'
	ofCounts  kind = 'c'
	ofItems   kind = 'm'
)

// cursor says where a page begins. The zero cursor is the beginning of a list.
type cursor = links.OthersCursor

// encodeCursor returns c as clients have it, opaque to them; nil for the end of a list.
func encodeCursor(c cursor, k kind) *string {
	if c == (cursor{}) {
		return nil
	}
	b := binary.AppendUvarint([]byte{byte(k)}, c.Arrival)
	s := base64.RawURLEncoding.EncodeToString(binary.AppendUvarint(b, uint64(c.Index)))
	return &s
}

// parseCursor is the inverse of encodeCursor. It refuses every other spelling.
func parseCursor(s string, k kind) (c cursor, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) == 0 {
		return c, false
	}
	arrival, n := binary.Uvarint(b[1:])
	index, _ := binary.Uvarint(b[1+max(n, 0):])
	c = cursor{Arrival: arrival, Index: uint32(index)}
	// An index that was cut off here differs in the comparison.
	again := encodeCursor(c, k)
	return c, again != nil && *again == s
}
