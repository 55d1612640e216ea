package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"millrace/consume/relaysim"
	"millrace/public/client"
)

// failoverLag is the lag that the clients of TestFailover tolerate.
const failoverLag = 2 * time.Second

// probeTime is how long a client at most asks all servers how far they are, when it leaves one.
const probeTime = 500 * time.Millisecond

// replica is one of several servers behind one relay. Its clients reach it over front, and it
// reaches the relay over back.
type replica struct {
	front, back *network
	dir, addr   string
	wrapper     []string
	process     *millraceProcess
}

func startReplica(t *testing.T, sim *simulator) *replica {
	t.Helper()
	r := &replica{dir: t.TempDir(), addr: freeAddr(t), back: newNetwork(t, strings.TrimPrefix(sim.url, "ws://"))}
	r.back.tunnel = true
	r.front = newNetwork(t, r.addr)
	r.wrapper = []string{"env", "HTTP_PROXY=http://" + r.back.Addr().String()}
	r.start(t)
	return r
}

// start starts the server. Each has the same relay, which only its proxy knows.
func (r *replica) start(t *testing.T) {
	t.Helper()
	r.process = startMillraceUnder(t, r.wrapper, "ws://relay.test", r.dir, r.addr)
	waitServing(t, r.addr)
}

// reached says whether the log has the frame.
func (r *replica) reached(seq int64) bool {
	c, err := client.New(client.Config{URL: r.addr})
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	log, err := c.Range(ctx)
	if err != nil || log.Newest == nil {
		return false
	}
	parts := strings.Split(log.Newest.Cursor, "-")
	n, err := strconv.ParseInt(parts[1], 10, 64)
	return err == nil && n >= seq
}

// switcher reads the events of several servers, and compares each with the truth as it comes.
type switcher struct {
	name  string
	v2    bool
	c     *client.Client
	truth *os.File
	lines *bufio.Reader

	events atomic.Int64

	mu      sync.Mutex
	last    time.Time // when the last event came
	lost    time.Time // since when there has been no connection; zero: there is one
	longest time.Duration
	trail   string // since lost
	slowest string // trail of longest
	reasons map[string]int
}

func newSwitcher(t *testing.T, truth, name string, v2 bool, addrs ...string) *switcher {
	t.Helper()
	s := &switcher{name: name, v2: v2, reasons: map[string]int{}}
	cfg := client.Config{Cursor: "0", Kinds: client.AllKinds(), Heartbeat: time.Second, Lag: failoverLag, OnDisconnect: s.disconnected}
	for _, url := range addrs {
		if v2 {
			url += client.V2Path
		}
		cfg.URLs = append(cfg.URLs, url)
	}
	cfg.OnInfo = func(i client.Info) {
		if i.Name == client.InfoClamped || i.Name == client.InfoGap {
			t.Errorf("%s: %+v", name, i)
		}
	}
	var err error
	if s.c, err = client.New(cfg); err != nil {
		t.Fatal(err)
	}
	if s.truth, err = os.Open(truth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.truth.Close() })
	s.lines = bufio.NewReaderSize(s.truth, 1<<20)
	return s
}

// disconnected is told after the client has asked all servers how far they are.
func (s *switcher) disconnected(err error, _ time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	noticed := time.Now().Add(-probeTime)
	if !s.lost.IsZero() {
		s.reasons["another attempt"]++
		s.trail += fmt.Sprintf("; %v later %v", time.Since(s.lost), err)
		if errors.Is(err, client.ErrSilent) {
			s.lost = noticed // it was connected, and must leave that server as well
		}
		return
	}
	s.lost, s.trail = noticed, err.Error()
	switch {
	case errors.Is(err, client.ErrSilent):
		s.reasons["silence"]++
	case errors.Is(err, client.ErrLag):
		s.reasons["lag"]++
	default:
		s.reasons["error"]++
		s.lost = s.last
	}
}

// run reads until ctx is done.
func (s *switcher) run(ctx context.Context) error {
	for e, err := range s.c.Events(ctx) {
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = s.take(&e)
		}
		if err != nil {
			return fmt.Errorf("%s: event %d: %w", s.name, s.events.Load(), err)
		}
		s.events.Add(1)
	}
	return nil
}

// take compares an event with the next line of the truth, which was written before it was sent.
func (s *switcher) take(e *client.Event) error {
	s.mu.Lock()
	if !s.lost.IsZero() {
		if took := time.Since(s.lost); took > s.longest {
			s.longest, s.slowest = took, s.trail
		}
		s.lost = time.Time{}
	}
	s.last = time.Now()
	s.mu.Unlock()
	line, err := s.lines.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("%s comes after the end of the truth: %w", e.Cursor, err)
	}
	var want relaysim.Line
	if err := json.Unmarshal(line, &want); err != nil {
		return err
	}
	if s.v2 {
		var event struct{ DID, Kind string }
		err := json.Unmarshal(want.Event, &event)
		at := strconv.FormatInt(want.Seq<<10+int64(want.Op), 10)
		if err != nil || e.Cursor != at || e.DID != event.DID || string(e.Kind) != event.Kind {
			return fmt.Errorf("%s %s %s, want %s %s", e.Cursor, e.Kind, e.DID, at, want.Event)
		}
		return nil
	}
	at := fmt.Sprintf("-%d-%d", want.Seq, want.Op)
	got := bytes.Replace(e.AppendPlain(nil), fmt.Appendf(nil, `"time_us":%d`, e.TimeUS), []byte(`"time_us":0`), 1)
	if !strings.HasSuffix(e.Cursor, at) || !bytes.Equal(got, want.Event) {
		return fmt.Errorf("%s %s, want %s %s", e.Cursor, got, at, want.Event)
	}
	return nil
}

