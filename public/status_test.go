package public

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/consume/relaysim/testwait"
	"millrace/replay"
)

// statusSource is an event log whose counts are given, and says how often it was asked for them.
func statusSource(counts replay.Counts) (eventLog, *atomic.Int64) {
	asked := new(atomic.Int64)
	return eventLog{
		counts:    func() replay.Counts { asked.Add(1); return counts },
		rangeOf:   func() replay.Range { return replay.Range{Events: 10, Bytes: 1000, Gaps: make([]replay.Gap, 3)} },
		progress:  func() replay.Progress { return replay.Progress{Stream: 0xb7e1c0, Epoch: 2, Seq: 42} },
		diskBytes: func() int64 { return 700 },
	}, asked
}

// count is a count of the same number of events in each of some steps.
func count(total int64, steps int, each uint32) replay.Count {
	c := replay.Count{Total: total, Recent: make([]uint32, steps)}
	for i := range c.Recent {
		c.Recent[i] = each
	}
	return c
}

func testCounts(steps int) replay.Counts {
	since := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	c := replay.Counts{
		Since: since, Until: since.Add(time.Duration(steps)*replay.CountStep + time.Second/2), Step: int64(steps - 1),
		Creates: count(5000, steps, 50), Updates: count(20, steps, 2), Deletes: count(30, steps, 3), Identities: count(4, steps, 0),
		Accounts: count(5, steps, 1), Syncs: count(6, steps, 4), Other: count(7, steps, 1), PlainBytes: 1000, ZstdBytes: 250,
	}
	for i := range 25 {
		c.Collections = append(c.Collections, replay.CollectionCount{Name: fmt.Sprintf("com.example.c%d", i), Count: count(int64(100-i), steps, uint32(i))})
	}
	return c
}

func (s *testServer) status(query string) statusJSON {
	s.t.Helper()
	w := s.get("GET", "/status"+query, nil)
	var answer statusJSON
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != 200 || w.Header().Get("Cache-Control") != "no-store" {
		s.t.Fatalf("/status%s: %d %v %v\n%s", query, w.Code, w.Header(), err, w.Body)
	}
	return answer
}

