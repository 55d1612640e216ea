package replay

import (
	"fmt"
	"strconv"
	"strings"

	"millrace/translate"
)

// Point is a place in the log: an event's stamp and position. The zero Point is before everything.
type Point struct {
	TimeUS   int64
	Position translate.Position
}

type cursorKind uint8

const (
	cursorLive cursorKind = iota
	cursorTime
	cursorPosition
	cursorSeq
)

// Cursor says where a reader starts. The zero Cursor is live: it starts with the first event that
// is appended after the reader was made.
type Cursor struct {
	kind     cursorKind
	timeUS   int64
	seq      int64
	position translate.Position
}

// TimeCursor starts with the first event, or gap, stamped us (Unix microseconds) or later. 0 is the
// oldest event, and a stamp newer than the newest in the log, be it an event's or a gap's, is live.
func TimeCursor(us int64) Cursor { return Cursor{kind: cursorTime, timeUS: us} }

// PositionCursor starts with the first event after p. If the log has not come there, the reader
// waits. If it has not even begun, and then begins after p, the reader is informed by a Gap.
func PositionCursor(p translate.Position) Cursor {
	return Cursor{kind: cursorPosition, position: p}
}

// SeqCursor starts with the first event whose seq on Jetstream v2's wire is seq or larger. A seq
// beyond the newest event's is live.
func SeqCursor(seq int64) Cursor { return Cursor{kind: cursorSeq, seq: seq} }

// ParseCursor reads either kind: decimal Unix microseconds, or "<stream>-<seq>-<op>". A negative
// number counts as 0.
func ParseCursor(s string) (Cursor, error) {
	if us, err := strconv.ParseInt(s, 10, 64); err == nil {
		return TimeCursor(max(us, 0)), nil
	}
	if strings.IndexByte(s, '-') > 0 {
		p, err := translate.ParsePosition(s)
		if err != nil {
			return Cursor{}, fmt.Errorf("parse cursor: %w", err)
		}
		return PositionCursor(p), nil
	}
	return Cursor{}, fmt.Errorf("cursor %.40q is neither Unix microseconds nor <stream>-<seq>-<op>", s)
}

// TimeUS returns the stamp of a time cursor.
func (c Cursor) TimeUS() (us int64, ok bool) { return c.timeUS, c.kind == cursorTime }

// String returns the cursor as ParseCursor reads it, "live" for a live one, a seq as its number.
func (c Cursor) String() string {
	switch c.kind {
	case cursorTime:
		return strconv.FormatInt(c.timeUS, 10)
	case cursorPosition:
		return c.position.String()
	case cursorSeq:
		return strconv.FormatInt(c.seq, 10)
	}
	return "live"
}
