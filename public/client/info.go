package client

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Names of what a millrace says besides events.
const (
	// the cursor was older than the log: Requested, OldestUS, OldestCursor
	InfoClamped   = "cursor_clamped"
	InfoLive      = "live"       // all that was in the log has been sent: TimeUS, Cursor
	InfoGap       = "gap"        // the relay may have lost events here: From, To, TimeUS
	InfoGoingAway = "going_away" // the server is shutting down; the client connects again
	InfoHeartbeat = "heartbeat"  // all that is wanted up to TimeUS, Cursor has been sent
	// events up to Cursor are without references
	InfoReferencesBegin = "references_begin"
	// events that failed the server's verification are not served: LeftOut
	InfoLeftOut = "left_out"
)

// Info is a message that is no event.
type Info struct {
	Name    string
	Message string // for people

	TimeUS int64  // Unix microseconds; 0: not known
	Cursor string // a position; "": not known. What is to be stored Client.Cursor has

	Requested    string // InfoClamped: the cursor that was asked for
	OldestUS     int64  // InfoClamped: where the log begins; 0: it is empty
	OldestCursor string
	From, To     string // InfoGap: the positions around it
	LeftOut      int64  // InfoLeftOut: how many since the last such message, or since InfoLive

	Raw json.RawMessage // all of it, as it came
}

// parseInfo reads a message that is no event. One that is not understood has no name. It keeps raw,
// as Info.Raw.
func parseInfo(raw []byte) (Info, error) {
	var m struct {
		Kind   string
		TimeUS int64 `json:"time_us"`
		Cursor string
		Info   struct {
			Name, Message, From, To, Cursor string
			TimeUS                          int64 `json:"time_us"`
			Requested                       json.RawMessage
			Oldest                          json.RawMessage
			OldestCursor                    string `json:"oldest_cursor"`
			Events                          int64
		}
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return Info{}, fmt.Errorf("%w: %w", errJSON, err)
	}
	switch m.Kind {
	case "heartbeat":
		return Info{Name: InfoHeartbeat, TimeUS: m.TimeUS, Cursor: m.Cursor, Raw: raw}, nil
	case "info":
	default:
		return Info{Raw: raw}, nil
	}
	i := Info{
		Name: m.Info.Name, Message: m.Info.Message, TimeUS: m.Info.TimeUS, Cursor: m.Info.Cursor,
		Requested: bare(m.Info.Requested), OldestCursor: m.Info.OldestCursor, From: m.Info.From, To: m.Info.To,
		LeftOut: m.Info.Events, Raw: raw,
	}
	i.OldestUS, _ = strconv.ParseInt(bare(m.Info.Oldest), 10, 64)
	return i, nil
}

// bare returns a number, or a string without its quotes.
func bare(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) == nil {
		return s
	}
	return string(value)
}
