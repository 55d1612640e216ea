package public

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"millrace/public/internal/viewapi"
	"millrace/replay"
	"millrace/replay/graph"
)

const (
	// statusEvery is how often a status is computed at most, however many ask.
	statusEvery = time.Second
	// statusCollections is how many collections a status names; the rest is one number.
	statusCollections = 20
	// historyCollections is how many collections have a history.
	historyCollections = 7
	// rateSteps is how many steps a rate is the mean of: ten seconds.
	rateSteps = int(10 * time.Second / replay.CountStep)
)

// Process is what the process knows and the log does not, for /status.
type Process struct {
	Relay *Relay    // nil: unknown
	UIDs  *UIDCount // nil: interning is off
	// free disk where the stores are, of several disks the least; nil: unknown
	FreeBytes *int64
}

// Relay is the relay that events come from.
type Relay struct {
	Host      string        `json:"host"`
	Connected bool          `json:"connected"`
	Since     time.Time     `json:"since"`            // when Connected last changed
	Error     string        `json:"error,omitempty"`  // why it is not connected
	Advice    string        `json:"advice,omitempty"` // what to do about it; may be empty
	Lag       time.Duration `json:"-"`                // how old frames are when they come
	Pending   time.Duration `json:"-"`                // how old the oldest frame is that came and is not durable yet
}

// UIDCount counts UIDs.
type UIDCount struct {
	Total    uint64 `json:"total"`    // in the store, as far as this process knows
	NewDIDs  uint64 `json:"new_dids"` // given by this process
	NewURIs  uint64 `json:"new_uris"`
	DIDsOnly bool   `json:"-"` // URIs get none
}

// status computes statuses and keeps the newest.
type status struct {
	mu    sync.Mutex
	at    time.Time // of now
	now   statusJSON
	steps historyJSON // all there are
	// now, encoded, by the length of the history: at most replay.CountSteps + 1
	bodies map[int][]byte

	day day // under a lock of its own
}

// handleStatus reports what the page shows.
func (s *Server) handleStatus(w http.ResponseWriter, r *http.Request) {
	steps := 0
	if v := r.URL.Query().Get("history"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			http.Error(w, fmt.Sprintf("history=%.20q is not a number of steps", v), http.StatusBadRequest)
			return
		}
		steps = min(n, replay.CountSteps)
	}
	viewapi.WriteJSON(w, http.StatusOK, s.statusBody(steps))
}

// statusBody returns the status with that much history, encoded. It is shared: callers must not
// change it.
func (s *Server) statusBody(steps int) []byte {
	st := &s.status
	st.mu.Lock()
	defer st.mu.Unlock()
	if now := time.Now(); st.bodies == nil || now.Sub(st.at) >= statusEvery {
		st.now, st.steps = s.computeStatus()
		st.at, st.bodies = now, make(map[int][]byte)
	}
	if body, ok := st.bodies[steps]; ok {
		return body
	}
	answer := st.now
	if steps > 0 {
		answer.History = st.steps.last(steps)
	}
	body, _ := json.Marshal(answer) // its numbers are finite
	st.bodies[steps] = append(body, '\n')
	return st.bodies[steps]
}

func (s *Server) computeStatus() (statusJSON, historyJSON) {
	rng, counts, dictionary := s.events.rangeOf(), s.events.counts(), s.cfg.Dictionaries.Stored()
	sent := s.metrics.deliveredOnAll()
	answer := statusJSON{
		Version:   s.cfg.Version,
		TimeUS:    counts.Until.UnixMicro(),
		Started:   counts.Since.UTC().Truncate(time.Millisecond),
		UptimeS:   int64(counts.Until.Sub(counts.Since).Seconds()),
		readyJSON: s.readiness(),
		Log: logJSON{
			Oldest: newPointJSON(rng.Oldest), Newest: newPointJSON(rng.Newest), RetentionS: int64(rng.Retention.Seconds()),
			Events: rng.Events, Bytes: rng.Bytes, DiskBytes: s.events.diskBytes(), Gaps: len(rng.Gaps),
		},
		Events: newEventsJSON(&counts),
		Subscribers: subscribersJSON{
			Now: s.count.Load(), Max: s.cfg.MaxConnections,
			DeliveredEvents: sent.events, DeliveredBytes: sent.bytes,
		},
		Dictionary: storedDictionary{
			ID: dictionary.ID(), Bytes: len(dictionary.Bytes()), URL: fmt.Sprintf("/dictionaries/%d", dictionary.ID()),
		},
		References: s.hasReferences(),
		Links:      s.cfg.Links != nil,
	}
	if counts.PlainBytes > 0 {
		answer.Dictionary.Ratio = new(float64(counts.ZstdBytes) / float64(counts.PlainBytes))
	}
	process := s.cfg.Process()
	if r := process.Relay; r != nil {
		at := s.events.progress()
		answer.Relay = &relayJSON{
			Relay: *r, Stream: at.Stream.String(), Epoch: at.Epoch, Seq: at.Seq, LagS: r.Lag.Seconds(), PendingS: r.Pending.Seconds(),
		}
		answer.Relay.Since = r.Since.UTC().Truncate(time.Millisecond)
	}
	if free := process.FreeBytes; free != nil {
		answer.Disk = &diskJSON{*free, s.status.day.daysUntilFull(minuteOf(time.Now()))}
	}
	if u := process.UIDs; u != nil {
		answer.UIDs = &uidsJSON{*u, "all"}
		if u.DIDsOnly {
			answer.UIDs.Scope = "dids"
		}
	}
	if s.cfg.Graph != nil {
		answer.Graph = newGraphJSON(s.cfg.Graph)
	}
	return answer, newHistoryJSON(&counts)
}

func newGraphJSON(q graph.Queries) *graphJSON {
	p := q.Progress()
	answer := graphJSON{Complete: p.Complete, Done: p.Done, Edges: p.Edges}
	if g, err := q.Graph(); err == nil {
		s := g.Stats()
		answer.Accounts, answer.Edges = s.Accounts, s.Edges
	}
	return &answer
}
