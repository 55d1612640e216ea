package main

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/testwait"
	"millrace/translate"
)

// long reports whether the tests may take minutes: make test-long.
func long() bool { return os.Getenv("MILLRACE_TEST_LONG") != "" }

// onlyLong is for a test that keeps both cores busy for ten seconds and more.
func onlyLong(t *testing.T) {
	t.Helper()
	if !long() {
		t.Skip("it takes long: MILLRACE_TEST_LONG=1, as make test-long")
	}
}

// testSeed is MILLRACE_TEST_SEED, to repeat a failure, or a fresh one; it is printed.
func testSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("MILLRACE_TEST_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("MILLRACE_TEST_SEED: %v", err)
		}
	}
	t.Logf("seed %d", seed)
	return seed
}

// skipUnderRace is for tests whose server is a process of its own. The race detector would see
// nothing of it, and slow down the clients that are to keep up with it.
func skipUnderRace(t *testing.T) {
	t.Helper()
	if testwait.Race {
		t.Skip("the server is a process that the race detector does not watch")
	}
}

// sustainedRate is --rate of a relay whose frames the test reads to the end. It is a fifth under
// the race detector, whose server would never catch up.
func sustainedRate(frames int) string {
	if testwait.Race {
		frames /= 5
	}
	return strconv.Itoa(frames)
}

// memoryOf returns --memory of the n-th process or round. Every other one has the default, and so
// the layout with blob files, which smaller memtables do without.
func memoryOf(n int) string {
	if n%2 == 1 {
		return "256MiB"
	}
	return "64MiB"
}

// millraceProcess is a daemon in a process of its own, to be killed.
type millraceProcess struct {
	cmd    *exec.Cmd
	addr   string
	stderr *bytes.Buffer // to be read once exited is closed
	exited chan struct{}
}

func startMillrace(t *testing.T, relay, dir, addr string, flags ...string) *millraceProcess {
	t.Helper()
	return startMillraceUnder(t, nil, relay, dir, addr, flags...)
}

// startMillraceUnder starts it by another command that ends with executing its arguments.
func startMillraceUnder(t *testing.T, wrapper []string, relay, dir, addr string, flags ...string) *millraceProcess {
	t.Helper()
	skipUnderRace(t)
	bin := binaries(t)
	p := &millraceProcess{addr: addr, stderr: &bytes.Buffer{}, exited: make(chan struct{})}
	argv := append(slices.Clone(wrapper), bin["millrace"], "serve", "--relay", relay, "--data-dir", dir, "--listen", addr,
		"--metrics-listen", "", "--memory", "64MiB", "--min-free-disk", "0", "--log-level", "warn")
	argv = append(argv, flags...)
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Stderr = p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process, which kill ends
		defer close(p.exited)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(p.kill)
	return p
}

// lives waits that long, or until the process has exited. It says whether it lives.
func (p *millraceProcess) lives(d time.Duration) bool {
	select {
	case <-p.exited:
		return false
	case <-time.After(d):
		return true
	}
}

// kill is kill -9. Safe twice.
func (p *millraceProcess) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// A process killed at random moments, and started again each time, holds the truth: nothing is
// missing, doubled or out of order. A subscriber that goes on by position after each kill saw the
// very events, time_us included, that the log has in the end. Nothing was shown that a restart took
// back.
func TestKill9(t *testing.T) {
	t.Parallel()
	kills, frames := 3, 6000
	if long() {
		kills, frames = 20, 50_000
	}
	rng := rand.New(rand.NewPCG(testSeed(t), 0))
	sim := startRelaysim(t, "--rate", "2000", "--frames", strconv.Itoa(frames), "--wait-for-consumer", "--churn-every", "5", "--truth-references", "--truth-sync")
	dir, addr := t.TempDir(), freeAddr(t)

	follow := &follower{t: t, addr: addr, query: "&references=true&wantedKinds=" + allKinds, ended: make(chan struct{})}
	var following sync.WaitGroup
	following.Go(follow.run)
	t.Cleanup(func() { follow.stop(); following.Wait() })

	for n := range kills {
		p := startMillrace(t, sim.url, dir, addr, "--memory", memoryOf(n), "--references=on")
		// until something is committed a restart begins live, and misses what was before
		if n == 0 {
			waitFor(t, "the first event", func() bool { return follow.count() > 0 })
		}
		if !p.lives(100*time.Millisecond + time.Duration(rng.Int64N(int64(time.Second)))) {
			t.Errorf("it exited before it was killed: %s", p.stderr)
		}
		p.kill()
		if p.stderr.Len() > 0 {
			t.Logf("%s", p.stderr)
		}
	}
	p := startMillrace(t, sim.url, dir, addr, "--references=on")
	sim.waitMade(t, int64(frames))
	want := readTruth(t, sim.truth)
	waitServing(t, addr)
	got := readAll(t, addr, "references=true&cursor=0&wantedKinds="+allKinds, len(want))
	checkExact(t, "the log", got, want)
	checkReferencesAre(t, "the log", got, want)

	waitFor(t, "the follower to see everything", func() bool { return follow.count() >= len(want) })
	follow.stop()
	following.Wait()
	checkExact(t, "the follower", follow.events, want)
	for i := range got {
		if shown := follow.events[i]; shown != got[i] {
			t.Fatalf("event %d was shown as\n%+v\nbut the log has\n%+v\nit was published before it was durable", i, shown, got[i])
		}
	}
	checkUIDs(t, got)
	p.terminate()
	checkRecordTable(t, dir, got)
	t.Logf("%d events exact after %d kills", len(want), kills)
}

