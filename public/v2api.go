package public

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

const (
	// maxPlanBytes bounds the body of planSnapshot.
	maxPlanBytes = 2 << 20
	// smallPlanBytes is the largest body that is read at once for any number of clients. A larger
	// one waits for a slot.
	smallPlanBytes = 16 << 10
)

// handleZstdDictionary serves a dictionary's file, the stored one's without an ID.
func (s *Server) handleZstdDictionary(w http.ResponseWriter, r *http.Request) {
	d := s.cfg.Dictionaries.Stored()
	h := w.Header()
	if q := r.URL.Query(); q.Has("id") {
		id, err := strconv.ParseInt(q.Get("id"), 10, 64)
		if err != nil {
			writeV2Error(w, http.StatusBadRequest, v2InvalidRequest, "id is no integer")
			return
		}
		named, ok := s.cfg.Dictionaries.Get(uint32(id))
		if !ok || int64(uint32(id)) != id {
			writeV2Error(w, http.StatusNotFound, "DictionaryNotFound", fmt.Sprintf("unknown dictionary %d: the current one is %d", id, d.ID()))
			return
		}
		d = named
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("Content-Type", "application/octet-stream")
	h.Set("ETag", fmt.Sprintf(`"zstd-dict-%d"`, d.ID()))
	h.Set("X-Zstd-Dictionary-Id", strconv.FormatUint(uint64(d.ID()), 10))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(d.Bytes()))
}

// emptyPlan says that everything comes over the websocket.
const emptyPlan = `{"plannedThroughSeq":0,"sealedTipSeq":0,"segments":[],"stats":{"segmentsExamined":0,"segmentsMatched":0,"blocksMatched":0,"entries":0}}`

// handlePlanSnapshot answers a valid request with the empty plan.
func (s *Server) handlePlanSnapshot(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Kinds       []string `json:"kinds"`
		DIDs        []string `json:"dids"`
		Collections []string `json:"collections"`
		AfterSeq    *int64   `json:"afterSeq"`
		BeforeSeq   *int64   `json:"beforeSeq"`
	}
	if r.ContentLength < 0 || r.ContentLength > smallPlanBytes {
		select {
		case s.lookups.batches <- struct{}{}:
			defer func() { <-s.lookups.batches }()
		case <-time.After(lookupTimeout):
			unavailable("", "too many large bodies at once: try again in five seconds").writeV2(w)
			return
		}
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPlanBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		writeV2Error(w, http.StatusRequestEntityTooLarge, "PayloadTooLarge", fmt.Sprintf("the body has more than %d bytes", maxPlanBytes))
		return
	case err == nil && len(body) > 0:
		err = json.Unmarshal(body, &in)
	}
	if err == nil {
		asked := wants{collections: newV2CollectionSet(), dids: newDIDSet("DID")}
		_, err = asked.addV2(in.Kinds, in.DIDs, in.Collections)
	}
	for _, seq := range []*int64{in.AfterSeq, in.BeforeSeq} {
		if err == nil && seq != nil && *seq < 0 {
			err = errors.New("afterSeq or beforeSeq is negative")
		}
	}
	if err == nil && in.AfterSeq != nil && in.BeforeSeq != nil && *in.BeforeSeq <= *in.AfterSeq {
		err = errors.New("beforeSeq is not after afterSeq")
	}
	if err != nil {
		writeV2Error(w, http.StatusBadRequest, v2InvalidRequest, err.Error())
		return
	}
	writeV2JSON(w, emptyPlan)
}

func writeV2JSON(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, body) // the client may be gone
}

// handleListSegments: there are no segments here.
func (s *Server) handleListSegments(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	limit, err := strconv.ParseInt(q.Get("limit"), 10, 64)
	if q.Has("limit") && (err != nil || limit < 1) {
		writeV2Error(w, http.StatusBadRequest, v2InvalidRequest, "limit is no positive number")
		return
	}
	if _, err := strconv.ParseUint(q.Get("cursor"), 10, 64); q.Get("cursor") != "" && err != nil {
		writeV2Error(w, http.StatusBadRequest, v2InvalidRequest, "cursor is no number")
		return
	}
	writeV2JSON(w, `{"segments":[]}`)
}

// segmentName is how v2 names segments.
var segmentName = regexp.MustCompile(`^seg_[0-9a-z]{10}\.jss$`)

func (s *Server) handleGetSegment(w http.ResponseWriter, r *http.Request) {
	noSegment(w, segmentName.MatchString(r.URL.Query().Get("name")))
}

func (s *Server) handleGetBlock(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	_, err := strconv.ParseUint(q.Get("blockIndex"), 10, 63)
	noSegment(w, err == nil && segmentName.MatchString(q.Get("segment")))
}

// noSegment answers a request for a segment, of which this server has none: 404 if it is well
// formed, else 400.
func noSegment(w http.ResponseWriter, well bool) {
	if !well {
		writeV2Error(w, http.StatusBadRequest, v2InvalidRequest, "a parameter is missing or malformed")
		return
	}
	writeV2Error(w, http.StatusNotFound, "SegmentNotFound", "this server has no segments: all events come from subscribeEvents")
}
