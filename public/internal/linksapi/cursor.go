package linksapi

import (
	"encoding/base64"
	"encoding/binary"

	"millrace/replay/links"
	"millrace/replay/references"
)

// kind is what a cursor counts. A cursor of one kind is none of another.
type kind byte

const (
	ofRecords kind = 'r'
	ofDIDs    kind = 'd'
	ofCounts  kind = 'c'
	ofItems   kind = 'm'
)

// cursor says where a page begins: after a link of the links that begin at since.
type cursor struct {
	since references.Position
	after links.OthersCursor // zero: the beginning of a list
}

// encodeCursor returns c as clients have it, opaque to them; nil for the end of a list.
func encodeCursor(c cursor, k kind) *string {
	if c.after == (links.OthersCursor{}) {
		return nil
	}
	b := []byte{byte(k)}
	for _, n := range []uint64{uint64(c.since.Epoch), uint64(c.since.Seq), c.after.Arrival, uint64(c.after.Index)} {
		b = binary.AppendUvarint(b, n)
	}
	return new(base64.RawURLEncoding.EncodeToString(b))
}

// parseCursor is the inverse of encodeCursor. It refuses every other spelling.
func parseCursor(s string, k kind) (c cursor, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) == 0 {
		return c, false
	}
	b = b[1:]
	next := func() uint64 {
		v, n := binary.Uvarint(b)
		b = b[max(n, 0):]
		return v
	}
	// What was cut off here differs in the comparison.
	c.since = references.Position{Epoch: uint32(next()), Seq: int64(next())}
	c.after = links.OthersCursor{Arrival: next(), Index: uint32(next())}
	again := encodeCursor(c, k)
	return c, again != nil && *again == s
}