// TestFailover: of three servers behind one relay at most two at a time are killed, cut off, or cut
// off from the relay, the one that is read above all. Clients of both wires get every event once,
// in order. MILLRACE_TEST_FAILOVER_MINUTES says for how long; MILLRACE_TEST_FAILOVER_RATE is the
// relay's.
func TestFailover(t *testing.T) {
	if !long() {
		t.Skip("kills three servers for a minute: MILLRACE_TEST_LONG=1")
	}
	t.Parallel()
	rng := rand.New(rand.NewPCG(testSeed(t), 0))
	lasting, err := strconv.ParseFloat(cmpOr(os.Getenv("MILLRACE_TEST_FAILOVER_MINUTES"), "1"), 64)
	if err != nil {
		t.Fatal(err)
	}
	sim := startRelaysim(t, "--rate", cmpOr(os.Getenv("MILLRACE_TEST_FAILOVER_RATE"), "1000"), "--wait-for-consumer", "--window-bytes", "1000000000", "--window-frames", "1000000", "--truth-sync")
	var replicas []*replica
	var fronts []string
	for range 3 {
		replicas = append(replicas, startReplica(t, sim))
		fronts = append(fronts, replicas[len(replicas)-1].front.Addr().String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var reading errgroup.Group
	var readers []*switcher
	for _, v2 := range []bool{false, true} {
		s := newSwitcher(t, sim.truth, map[bool]string{false: "/subscribe", true: "v2"}[v2], v2, fronts...)
		readers = append(readers, s)
		reading.Go(func() error { return s.run(ctx) })
	}
	failed := make(chan error, 1)
	go func() { failed <- reading.Wait() }() // ends with ctx
	for _, r := range replicas {
		waitFor(t, "a server's first event", func() bool { return r.reached(1) })
	}
	known := int64(lineCount(t, sim.truth)) // each log begins before that
	for _, s := range readers {
		waitFor(t, "an event that all have", func() bool { return s.events.Load() >= known })
	}

	did := map[string]int{}
	end := time.Now().Add(time.Duration(lasting * float64(time.Minute)))
	for fault := 0; time.Now().Before(end) || fault < 3; fault++ {
		select {
		case err := <-failed:
			t.Fatal(err)
		default:
		}
		var heal []func()
		victims := busiest(replicas)
		if rng.IntN(3) == 0 {
			rng.Shuffle(len(victims), func(i, j int) { victims[i], victims[j] = victims[j], victims[i] })
		}
		for n, r := range victims[:1+rng.IntN(2)] {
			kind := rng.IntN(3)
			if fault < 3 && n == 0 {
				kind = fault // each at least once
			}
			switch kind {
			case 0:
				did["kill"]++
				r.process.kill()
				heal = append(heal, func() { r.start(t) })
			case 1:
				did["stall"]++
				r.front.hold()
				heal = append(heal, r.front.release)
			default:
				did["lag"]++
				r.back.hold()
				heal = append(heal, r.back.release)
			}
		}
		select { // longer than a client tolerates, as a rule
		case <-time.After(time.Second + time.Duration(rng.Int64N(int64(3*failoverLag)))):
		case err := <-failed:
			t.Fatal(err)
		}
		for _, f := range heal {
			f()
		}
		made := sim.messages(t)
		for _, r := range replicas {
			waitFor(t, "a server that catches up", func() bool { return r.reached(made) })
		}
	}
	sim.do(t, "quiet?for=1h")
	want := int64(lineCount(t, sim.truth))
	for _, s := range readers {
		waitFor(t, "the last event", func() bool { return s.events.Load() >= want })
	}
	cancel()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d events; faults %v", want, did)
	for _, s := range readers {
		s.mu.Lock()
		stats := s.c.Stats()
		t.Logf("%s: %d connections, %d switches, ended by %v, %d repeats dropped; the longest switch took %v (%s)", s.name,
			stats.Connects, stats.Switches, s.reasons, stats.Duplicates, s.longest.Round(time.Millisecond), s.slowest)
		if s.events.Load() != want || stats.Switches == 0 {
			t.Errorf("%s: %d of %d events, %d switches", s.name, s.events.Load(), want, stats.Switches)
		}
		s.mu.Unlock()
	}
}

// busiest returns the servers, that which has sent the most to clients since the last call first.
func busiest(replicas []*replica) []*replica {
	sent := map[*replica]int64{}
	order := append([]*replica(nil), replicas...)
	for _, r := range replicas {
		sent[r] = r.front.down.Swap(0)
	}
	for i := range order {
		if sent[order[i]] > sent[order[0]] {
			order[0], order[i] = order[i], order[0]
		}
	}
	return order
}

// lineCount counts the lines of a file that is too large to hold.
func lineCount(t *testing.T, name string) (lines int) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buf := make([]byte, 1<<20)
	for {
		n, err := f.Read(buf)
		lines += bytes.Count(buf[:n], []byte("\n"))
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
