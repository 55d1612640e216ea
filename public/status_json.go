package public

import (
	"cmp"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/replay"
)

// statusJSON is the answer of /status.
type statusJSON struct {
	Version string    `json:"version"`
	TimeUS  int64     `json:"time_us"`
	Started time.Time `json:"started"`
	UptimeS int64     `json:"uptime_s"`
	readyJSON
	Relay       *relayJSON       `json:"relay"` // null: unknown
	Log         logJSON          `json:"log"`
	Disk        *diskJSON        `json:"disk"` // null: unknown
	Events      eventsJSON       `json:"events"`
	Subscribers subscribersJSON  `json:"subscribers"`
	Dictionary  storedDictionary `json:"dictionary"`
	UIDs        *uidsJSON        `json:"uids"`       // null: interning is off
	References  bool             `json:"references"` // filters by them are taken
	Links       bool             `json:"links"`      // who points at what is answered
	Graph       *graphJSON       `json:"graph"`      // null: it is off
	History     *historyJSON     `json:"history,omitempty"`
}

type graphJSON struct {
	Complete bool    `json:"complete"`
	Done     float64 `json:"done"` // 0 to 1, of a build
	Accounts int     `json:"accounts"`
	Edges    int64   `json:"edges"`
}

type relayJSON struct {
	Relay
	Stream   string  `json:"stream"` // of the position that the log has reached
	Epoch    uint32  `json:"epoch"`
	Seq      int64   `json:"seq"` // 0: nothing of this epoch yet
	LagS     float64 `json:"lag_s"`
	PendingS float64 `json:"pending_s"`
}

type logJSON struct {
	Oldest     *pointJSON `json:"oldest"` // null: the log is empty
	Newest     *pointJSON `json:"newest"`
	RetentionS int64      `json:"retention_s"`
	Events     int64      `json:"events"`
	Bytes      int64      `json:"bytes"`      // before the store compresses them
	DiskBytes  int64      `json:"disk_bytes"` // as they lie on disk
	Gaps       int        `json:"gaps"`
}

type diskJSON struct {
	FreeBytes int64 `json:"free_bytes"`
	// at the pace of the last six hours; null: unknown
	DaysUntilFull *float64 `json:"days_until_full"`
}

type eventsJSON struct {
	rateJSON
	Kinds       []namedRateJSON `json:"kinds"`
	Collections []namedRateJSON `json:"collections"` // the most frequent first
	Other       rateJSON        `json:"other"`       // commits of all other collections
}

// rateJSON is how many events came since the start, and how many a second of late.
type rateJSON struct {
	Total     int64   `json:"total"`
	PerSecond float64 `json:"per_second"`
}

type namedRateJSON struct {
	Name string `json:"name"`
	rateJSON
}

type subscribersJSON struct {
	Now             int64 `json:"now"`
	Max             int   `json:"max"`
	DeliveredEvents int64 `json:"delivered_events"`
	DeliveredBytes  int64 `json:"delivered_bytes"`
}

type storedDictionary struct {
	ID    uint32 `json:"id"`
	Bytes int    `json:"bytes"`
	// compressed by plain, of what came since the start; null: nothing did
	Ratio *float64 `json:"ratio"`
	URL   string   `json:"url"`
}

type uidsJSON struct {
	UIDCount
	Scope string `json:"scope"` // "all" or "dids"
}

// historyJSON are the last steps, the same ones in every series, oldest first.
type historyJSON struct {
	StepMS   int64        `json:"step_ms"`
	EndUS    int64        `json:"end_us"`    // about when the last step ended
	LastStep int64        `json:"last_step"` // its number; -1: none is complete
	Kinds    []seriesJSON `json:"kinds"`
	// the most frequent of the last five minutes, then "other"
	Collections []seriesJSON `json:"collections"`
}

type seriesJSON struct {
	Name   string   `json:"name"`
	Events []uint32 `json:"events"`
}

// perSecond is the mean of the last steps.
func perSecond(c replay.Count) float64 {
	last := c.Recent[max(0, len(c.Recent)-rateSteps):]
	var n float64
	for _, events := range last {
		n += float64(events)
	}
	if n == 0 {
		return 0
	}
	return n / (float64(len(last)) * replay.CountStep.Seconds())
}

func newRateJSON(c replay.Count) rateJSON { return rateJSON{Total: c.Total, PerSecond: perSecond(c)} }

func (r *rateJSON) add(o rateJSON) {
	r.Total += o.Total
	r.PerSecond += o.PerSecond
}

// kindsOf returns the counts by kind and operation under the names they have here.
func kindsOf(c *replay.Counts) []replay.CollectionCount {
	return []replay.CollectionCount{
		{Name: "create", Count: c.Creates}, {Name: "update", Count: c.Updates}, {Name: "delete", Count: c.Deletes},
		{Name: "identity", Count: c.Identities}, {Name: "account", Count: c.Accounts}, {Name: "sync", Count: c.Syncs},
	}
}

func newEventsJSON(c *replay.Counts) eventsJSON {
	answer := eventsJSON{Other: newRateJSON(c.Other), Collections: []namedRateJSON{}}
	for _, k := range kindsOf(c) {
		rate := newRateJSON(k.Count)
		answer.Kinds = append(answer.Kinds, namedRateJSON{k.Name, rate})
		answer.add(rate)
	}
	for i, n := range c.Collections {
		if i < statusCollections {
			answer.Collections = append(answer.Collections, namedRateJSON{n.Name, newRateJSON(n.Count)})
		} else {
			answer.Other.add(newRateJSON(n.Count))
		}
	}
	return answer
}

// newHistoryJSON makes the whole history.
func newHistoryJSON(c *replay.Counts) historyJSON {
	sinceEnd := c.Until.Sub(c.Since) % replay.CountStep
	h := historyJSON{
		StepMS: replay.CountStep.Milliseconds(), EndUS: c.Until.Add(-max(sinceEnd, 0)).UnixMicro(), LastStep: c.Step,
		Collections: []seriesJSON{},
	}
	for _, k := range kindsOf(c) {
		h.Kinds = append(h.Kinds, seriesJSON{k.Name, k.Recent})
	}
	// c has them in the order of all time.
	recent := make(map[string]int64, len(c.Collections))
	for _, n := range c.Collections {
		for _, events := range n.Recent {
			recent[n.Name] += int64(events)
		}
	}
	byRecent := slices.Clone(c.Collections)
	slices.SortStableFunc(byRecent, func(a, b replay.CollectionCount) int {
		return cmp.Compare(recent[b.Name], recent[a.Name])
	})
	other := seriesJSON{"other", slices.Clone(c.Other.Recent)}
	for i, n := range byRecent {
		if i < historyCollections && recent[n.Name] > 0 {
			h.Collections = append(h.Collections, seriesJSON{n.Name, n.Recent})
			continue
		}
		for at, events := range n.Recent {
			other.Events[at] += events
		}
	}
	h.Collections = append(h.Collections, other)
	return h
}

// last returns h with the last steps only.
func (h *historyJSON) last(steps int) *historyJSON {
	short := *h
	cut := func(all []seriesJSON) []seriesJSON {
		out := make([]seriesJSON, len(all))
		for i, s := range all {
			out[i] = seriesJSON{s.Name, s.Events[max(0, len(s.Events)-steps):]}
		}
		return out
	}
	short.Kinds, short.Collections = cut(h.Kinds), cut(h.Collections)
	return &short
}

func counterValue(c prometheus.Counter) int64 {
	var m dto.Metric
	if c.Write(&m) != nil {
		return 0 // a counter always can
	}
	return int64(m.GetCounter().GetValue())
}
