package public

import (
	"encoding/binary"
	"strconv"
	"unicode/utf8"

	"github.com/gorilla/websocket"

	"millrace/dict"
	"millrace/replay"
	"millrace/translate"
)

// Opcodes of websocket frames with the FIN bit set (RFC 6455, section 5.2).
const (
	frameText   = 0x81
	frameBinary = 0x82
	frameClose  = 0x88
	framePing   = 0x89
	framePong   = 0x8a
)

// maxCloseReasonBytes is what the largest payload of a control frame leaves for a close reason.
const maxCloseReasonBytes = 125 - 2

// appendFrame appends one unmasked frame. first is its first byte.
func appendFrame(dst []byte, first byte, payload []byte) []byte {
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, first, byte(n))
	case n < 1<<16:
		dst = append(dst, first, 126)
		dst = binary.BigEndian.AppendUint16(dst, uint16(n))
	default:
		dst = append(dst, first, 127)
		dst = binary.BigEndian.AppendUint64(dst, uint64(n))
	}
	return append(dst, payload...)
}

// newCloseFrame returns a close frame. The reason is cut to what fits.
func newCloseFrame(code int, reason string) []byte {
	return appendFrame(nil, frameClose, websocket.FormatCloseMessage(code, cutAt(reason, maxCloseReasonBytes)))
}

// cutAt returns what begins s, at most n bytes, and ends at a rune's boundary.
func cutAt(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// frameLen returns the length of the unmasked frame that b begins with, 0 if b is too short.
func frameLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch n := int(b[1] & 0x7f); n {
	case 126:
		if len(b) < 4 {
			return 0
		}
		return 4 + int(binary.BigEndian.Uint16(b[2:]))
	case 127:
		if len(b) < 10 {
			return 0
		}
		return 10 + int(binary.BigEndian.Uint64(b[2:]))
	default:
		return 2 + n
	}
}

// messages writes info messages and heartbeats, as the connection's events are written: plain or
// compressed.
type messages struct {
	enc     *dict.Encoder                  // nil: plain
	v2Seq   func(translate.Position) int64 // of Jetstream v2's wire; nil: the wire is v1's
	scratch []byte
}

func (m *messages) append(dst, payload []byte) []byte {
	if m.enc == nil {
		return appendFrame(dst, frameText, payload)
	}
	m.scratch = m.enc.Append(m.scratch[:0], payload)
	return appendFrame(dst, frameBinary, m.scratch)
}

// appendPoint appends the members time_us and cursor, with a comma before each, as far as they are
// known. Before the first event neither is, between a time cursor and the first event only time_us.
func appendPoint(dst []byte, m replay.Point) []byte {
	if m.TimeUS != 0 {
		dst = append(dst, `,"time_us":`...)
		dst = strconv.AppendInt(dst, m.TimeUS, 10)
	}
	if m.Position.Seq != 0 {
		dst = append(dst, `,"cursor":"`...)
		dst = append(dst, m.Position.String()...)
		dst = append(dst, '"')
	}
	return dst
}

// appendHeartbeat appends a frame that says: everything up to through was sent.
func (m *messages) appendHeartbeat(dst []byte, through replay.Point) []byte {
	if m.v2Seq != nil {
		return m.appendV2Point(dst, "heartbeat", through)
	}
	p := append([]byte(nil), `{"kind":"heartbeat"`...)
	if through.TimeUS == 0 {
		p = append(p, `,"time_us":0`...)
	}
	return m.append(dst, append(appendPoint(p, through), '}'))
}

// beginInfo begins an info message. name and text must need no escaping in JSON.
func beginInfo(name, text string) []byte {
	return append([]byte(nil), `{"kind":"info","info":{"name":"`+name+`","message":"`+text+`"`...)
}

func (m *messages) endInfo(dst, info []byte) []byte { return m.append(dst, append(info, '}', '}')) }

const clampedText = "the cursor is older than the log: starting at its oldest event"

// appendClamped says that the log begins after the cursor that was asked for.
func (m *messages) appendClamped(dst []byte, requested replay.Cursor, oldest replay.Point) []byte {
	p := beginInfo("cursor_clamped", clampedText)
	p = append(p, `,"requested":"`+requested.String()+`","oldest":`...)
	p = strconv.AppendInt(p, oldest.TimeUS, 10)
	if oldest.TimeUS != 0 { // else the log is empty
		p = append(p, `,"oldest_cursor":"`+oldest.Position.String()+`"`...)
	}
	return m.endInfo(dst, p)
}

// appendReferencesBegin says that events up to a point are without references.
func (m *messages) appendReferencesBegin(dst []byte, begin replay.Point) []byte {
	if m.v2Seq != nil {
		return m.appendV2Point(dst, "references_begin", begin)
	}
	p := beginInfo("references_begin", "events up to this cursor have no references: filters by subject and source leave them out")
	return m.endInfo(dst, appendPoint(p, begin))
}

// appendLive says that all that was in the log has been sent.
func (m *messages) appendLive(dst []byte, through replay.Point) []byte {
	return m.endInfo(dst, appendPoint(beginInfo("live", "everything up to here has been sent; what follows is live"), through))
}

// appendGap says that the relay may have withheld events here.
func (m *messages) appendGap(dst []byte, g *replay.Gap) []byte {
	p := beginInfo("gap", "the relay may have lost events between these positions")
	p = append(p, `,"from":"`+g.From.String()+`","to":"`+g.To.String()+`","time_us":`...)
	return m.endInfo(dst, strconv.AppendInt(p, g.TimeUS, 10))
}

// appendLeftOut says that so many events are missing, since it was said last, or since live.
func (m *messages) appendLeftOut(dst []byte, events int64) []byte {
	p := beginInfo("left_out", "events that failed verification were left out")
	return m.endInfo(dst, strconv.AppendInt(append(p, `,"events":`...), events, 10))
}

// appendGoingAway announces a shutdown. through is where to resume, zero if that is not known
// exactly.
func (m *messages) appendGoingAway(dst []byte, through replay.Point) []byte {
	return m.endInfo(dst, appendPoint(beginInfo("going_away", "the server is shutting down: reconnect with the last cursor"), through))
}