func TestStatus(t *testing.T) {
	src, _ := statusSource(testCounts(10))
	since := time.Date(2026, 7, 1, 13, 0, 0, 0, time.UTC)
	registry, free := newRegistry(t), int64(5e9)
	s := serveSource(t, src, registry, func(cfg *Config, _ *timing) {
		cfg.Health = func() []Check { return []Check{{"disk_free", false, "short"}} }
		cfg.Process = func() Process {
			return Process{
				FreeBytes: &free,
				Relay:     &Relay{Host: "relay.test", Connected: true, Since: since, Error: "lost", Advice: "wait", Lag: 1500 * time.Millisecond, Pending: time.Millisecond},
				UIDs:      &UIDCount{Total: 9, NewDIDs: 1, NewURIs: 2},
			}
		}
	})
	s.metrics.delivered[wireV1].events.Add(10)
	s.metrics.delivered[wireV2].events.Add(2)
	s.metrics.delivered[wireV1].bytes.Add(3000)
	s.metrics.delivered[wireV2].bytes.Add(456)
	ratio := 0.25
	want := statusJSON{
		Version: "test", TimeUS: testCounts(10).Until.UnixMicro(), Started: testCounts(10).Since, UptimeS: 20,
		Relay:       &relayJSON{Relay: Relay{Host: "relay.test", Connected: true, Since: since, Error: "lost", Advice: "wait"}, Stream: "b7e1c0", Epoch: 2, Seq: 42, LagS: 1.5, PendingS: 0.001},
		readyJSON:   readyJSON{Checks: []Check{{"disk_free", false, "short"}, {Name: "serving", OK: true}}},
		Disk:        &diskJSON{FreeBytes: free},
		Log:         logJSON{Events: 10, Bytes: 1000, DiskBytes: 700, Gaps: 3},
		Subscribers: subscribersJSON{Max: 20_000, DeliveredEvents: 12, DeliveredBytes: 3456},
		Dictionary: storedDictionary{ID: registry.Stored().ID(), Bytes: len(registry.Stored().Bytes()), Ratio: &ratio,
			URL: fmt.Sprintf("/dictionaries/%d", registry.Stored().ID())},
		UIDs: &uidsJSON{UIDCount{Total: 9, NewDIDs: 1, NewURIs: 2}, "all"},
		Events: eventsJSON{
			rateJSON: rateJSON{5065, 30},
			Kinds: []namedRateJSON{{"create", rateJSON{5000, 25}}, {"update", rateJSON{20, 1}}, {"delete", rateJSON{30, 1.5}},
				{"identity", rateJSON{4, 0}}, {"account", rateJSON{5, 0.5}}, {"sync", rateJSON{6, 2}}},
			Other: rateJSON{7 + 80 + 79 + 78 + 77 + 76, (1 + 20 + 21 + 22 + 23 + 24) / 2.},
		},
	}
	for i := range 20 {
		want.Events.Collections = append(want.Events.Collections, namedRateJSON{fmt.Sprintf("com.example.c%d", i), rateJSON{int64(100 - i), float64(i) / 2}})
	}
	if diff := cmp.Diff(want, s.status(""), cmp.AllowUnexported(statusJSON{}, eventsJSON{}, namedRateJSON{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestStatusOfALog counts what a real log holds.
func TestStatusOfALog(t *testing.T) {
	l, all := mixed(t)
	s := serve(t, l, nil)
	got := s.status("?history=150")
	if int(got.Events.Total) != len(all) || got.Log.Newest == nil || got.Log.Newest.Cursor != all[len(all)-1].cursor() ||
		got.Log.Oldest.TimeUS != all[0].timeUS || got.Log.DiskBytes <= 0 || got.Relay != nil || got.UIDs != nil {
		t.Errorf("%+v", got)
	}
	if r := got.Dictionary.Ratio; r == nil || *r <= 0 || *r >= 1 {
		t.Errorf("ratio %v", r)
	}
	var kinds int64
	for _, k := range got.Events.Kinds {
		kinds += k.Total
	}
	if kinds != got.Events.Total || got.History == nil {
		t.Errorf("kinds sum to %d of %d; history %v", kinds, got.Events.Total, got.History)
	}
}

func TestStatusHistory(t *testing.T) {
	src, _ := statusSource(testCounts(10))
	s := serveSource(t, src, newRegistry(t), nil)
	h := s.status("?history=3").History
	want := &historyJSON{StepMS: 2000, EndUS: testCounts(10).Since.Add(20 * time.Second).UnixMicro(), LastStep: 9}
	for i, name := range []string{"create", "update", "delete", "identity", "account", "sync"} {
		each := []uint32{50, 2, 3, 0, 1, 4}[i]
		want.Kinds = append(want.Kinds, seriesJSON{name, []uint32{each, each, each}})
	}
	other := uint32(1)
	for i := 24; i > 24-historyCollections; i-- { // by what they had of late, not by their totals
		want.Collections = append(want.Collections, seriesJSON{fmt.Sprintf("com.example.c%d", i), []uint32{uint32(i), uint32(i), uint32(i)}})
	}
	for i := range 25 - historyCollections {
		other += uint32(i)
	}
	want.Collections = append(want.Collections, seriesJSON{"other", []uint32{other, other, other}})
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for query, steps := range map[string]int{"?history=10": 10, "?history=100000": 10, "?history=1": 1} {
		if got := s.status(query).History; len(got.Kinds[4].Events) != steps || len(got.Collections[0].Events) != steps {
			t.Errorf("%s: %d and %d steps", query, len(got.Kinds[4].Events), len(got.Collections[0].Events))
		}
	}
	for _, query := range []string{"", "?history=", "?history=0"} {
		if s.status(query).History != nil {
			t.Errorf("%q: there is a history", query)
		}
	}
	for _, v := range []string{"x", "-1", "1e3"} {
		if w := s.get("GET", "/status?history="+v, nil); w.Code != 400 || !strings.Contains(w.Body.String(), v) {
			t.Errorf("history=%s: %d %s", v, w.Code, w.Body)
		}
	}
	empty, _ := statusSource(replay.Counts{Step: -1})
	h = serveSource(t, empty, newRegistry(t), nil).status("?history=9").History
	if h.LastStep != -1 || len(h.Collections) != 1 || len(h.Collections[0].Events) != 0 {
		t.Errorf("before the first step: %+v", h)
	}
}

func TestStatusIsComputedOnceASecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src, asked := statusSource(testCounts(10))
		s := serveSourceBubble(t, src, newRegistry(t), nil)
		for i := range 1000 {
			s.status(fmt.Sprintf("?history=%d", i))
		}
		if asked.Load() != 1 {
			t.Errorf("computed %d times in no time", asked.Load())
		}
		if n := len(s.Server.status.bodies); n > replay.CountSteps+1 {
			t.Errorf("%d answers are kept", n)
		}
		testwait.Elapse(statusEvery)
		before := asked.Load()
		if s.status(""); asked.Load() != before+1 {
			t.Error("a second later it is not computed anew")
		}
	})
}

// TestHistoryLeavesCounts: what a history adds up changes none of the counts.
func TestHistoryLeavesCounts(t *testing.T) {
	c := replay.Counts{Other: replay.Count{Recent: []uint32{1, 2}}}
	for i := range historyCollections + 2 {
		c.Collections = append(c.Collections, replay.CollectionCount{Name: fmt.Sprint(i), Count: replay.Count{Recent: []uint32{5, 6}}})
	}
	first, again := newHistoryJSON(&c), newHistoryJSON(&c)
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("a second history (-first +second):\n%s", diff)
	}
	if other := first.Collections[historyCollections]; other.Name != "other" || !slices.Equal(other.Events, []uint32{11, 14}) {
		t.Errorf("the rest is %+v", other)
	}
}
