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
func (s *Server) handleZstdDictionary(w http.ResponseWriter, r *http.Request) error {
	d := s.cfg.Dictionaries.Stored()
	h := w.Header()
	if q := r.URL.Query(); q.Has("id") {
		id, err := strconv.ParseInt(q.Get("id"), 10, 64)
		if err != nil {
			return errors.New("id is no integer: it is a dictionary's ID, or is left out for the current one")
		}
		named, ok := s.cfg.Dictionaries.Get(uint32(id))
		if !ok || int64(uint32(id)) != id {
			return notFound("DictionaryNotFound", "unknown dictionary %d: the current one is %d", id, d.ID())
		}
		d = named
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("Content-Type", "application/octet-stream")
	h.Set("ETag", fmt.Sprintf(`"zstd-dict-%d"`, d.ID()))
	h.Set("X-Zstd-Dictionary-Id", strconv.FormatUint(uint64(d.ID()), 10))
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(d.Bytes()))
	return nil
}

// emptyPlan says that everything comes over the websocket.
const emptyPlan = `{"plannedThroughSeq":0,"sealedTipSeq":0,"segments":[],"stats":{"segmentsExamined":0,"segmentsMatched":0,"blocksMatched":0,"entries":0}}`

// planRequest is the body of planSnapshot.
type planRequest struct {
	Kinds       planList `json:"kinds"`
	DIDs        planList `json:"dids"`
	Collections planList `json:"collections"`
	AfterSeq    *int64   `json:"afterSeq"`
	BeforeSeq   *int64   `json:"beforeSeq"`
}

// planList is a list of the request. One that is too long for any would take memory in vain.
type planList []string

// UnmarshalJSON implements json.Unmarshaler.
func (l *planList) UnmarshalJSON(data []byte) error {
	if bytes.Count(data, []byte(",")) > maxWantedDIDs { // none of what may be listed has one
		return invalidOption("too many values in a list: at most %d are taken", maxWantedDIDs)
	}
	return json.Unmarshal(data, (*[]string)(l))
}

func (p *planRequest) check() error {
	asked := newV2Wants()
	if _, err := asked.addV2(p.Kinds, p.DIDs, p.Collections); err != nil {
		return err
	}
	for _, seq := range []*int64{p.AfterSeq, p.BeforeSeq} {
		if seq != nil && *seq < 0 {
			return errors.New("afterSeq or beforeSeq is negative: seqs are 0 or more")
		}
	}
	if p.AfterSeq != nil && p.BeforeSeq != nil && *p.BeforeSeq <= *p.AfterSeq {
		return errors.New("beforeSeq must be larger than afterSeq")
	}
	return nil
}

// handlePlanSnapshot answers a valid request with the empty plan.
func (s *Server) handlePlanSnapshot(w http.ResponseWriter, r *http.Request) error {
	if r.ContentLength < 0 || r.ContentLength > smallPlanBytes {
		done, err := s.lookups.takeBatchTurn(r)
		if err != nil {
			return err
		}
		defer done()
	}
	err := s.lookups.readBody(w, r, maxPlanBytes, func(body io.Reader) error {
		var p planRequest
		raw, err := io.ReadAll(body)
		if err == nil && len(raw) > 0 {
			err = json.Unmarshal(raw, &p)
		}
		if err != nil {
			return err
		}
		return p.check()
	})
	if err != nil {
		return err
	}
	writeV2JSON(w, emptyPlan)
	return nil
}

func writeV2JSON(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, body) // the client may be gone
}

// handleListSegments: there are no segments here.
func handleListSegments(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	limit, err := strconv.ParseInt(q.Get("limit"), 10, 64)
	if q.Has("limit") && (err != nil || limit < 1) {
		return errors.New("limit is no number from 1 on: leave it out for all")
	}
	if _, err := strconv.ParseUint(q.Get("cursor"), 10, 64); q.Get("cursor") != "" && err != nil {
		return errors.New("cursor is no number: leave it out to begin with the first")
	}
	writeV2JSON(w, `{"segments":[]}`)
	return nil
}

// segmentName is how v2 names segments.
var segmentName = regexp.MustCompile(`^seg_[0-9a-z]{10}\.jss$`)

func handleGetSegment(_ http.ResponseWriter, r *http.Request) error {
	return noSegment(segmentName.MatchString(r.URL.Query().Get("name")))
}

func handleGetBlock(_ http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	_, err := strconv.ParseUint(q.Get("blockIndex"), 10, 63)
	return noSegment(err == nil && segmentName.MatchString(q.Get("segment")))
}

// noSegment is the answer to a request for a segment, of which this server has none: 404 if it is
// well formed, else 400.
func noSegment(well bool) error {
	if !well {
		return errors.New("a parameter is missing or malformed: getSegment takes name, getBlock segment and blockIndex, and names are like seg_0000000001.jss")
	}
	return notFound("SegmentNotFound", "this server has no segments: all events come from subscribeEvents")
}
