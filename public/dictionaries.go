package public

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"millrace/replay"
)

// dictionaryJSON is a dictionary as /dictionaries lists it.
type dictionaryJSON struct {
	ID     uint32 `json:"id"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
	Stored bool   `json:"stored"` // new blocks are stored compressed with it
	InLog  bool   `json:"in_log"` // blocks in the log may be compressed with it
	// when it first became the stored one of this log; null: unknown, or never
	Since *time.Time `json:"since"`
	URL   string     `json:"url"`
}

// handleDictionaries lists the dictionaries that can be asked for by ID: those that the log keeps,
// Jetstream's, and the built-in ones.
func (s *Server) handleDictionaries(w http.ResponseWriter, _ *http.Request) {
	stored := s.cfg.Dictionaries.Stored().ID()
	answer := struct {
		Dictionaries []dictionaryJSON `json:"dictionaries"`
	}{}
	uses := s.events.dictionaries()
	for _, d := range s.cfg.Dictionaries.All() {
		sum := d.SHA256()
		j := dictionaryJSON{
			ID: d.ID(), Bytes: len(d.Bytes()), SHA256: hex.EncodeToString(sum[:]), Stored: d.ID() == stored,
			URL: fmt.Sprintf("/dictionaries/%d", d.ID()),
		}
		if i := slices.IndexFunc(uses, func(u replay.DictionaryUse) bool { return u.ID == d.ID() }); i >= 0 {
			j.InLog = true
			if since := uses[i].Since.Truncate(time.Millisecond); !since.IsZero() {
				j.Since = &since
			}
		}
		answer.Dictionaries = append(answer.Dictionaries, j)
	}
	writeJSON(w, http.StatusOK, answer)
}

// handleDictionary serves one dictionary's file. An ID never changes its content, so that it may be
// kept for ever.
func (s *Server) handleDictionary(w http.ResponseWriter, r *http.Request) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 32)
	if err != nil {
		http.Error(w, "a dictionary ID is a decimal number: /dictionaries lists them", http.StatusBadRequest)
		return
	}
	d, ok := s.cfg.Dictionaries.Get(uint32(id))
	if !ok {
		http.Error(w, "unknown dictionary: /dictionaries lists those there are", http.StatusNotFound)
		return
	}
	sum := d.SHA256()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("ETag", `"`+hex.EncodeToString(sum[:])+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(d.Bytes()))
}