// terminate is SIGTERM. It returns once the process has ended.
func (p *millraceProcess) terminate() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.kill()
	}
}

// follower subscribes again and again, each time after the last position it has seen.
type follower struct {
	t     *testing.T
	addr  string
	query string // beside cursor and extended
	ended chan struct{}

	mu     sync.Mutex
	once   sync.Once
	events []truthEvent
}

func (f *follower) stop() { f.once.Do(func() { close(f.ended) }) }

func (f *follower) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.events)
}

// seq returns the relay's number of the newest event seen.
func (f *follower) seq() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.events) == 0 {
		return 0
	}
	return f.events[len(f.events)-1].Seq
}

func (f *follower) run() {
	cursor, seen := "0", streams{}
	for {
		select {
		case <-f.ended:
			return
		case <-time.After(20 * time.Millisecond):
		}
		conn, _, err := websocket.DefaultDialer.Dial("ws://"+f.addr+"/subscribe?extended=true&cursor="+cursor+f.query, nil)
		if err != nil {
			continue // not up yet, or killed
		}
		done := make(chan struct{})
		go func() { // ends with this connection
			select {
			case <-f.ended:
			case <-done:
			}
			conn.Close()
		}()
		for {
			_, msg, err := conn.ReadMessage()
			if err != nil {
				break
			}
			if !isEvent(msg) {
				continue
			}
			e := seen.parse(f.t, string(msg))
			cursor = nextCursor(msg)
			f.mu.Lock()
			f.events = append(f.events, e)
			f.mu.Unlock()
		}
		close(done)
	}
}

// Malformed frames of every kind among good ones: the process lives, keeps its connection, holds
// every good event, and counts each reason.
func TestHostileFrames(t *testing.T) {
	t.Parallel()
	frames := 3001 // after an error frame must come a good one
	if long() {
		frames = 40_000 // the huge kinds come once in 64 rounds
	}
	sim := startRelaysim(t, "--frames", strconv.Itoa(frames), "--hostile-every", "3", "--wait-for-consumer")
	d := startDaemon(t, sim.url, t.TempDir())
	sim.waitMade(t, int64(frames))
	want := readTruth(t, sim.truth)
	checkExact(t, "the log", readAll(t, d.addr, "cursor=0", len(want)), want)

	if n := d.counter(t, "millrace_consume_reconnects_total"); n != 0 {
		t.Errorf("%v reconnects, want none", n)
	}
	if !d.client.Status().Connected {
		t.Error("the relay is not connected")
	}
	for _, r := range []translate.Reason{
		translate.ReasonTruncatedFrame, translate.ReasonUnknownKind,
		translate.ReasonInvalidDID, translate.ReasonInvalidRev, translate.ReasonInvalidTime,
		translate.ReasonInvalidCAR, translate.ReasonInvalidPath, translate.ReasonUnknownAction, translate.ReasonMissingCID,
		translate.ReasonMissingBlock, translate.ReasonCIDMismatch, translate.ReasonInvalidRecord, translate.ReasonTooLarge,
	} {
		if r == translate.ReasonTooLarge && !long() {
			continue
		}
		if d.counter(t, "millrace_translate_dropped_total", r.String()) == 0 {
			t.Errorf("nothing was counted as %s", r)
		}
	}
	for _, kind := range []translate.FrameKind{translate.FrameTooBig, translate.FrameSync, translate.FrameUnknown} {
		if d.counter(t, "millrace_translate_frames_total", kind.String()) == 0 {
			t.Errorf("no frame was counted as %s", kind)
		}
	}
	for _, name := range []string{"FutureCursor", "ConsumerTooSlow", "other"} {
		if d.counter(t, "millrace_consume_error_frames_total", name) == 0 {
			t.Errorf("no error frame was counted as %s", name)
		}
	}
	if d.counter(t, "millrace_consume_repeats_total") == 0 {
		t.Error("no old frame was counted as a repeat")
	}
	// What has no readable header or seq never leaves consume.
	for _, reason := range []string{"text", "empty", "bad_header", "bad_op", "no_seq"} {
		if d.counter(t, "millrace_consume_dropped_total", reason) == 0 {
			t.Errorf("consume dropped nothing as %s", reason)
		}
	}
}

