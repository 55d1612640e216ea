package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/consume/relaysim"
	"millrace/consume/relaysim/testwait"
	"millrace/translate"
)

// truthEvent is one event as the tests compare it.
type truthEvent struct {
	Epoch  int
	Seq    int64
	Op     uint32
	TimeUS int64
	DID    string // UIDs, "" if the event has none
	URI    string
	JSON   string // the plain event with time_us 0

	Unverified    string // why its frame failed; "": it did not, or was not verified
	References    string // see referenceNames
	ReferenceUIDs string // a line for each: UID and what it stands for
}

// position is the event's, if streams has numbered its stream.
func (e truthEvent) position(s *streams) translate.Position {
	return translate.Position{Stream: s.tag(e.Epoch), Seq: e.Seq, Op: e.Op}
}

func (e truthEvent) place() string { return fmt.Sprintf("epoch %d seq %d op %d", e.Epoch, e.Seq, e.Op) }

// allKinds asks for what --truth-sync has, too.
const allKinds = "commit,identity,account,sync"

// readTruth reads what relaysim says that a correct consumer must hold. It may write on meanwhile.
func readTruth(t *testing.T, path string) []truthEvent {
	t.Helper()
	lines, err := relaysim.ReadTruth(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []truthEvent
	for _, l := range lines {
		e := truthEvent{Epoch: int(l.Epoch), Seq: l.Seq, Op: l.Op, JSON: string(l.Event)}
		if l.References != nil || l.Had != nil || l.Repeated {
			e.References = referenceNames(sourcePrefix(t, l.Event), l.LineReferences)
		}
		out = append(out, e)
	}
	return out
}

// withoutSyncs returns the events without #sync, which is what subscribers get by default.
func withoutSyncs(events []truthEvent) []truthEvent {
	return slices.DeleteFunc(events, func(e truthEvent) bool { return strings.Contains(e.JSON, `,"kind":"sync","sync":`) })
}

// streams numbers stream tags in the order they are first seen. A reader from the beginning sees
// them in the order of epochs. Readers of one log may share it.
type streams struct {
	mu   sync.Mutex
	tags map[translate.Stream]int
}

func (s *streams) epoch(tag translate.Stream) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.tags[tag]
	if !ok {
		if s.tags == nil {
			s.tags = map[translate.Stream]int{}
		}
		n = len(s.tags)
		s.tags[tag] = n
	}
	return n
}

// parseTruthEvent reads an event as served; plain ones have no position.
func parseTruthEvent(t *testing.T, line string) truthEvent { return (&streams{}).parse(t, line) }

// parse reads an extended event: its position, and the plain event that is left without it.
func (s *streams) parse(t *testing.T, line string) truthEvent {
	t.Helper()
	var tail struct {
		TimeUS int64  `json:"time_us"`
		Cursor string `json:"cursor"`
		UIDs   struct{ DID, URI string }
		Has    []servedReference `json:"references"`
		Gone   []servedReference `json:"deleted_references"`

		Repeated   bool
		Unverified string
	}
	if err := json.Unmarshal([]byte(line), &tail); err != nil {
		t.Fatalf("not JSON: %v: %.300s", err, line)
	}
	e := truthEvent{TimeUS: tail.TimeUS, DID: tail.UIDs.DID, URI: tail.UIDs.URI, Unverified: tail.Unverified}
	e.References, e.ReferenceUIDs = servedNames(tail.Has, tail.Gone, tail.Repeated)
	if tail.Cursor != "" {
		p, err := translate.ParsePosition(tail.Cursor)
		if err != nil {
			t.Fatal(err)
		}
		e.Epoch, e.Seq, e.Op = s.epoch(p.Stream), p.Seq, p.Op
		at := strings.LastIndex(line, `,"cursor":"`+tail.Cursor+`"`)
		line = line[:at] + "}"
	}
	e.JSON = strings.Replace(line, `"time_us":`+strconv.FormatInt(e.TimeUS, 10), `"time_us":0`, 1)
	return e
}

// checkExact compares what was served with the truth: nothing missing, doubled, changed or out of
// order, and time_us strictly increasing.
func checkExact(t *testing.T, who string, got, want []truthEvent) {
	t.Helper()
	last := int64(0)
	for i, g := range got {
		if i == len(want) {
			t.Fatalf("%s: %d events too many, the first is %s: %.200s", who, len(got)-i, g.place(), g.JSON)
		}
		w := want[i]
		if g.Epoch != w.Epoch || g.Seq != w.Seq || g.Op != w.Op || g.JSON != w.JSON {
			t.Fatalf("%s: event %d is\n%s %s\nwant\n%s %s", who, i, g.place(), g.JSON, w.place(), w.JSON)
		}
		if g.TimeUS <= last {
			t.Fatalf("%s: event %d: time_us %d after %d", who, i, g.TimeUS, last)
		}
		last = g.TimeUS
	}
	if len(got) < len(want) {
		t.Fatalf("%s: %d of %d events, the first that is missing is %s", who, len(got), len(want), want[len(got)].place())
	}
}

