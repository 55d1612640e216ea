package public

import (
	"encoding/json"
	"net/http"

	"millrace/public/internal/viewapi"
	"millrace/replay"
)

// maxListedGaps bounds an answer: a log may have a hundred times as many.
const maxListedGaps = 1000

// pointJSON is a place in the log as /cursors shows it.
type pointJSON struct {
	TimeUS int64  `json:"time_us"`
	Cursor string `json:"cursor"`
}

type gapJSON struct {
	From   string `json:"from"`
	To     string `json:"to"`
	TimeUS int64  `json:"time_us"`
}

type cursorsJSON struct {
	Oldest     *pointJSON `json:"oldest"` // null: the log is empty
	Newest     *pointJSON `json:"newest"`
	RetentionS int64      `json:"retention_s"`
	Gaps       []gapJSON  `json:"gaps"` // the newest maxListedGaps, oldest first
	GapsTotal  int        `json:"gaps_total"`
	// since when events have their references; absent: they are off
	References *referencesJSON `json:"references,omitempty"`
}

type referencesJSON struct {
	Since *pointJSON `json:"since"` // null: the log is empty
}

// newReferencesJSON returns where the events that the log holds begin to have references.
func newReferencesJSON(rng *replay.Range) *referencesJSON {
	since := rng.References
	switch {
	case since == nil:
		return nil
	case since.TimeUS < rng.Oldest.TimeUS || since.TimeUS == 0:
		return &referencesJSON{newPointJSON(rng.Oldest)}
	}
	return &referencesJSON{&pointJSON{TimeUS: since.TimeUS + 1, Cursor: since.Position.String()}}
}

func newPointJSON(m replay.Point) *pointJSON {
	if m.TimeUS == 0 {
		return nil
	}
	return &pointJSON{TimeUS: m.TimeUS, Cursor: m.Position.String()}
}

// handleCursors reports what the log holds.
func (s *Server) handleCursors(w http.ResponseWriter, _ *http.Request) {
	rng := s.events.rangeOf()
	gaps := rng.Gaps[max(0, len(rng.Gaps)-maxListedGaps):]
	answer := cursorsJSON{
		Oldest:     newPointJSON(rng.Oldest),
		Newest:     newPointJSON(rng.Newest),
		RetentionS: int64(rng.Retention.Seconds()),
		Gaps:       make([]gapJSON, len(gaps)),
		GapsTotal:  len(rng.Gaps),
		References: newReferencesJSON(&rng),
	}
	for i, g := range gaps {
		answer.Gaps[i] = gapJSON{From: g.From.String(), To: g.To.String(), TimeUS: g.TimeUS}
	}
	writeJSON(w, http.StatusOK, answer)
}

// writeJSON answers with v, which can always be encoded, and is not to be cached.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, _ := json.Marshal(v)
	viewapi.WriteJSON(w, status, append(body, '\n'))
}
