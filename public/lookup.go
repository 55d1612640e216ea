package public

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"millrace/intern"
)

const (
	// maxLookups is how many strings and UIDs together one POST /uids may name.
	maxLookups = 1000
	// maxLookupBytes bounds its body: an AT URI has at most 8 KiB.
	maxLookupBytes = 9 << 20
	// lookupsAtOnce is how many requests read the UID store at the same time.
	lookupsAtOnce = 8
	// lookupTimeout is how long one may take, waiting for its turn included.
	lookupTimeout = 10 * time.Second
)

// UIDs is the UID store as look-ups need it; *intern.Interner is one. A look-up never gives a UID.
type UIDs interface {
	// LookupStrings sets uids[i] to the UID of strings[i], 0 if it has none. What is neither DID nor AT URI
	// is an *intern.InvalidError.
	LookupStrings(ctx context.Context, strings []string, uids []uint64) error
	// LookupUIDs sets strings[i] to what uids[i] stands for, "" if nothing.
	LookupUIDs(ctx context.Context, uids []uint64, strings []string) error
}

// uidJSON is one known pair. UIDs are strings: JavaScript has no 64-bit integers.
type uidJSON struct {
	UID string `json:"uid"`
	DID string `json:"did,omitempty"`
	URI string `json:"uri,omitempty"`
}

func newUIDJSON(uid uint64, s string) uidJSON {
	pair := uidJSON{UID: strconv.FormatUint(uid, 10), DID: s}
	if isURI(s) {
		pair.DID, pair.URI = "", s
	}
	return pair
}

func isURI(s string) bool { return strings.HasPrefix(s, "at://") }

// lookup is one request's turn at the UID store.
type lookup struct {
	strings []string
	uids    []uint64
	// found: UIDs of strings, 0 if unknown; strings of uids, "" if unknown.
	foundUIDs    []uint64
	foundStrings []string
}

// run does the look-up. On an error it has answered.
func (l *lookup) run(s *Server, w http.ResponseWriter, r *http.Request) bool {
	if s.cfg.UIDs == nil {
		http.Error(w, "this server gives no UIDs (--intern=off)", http.StatusNotFound)
		return false
	}
	ctx, cancel := context.WithTimeout(r.Context(), lookupTimeout)
	defer cancel()
	select {
	case s.lookups <- struct{}{}:
		defer func() { <-s.lookups }()
	case <-ctx.Done():
		w.Header().Set("Retry-After", "5")
		http.Error(w, "too many look-ups at once", http.StatusServiceUnavailable)
		return false
	}
	l.foundUIDs = make([]uint64, len(l.strings))
	l.foundStrings = make([]string, len(l.uids))
	err := s.cfg.UIDs.LookupStrings(ctx, l.strings, l.foundUIDs)
	if err == nil {
		err = s.cfg.UIDs.LookupUIDs(ctx, l.uids, l.foundStrings)
	}
	var invalid *intern.InvalidError
	switch {
	case err == nil:
		return true
	case errors.As(err, &invalid):
		http.Error(w, fmt.Sprintf("%.200q is %v", l.strings[invalid.Index], invalid), http.StatusBadRequest)
	default:
		s.log.Warn("UID look-up failed", "error", err)
		w.Header().Set("Retry-After", "5")
		http.Error(w, "the UID store does not answer", http.StatusServiceUnavailable)
	}
	return false
}

// handleUIDOf answers GET /uid?did=… and /uid?uri=….
func (s *Server) handleUIDOf(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	did, uri := q.Get("did"), q.Get("uri")
	if (did == "") == (uri == "") {
		http.Error(w, "ask for one of /uid?did=<DID>, /uid?uri=<AT URI> and /uid/<UID>", http.StatusBadRequest)
		return
	}
	l := lookup{strings: []string{did + uri}}
	if isURI(l.strings[0]) != (uri != "") {
		http.Error(w, fmt.Sprintf("%.200q: a DID is asked for with did=, an AT URI (at://…) with uri=", l.strings[0]), http.StatusBadRequest)
		return
	}
	if !l.run(s, w, r) {
		return
	}
	if l.foundUIDs[0] == 0 {
		http.Error(w, fmt.Sprintf("%.200q has no UID", l.strings[0]), http.StatusNotFound)
		return
	}
	s.writeJSON(w, http.StatusOK, newUIDJSON(l.foundUIDs[0], l.strings[0]))
}

// handleUID answers GET /uid/{uid}.
func (s *Server) handleUID(w http.ResponseWriter, r *http.Request) {
	uid, err := parseUID(r.PathValue("uid"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	l := lookup{uids: []uint64{uid}}
	if !l.run(s, w, r) {
		return
	}
	if l.foundStrings[0] == "" {
		http.Error(w, fmt.Sprintf("UID %d stands for nothing", uid), http.StatusNotFound)
		return
	}
	s.writeJSON(w, http.StatusOK, newUIDJSON(uid, l.foundStrings[0]))
}

func parseUID(s string) (uint64, error) {
	uid, err := strconv.ParseUint(s, 10, 64)
	if err != nil || strconv.FormatUint(uid, 10) != s {
		return 0, fmt.Errorf("%.40q is no UID: it is a decimal number of 64 bits", s)
	}
	return uid, nil
}

// handleUIDs answers POST /uids: {"strings":[…],"uids":["…"]} is answered with two objects of the same
// names, that map each to what it stands for, null if unknown.
func (s *Server) handleUIDs(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Strings []string `json:"strings"`
		UIDs    []string `json:"uids"`
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxLookupBytes))
	d.DisallowUnknownFields()
	if err := d.Decode(&request); err != nil {
		http.Error(w, `the body is not {"strings":["<DID or AT URI>",…],"uids":["<UID>",…]}: `+err.Error(), http.StatusBadRequest)
		return
	}
	if n := len(request.Strings) + len(request.UIDs); n > maxLookups {
		http.Error(w, fmt.Sprintf("%d look-ups, more than %d at once", n, maxLookups), http.StatusBadRequest)
		return
	}
	l := lookup{strings: request.Strings}
	for _, s := range request.UIDs {
		uid, err := parseUID(s)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		l.uids = append(l.uids, uid)
	}
	if !l.run(s, w, r) {
		return
	}
	answer := struct {
		Strings map[string]*string `json:"strings"`
		UIDs    map[string]*string `json:"uids"`
	}{make(map[string]*string, len(l.strings)), make(map[string]*string, len(l.uids))}
	for i, str := range l.strings {
		answer.Strings[str] = nil
		if uid := l.foundUIDs[i]; uid != 0 {
			text := strconv.FormatUint(uid, 10)
			answer.Strings[str] = &text
		}
	}
	for i, uid := range request.UIDs {
		answer.UIDs[uid] = nil
		if found := l.foundStrings[i]; found != "" {
			answer.UIDs[uid] = &found
		}
	}
	s.writeJSON(w, http.StatusOK, answer)
}
