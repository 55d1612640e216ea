package main

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// isEvent distinguishes events from info messages and heartbeats, which begin with their kind.
func isEvent(line []byte) bool { return bytes.HasPrefix(line, []byte(`{"did":`)) }

// nextCursor is where to go on after the event: after its position if it has one, else at its
// time_us, which is inclusive.
func nextCursor(line []byte) string {
	var e struct {
		TimeUS int64  `json:"time_us"`
		Cursor string `json:"cursor"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return ""
	}
	if e.Cursor != "" {
		return e.Cursor
	}
	return strconv.FormatInt(e.TimeUS, 10)
}