// With interning off events have no UIDs; with DIDs only, no UIDs of URIs.
func TestInternScopes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		flag     string
		did, uri bool
	}{{"--intern=off", false, false}, {"--intern-scope=dids", true, false}, {"--intern=pebble", true, true}} {
		sim := startRelaysim(t, "--frames", "200", "--wait-for-consumer")
		d := startDaemon(t, sim.url, t.TempDir(), tc.flag)
		sim.waitMade(t, 200)
		did, uri := 0, 0
		want := readTruth(t, sim.truth)
		for _, e := range readAll(t, d.addr, "cursor=0", len(want)) {
			if e.DID != "" {
				did++
			}
			if e.URI != "" {
				uri++
			}
		}
		if (did == len(want)) != tc.did || (did == 0) == tc.did || (uri > 0) != tc.uri {
			t.Errorf("%s: of %d events %d have a DID's UID, %d a URI's", tc.flag, len(want), did, uri)
		}
	}
}

// The relay's numbering jumps, repeats, restarts without a word, and comes back: each does what is
// promised and the log stays exact.
func TestNumbering(t *testing.T) {
	t.Parallel()
	sim := startRelaysim(t, "--rate", "2000", "--wait-for-consumer", "--first-seq", "1000000")
	d := startDaemon(t, sim.url, t.TempDir(), "--epoch-patience", "3s")
	at := func(n int64) { t.Helper(); sim.waitMade(t, sim.messages(t)+n) }
	at(500)
	sim.do(t, "jump?by=5000") // in mid-connection: the relay just leaves numbers out
	at(500)
	sim.do(t, "repeat?n=300")
	at(500)
	waitFor(t, "all 300 repeats counted", func() bool { return d.counter(t, "millrace_consume_repeats_total") >= 300 })
	if n := d.counter(t, "millrace_consume_gaps_total"); n != 0 {
		t.Errorf("%v gaps, want none so far", n)
	}
	sim.do(t, "restart-numbering") // begins at 1, silently
	waitFor(t, "a new epoch", func() bool { return d.log.Progress().Epoch == 2 })
	at(500)
	sim.do(t, "disconnect?after=0")
	at(500)
	if n := len(d.log.Range().Gaps); n != 1 {
		t.Errorf("%d gaps in the log, want one, between the epochs: %v", n, d.log.Range().Gaps)
	}
	// What the new numbering had sent before our first look at it is the gap; all else is there.
	// The truth goes on growing: compare with the part that was there first.
	want := slices.DeleteFunc(readTruth(t, sim.truth), func(e truthEvent) bool {
		return e.Epoch == 1 && e.Seq < d.log.Range().Gaps[0].To.Seq
	})
	got := readFirst(t, d.addr, len(want))
	checkExact(t, "the log", got, want)
}

// readFirst reads the first n events.
func readFirst(t *testing.T, addr string, n int) []truthEvent {
	t.Helper()
	s := subscribe(t, addr, "extended=true&cursor=0")
	seen := streams{}
	var out []truthEvent
	for len(out) < n {
		msg, err := s.next(patience)
		if err != nil {
			t.Fatalf("after %d of %d events: %v", len(out), n, err)
		}
		if isEvent(msg) {
			out = append(out, seen.parse(t, string(msg)))
		}
	}
	return out
}

// A relay whose window has moved past the log's position: what is lost is a gap that the log
// records.
func TestMovedWindow(t *testing.T) {
	t.Parallel()
	sim := startRelaysim(t, "--rate", "1000", "--wait-for-consumer")
	dir := t.TempDir()
	d := startDaemon(t, sim.url, dir)
	sim.waitMade(t, 500)
	waitFor(t, "something in the log", func() bool { return d.log.Progress().Seq > 0 })
	d.mustStop(t)
	position := d.log.Progress().Seq
	sim.waitMade(t, sim.messages(t)+500)
	sim.do(t, "forget?keep=100")
	d = startDaemon(t, sim.url, dir)
	waitFor(t, "the gap", func() bool { return len(d.log.Range().Gaps) == 1 })
	gap := d.log.Range().Gaps[0]
	if gap.From.Seq != position || gap.To.Seq <= position+1 {
		t.Errorf("gap %v to %v, want it from %d", gap.From, gap.To, position)
	}
	// A subscriber that reads across it gets the gap and all else.
	s := subscribe(t, d.addr, "extended=true&cursor=0")
	seen, info := streams{}, ""
	for last := int64(0); last < gap.To.Seq; {
		msg, err := s.next(patience)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(msg, []byte(`"name":"gap"`)) {
			info = string(msg)
		}
		if isEvent(msg) {
			last = seen.parse(t, string(msg)).Seq
		}
	}
	for _, want := range []string{gap.From.String(), gap.To.String()} {
		if !bytes.Contains([]byte(info), []byte(want)) {
			t.Errorf("the subscriber got %q, want %s in it", info, want)
		}
	}
}