// readAll reads extended events from a cursor until n came, and makes sure that no more come.
func readAll(t *testing.T, addr, query string, n int) []truthEvent {
	t.Helper()
	s := subscribe(t, addr, "extended=true&"+query)
	defer s.conn.Close()
	seen := streams{}
	var out []truthEvent
	for {
		wait := patience
		if len(out) >= n {
			wait = 100 * time.Millisecond
		}
		msg, err := s.next(wait)
		if err != nil {
			if len(out) < n {
				t.Fatalf("after %d of %d events: %v", len(out), n, err)
			}
			return out
		}
		if isEvent(msg) {
			out = append(out, seen.parse(t, string(msg)))
		}
	}
}

// readThrough reads extended events of one numbering, and heartbeats, until one of these says that
// all through the seq end has been sent. end may be known later, 0 until then. That nothing comes
// for a while does not show the end of a stream from a machine that stands still.
func (s *subscriber) readThrough(t *testing.T, seen *streams, end *atomic.Int64) (out []truthEvent) {
	t.Helper()
	var events []string // parsed at the end, so that no reader is slow
	defer func() {
		for _, e := range events {
			out = append(out, seen.parse(t, e))
		}
	}()
	for {
		msg, err := s.next(patience)
		if err != nil {
			t.Errorf("after %d events, before the end: %v", len(events), err)
			return nil
		}
		if isEvent(msg) {
			events = append(events, string(msg))
			continue
		}
		var m struct{ Kind, Cursor string }
		if err := json.Unmarshal(msg, &m); err != nil {
			t.Errorf("%v: %.300s", err, msg)
			return nil
		}
		if last := end.Load(); last > 0 && m.Kind == "heartbeat" && m.Cursor != "" {
			if p, err := translate.ParsePosition(m.Cursor); err != nil || p.Seq >= last {
				if err != nil {
					t.Error(err)
				}
				return nil
			}
		}
	}
}

// simulator is a simulated relay of this process.
type simulator struct {
	url   string // ws://…
	truth string // its truth file
	admin string // http://…/admin/
}

// startRelaysim runs the simulated relay until the test ends.
func startRelaysim(t *testing.T, flags ...string) *simulator {
	t.Helper()
	sim := &simulator{truth: filepath.Join(t.TempDir(), "truth.jsonl")}
	cfg, err := relaysim.ParseFlags(append([]string{"--truth", sim.truth, "--generate", "4000", "--accounts", "500"}, flags...))
	if err != nil {
		t.Fatal(err)
	}
	relay, err := relaysim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	listener := listenLoopback(t)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- relay.Serve(ctx, listener) }() // ends with the test
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("relaysim: %v", err)
		}
	})
	sim.url = "ws://" + listener.Addr().String()
	sim.admin = "http://" + listener.Addr().String() + "/admin/"
	return sim
}

// plc is the URL of the relay's PLC directory.
func (s *simulator) plc() string { return strings.TrimSuffix(s.admin, "/admin/") }

// do asks for an action of relaysim's admin endpoints.
func (s *simulator) do(t *testing.T, action string) {
	t.Helper()
	resp, err := http.Post(s.admin+action, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: %s: %s", action, resp.Status, body)
	}
}

// messages reports how many messages relaysim has made.
func (s *simulator) messages(t *testing.T) int64 {
	t.Helper()
	var status struct{ Messages int64 }
	getJSON(t, s.admin+"status", &status)
	return status.Messages
}

// settle ends the stream and returns the truth of all of it.
func (s *simulator) settle(t *testing.T) []truthEvent {
	t.Helper()
	s.do(t, "quiet?for=1h")
	return readTruth(t, s.truth)
}

// waitMade waits until relaysim has made n messages.
func (s *simulator) waitMade(t *testing.T, n int64) {
	t.Helper()
	if !testwait.Becomes(5*patience, func() bool { return s.messages(t) >= n }) {
		t.Fatalf("relaysim made %d of %d messages in five minutes", s.messages(t), n)
	}
}

// goBuild builds a command of this module.
func goBuild(out, pkg string) error {
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", out, pkg)
	if text, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("go build %s: %w", pkg, err), errors.New(string(text)))
	}
	return nil
}
