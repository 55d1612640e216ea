//go:build fdb

package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/intern/kv/fdbkv/fdbtest"
)

// fdbFlags are those of a server whose UIDs come from a private FoundationDB, and that reads all
// that the relay has.
func fdbFlags(server *fdbtest.Server) []string {
	return []string{"--intern=fdb", "--fdb-cluster-file", server.ClusterFile, "--relay-cursor", "0"}
}

// fdbBinary builds millrace with FoundationDB once.
var fdbBinary = sync.OnceValues(func() (string, error) {
	bin, err := buildBinaries()
	if err != nil {
		return "", err
	}
	out := filepath.Join(filepath.Dir(bin["millrace"]), "millrace-fdb")
	if text, err := exec.Command("go", "build", "-buildvcs=false", "-tags", "fdb", "-o", out, "millrace/cmd/millrace").CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	return out, nil
})

// startFoundationProcess starts a server in a process of its own, to be killed.
func startFoundationProcess(t *testing.T, relay, dir, addr string, flags ...string) *millraceProcess {
	t.Helper()
	bin, err := fdbBinary()
	if err != nil {
		t.Fatal(err)
	}
	p := &millraceProcess{addr: addr, stderr: &bytes.Buffer{}, exited: make(chan struct{})}
	p.cmd = exec.Command(bin, append([]string{"serve", "--relay", relay, "--data-dir", dir, "--listen", addr,
		"--metrics-listen", "", "--memory", "64MiB", "--min-free-disk", "0", "--log-level", "warn"}, flags...)...)
	p.cmd.Stderr = p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process, which kill ends
		defer close(p.exited)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		if p.kill(); t.Failed() {
			t.Logf("%s said\n%s", addr, p.stderr)
		}
	})
	return p
}

// ready asks /readyz.
func ready(t *testing.T, addr string) (bool, string) {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	_, _ = body.ReadFrom(resp.Body)
	return resp.StatusCode == http.StatusOK, body.String()
}

// TestFoundationClusterFile has a server without its cluster file name that, and not its data
// directory.
func TestFoundationClusterFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none")
	code, said := millrace(t, serveArgs(t.TempDir(), "--intern=fdb", "--fdb-cluster-file", file)...)
	if code != exitFailed || !strings.Contains(said, file) || !strings.Contains(said, "--fdb-cluster-file") || strings.Contains(said, "--data-dir") {
		t.Errorf("exit code %d, says %s", code, said)
	}
}

// TestFoundationEmpty has commands that read a store refuse a cluster without one, and make none.
func TestFoundationEmpty(t *testing.T) {
	server := fdbtest.Start(t)
	for _, command := range []string{"verify", "skip-ahead", "verify"} {
		code, said := millrace(t, "intern", command, "--intern=fdb", "--fdb-cluster-file", server.ClusterFile)
		if code != exitFailed || !strings.Contains(said, "no UID store in this FoundationDB\n") {
			t.Errorf("%s: exit code %d, says %s", command, code, said)
		}
	}
}

// TestFoundationInstances has two and four servers with one store follow the same relay. Each holds
// the truth, all have the same UIDs, none is a fifth slower than the relay, and few transactions
// are repeated.
func TestFoundationInstances(t *testing.T) {
	for _, n := range []int{2, 4} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			server := fdbtest.Start(t)
			const frames = 16_000 // they begin at once, and repeat transactions until they know each other, some 600 ms
			sim := startRelaysim(t, "--rate", "1500", "--frames", strconv.Itoa(frames))
			var all []*testDaemon
			for range n {
				all = append(all, startDaemon(t, sim.url, t.TempDir(), fdbFlags(server)...))
			}
			sim.waitMade(t, frames)
			slowest := int64(frames)
			for _, d := range all {
				slowest = min(slowest, d.log.Progress().Seq)
			}
			want := readTruth(t, sim.truth)
			var first []truthEvent
			var committed, repeated float64
			for i, d := range all {
				got := readAll(t, d.addr, "cursor=0", len(want))
				checkExact(t, fmt.Sprintf("log %d", i), got, want)
				if i == 0 {
					checkUIDs(t, got)
					first = got
				}
				for j := range got {
					if got[j].DID != first[j].DID || got[j].URI != first[j].URI {
						t.Fatalf("event %d has the UIDs %s, %s here and %s, %s there", j, got[j].DID, got[j].URI, first[j].DID, first[j].URI)
					}
				}
				committed += d.counter(t, "millrace_intern_transactions_total")
				repeated += d.counter(t, "millrace_intern_retries_total")
			}
			t.Logf("%d events, %v transactions, %v repeated; the slowest was at frame %d of %d when the relay had made the last", len(want), committed, repeated, slowest, frames)
			if slowest < frames*8/10 {
				t.Errorf("the slowest was at frame %d of %d when the relay had made the last: one alone keeps up", slowest, frames)
			}
			if repeated > 0.05*(committed+repeated) {
				t.Errorf("%v of %v transactions were repeated", repeated, committed+repeated)
			}
		})
	}
}

// TestFoundationLeaderKilled kills one of two servers, with kill -9, in mid-stream: the other's log
// goes on and holds the truth. That it waits for no more than a second is TestLeaderDies of package
// intern.
func TestFoundationLeaderKilled(t *testing.T) {
	server := fdbtest.Start(t)
	sim := startRelaysim(t, "--rate", "1000", "--wait-for-consumer")
	survivor := startDaemon(t, sim.url, t.TempDir(), fdbFlags(server)...)
	addr := freeAddr(t)
	killed := startFoundationProcess(t, sim.url, t.TempDir(), addr, fdbFlags(server)...)
	waitServing(t, addr)
	waitFor(t, "the two to meet", func() bool { return survivor.counter(t, "millrace_intern_peers") == 1 })
	sim.waitMade(t, sim.messages(t)+2000)
	killed.kill()
	waitFor(t, "the survivor to count on nobody", func() bool { return survivor.counter(t, "millrace_intern_peers") == 0 })
	sim.waitMade(t, sim.messages(t)+2000)
	want := sim.settle(t)
	got := readAll(t, survivor.addr, "cursor=0", len(want))
	checkExact(t, "the survivor's log", got, want)
	checkUIDs(t, got)
}

// TestFoundationKills kills two servers with one store again and again, with kill -9. In the end
// both logs hold the truth with the same UIDs, and the store is a bijection.
func TestFoundationKills(t *testing.T) {
	kills, frames := 4, 8000
	if long() {
		kills, frames = 20, 40_000
	}
	server := fdbtest.Start(t)
	rng := rand.New(rand.NewPCG(testSeed(t), 0))
	sim := startRelaysim(t, "--rate", "1000", "--frames", strconv.Itoa(frames), "--wait-for-consumer")
	dirs, addrs := []string{t.TempDir(), t.TempDir()}, []string{freeAddr(t), freeAddr(t)}
	live := make([]*millraceProcess, 2)
	for i := range live {
		live[i] = startFoundationProcess(t, sim.url, dirs[i], addrs[i], fdbFlags(server)...)
	}
	for range kills {
		time.Sleep(300*time.Millisecond + time.Duration(rng.Int64N(int64(1500*time.Millisecond))))
		i := rng.IntN(2)
		live[i].kill()
		live[i] = startFoundationProcess(t, sim.url, dirs[i], addrs[i], fdbFlags(server)...)
	}
	sim.waitMade(t, int64(frames))
	want := readTruth(t, sim.truth)
	var first []truthEvent
	for i, addr := range addrs {
		waitServing(t, addr)
		got := readAll(t, addr, "cursor=0", len(want))
		checkExact(t, fmt.Sprintf("log %d", i), got, want)
		if i == 0 {
			checkUIDs(t, got)
			first = got
		}
		for j := range got {
			if got[j].DID != first[j].DID || got[j].URI != first[j].URI {
				t.Fatalf("event %d has the UIDs %s, %s here and %s, %s there", j, got[j].DID, got[j].URI, first[j].DID, first[j].URI)
			}
		}
	}
	for _, p := range live {
		p.kill()
	}
	code, out := millrace(t, "intern", "verify", "--intern", "fdb", "--fdb-cluster-file", server.ClusterFile)
	if code != exitOK || !strings.Contains(out, " 0 problems") {
		t.Errorf("verify: exit code %d\n%s", code, out)
	}
	t.Logf("%d events exact in two logs after %d kills; %s", len(want), kills, out)
}

// lineLog counts lines of the log by what they contain.
type lineLog struct {
	mu  sync.Mutex
	all []string
}

func (l *lineLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(p))
	return len(p), nil
}

func (l *lineLog) with(s string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if strings.Contains(line, s) {
			n++
		}
	}
	return n
}

// TestFoundationOutage stops the cluster in mid-stream, in the two ways there are. The server is
// killed and started again, and it stops answering while its connections stay (half a minute with
// MILLRACE_TEST_LONG=1). The server is not ready meanwhile and says so once; afterwards it is, and
// log and UIDs are exact.
func TestFoundationOutage(t *testing.T) {
	stall := 6 * time.Second
	if long() {
		stall = 30 * time.Second
	}
	for _, tc := range []struct {
		name       string
		begin, end func(*fdbtest.Server)
		lasts      time.Duration
	}{
		{"killed", (*fdbtest.Server).Kill, (*fdbtest.Server).Run, 5 * time.Second},
		{"stalled", (*fdbtest.Server).Pause, (*fdbtest.Server).Resume, stall},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := fdbtest.Start(t)
			const frames = 12_000
			sim := startRelaysim(t, "--rate", "800", "--frames", strconv.Itoa(frames), "--wait-for-consumer")
			d, log := startLoggedDaemon(t, sim.url, t.TempDir(), fdbFlags(server)...)
			sim.waitMade(t, 3000)
			waitFor(t, "readiness", func() bool { ok, _ := ready(t, d.addr); return ok })
			begun := time.Now()
			tc.begin(server)
			waitFor(t, "the server to say that it is not ready", func() bool { ok, _ := ready(t, d.addr); return !ok })
			noticed := time.Since(begun)
			time.Sleep(tc.lasts/2 - time.Since(begun)/2)
			if ok, body := ready(t, d.addr); ok || !strings.Contains(body, "uid_store_reachable") {
				t.Errorf("in the middle of the outage: ready %v, %s", ok, body)
			}
			stood := d.log.Progress().Seq
			time.Sleep(tc.lasts - time.Since(begun))
			if seq := d.log.Progress().Seq; seq != stood {
				t.Errorf("the log went from seq %d to %d without UIDs", stood, seq)
			}
			ended := time.Now()
			tc.end(server)
			waitFor(t, "the server to be ready", func() bool { ok, _ := ready(t, d.addr); return ok })
			back := time.Since(ended)
			sim.waitMade(t, frames)
			want := readTruth(t, sim.truth)
			got := readAll(t, d.addr, "cursor=0", len(want))
			checkExact(t, "the log", got, want)
			checkUIDs(t, got)
			if ok, body := ready(t, d.addr); !ok {
				t.Errorf("not ready afterwards: %s", body)
			}
			if n := log.with("UID store does not answer"); n != 1 {
				t.Errorf("%d lines say that the store does not answer", n)
			}
			if n := d.counter(t, "millrace_intern_outages_total"); n != 1 {
				t.Errorf("%v outages were counted", n)
			}
			t.Logf("not ready %v after it began, ready %v after it ended, %d events exact", noticed, back, len(want))
		})
	}
}

// startLoggedDaemon is startDaemon with a log that the test reads.
func startLoggedDaemon(t *testing.T, relay, dir string, flags ...string) (*testDaemon, *lineLog) {
	t.Helper()
	cfg := serveConfig(t, append([]string{"--relay", relay, "--data-dir", dir, "--listen", "127.0.0.1:0", "--metrics-listen", "",
		"--memory", "64MiB", "--min-free-disk", "0"}, flags...))
	log := &lineLog{}
	d := openDaemon(t, cfg, slog.New(slog.NewTextHandler(log, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx) }()
	td := &testDaemon{daemon: d, addr: d.publicListener.Addr().String()}
	td.stop = func() error { cancel(); return <-ended }
	t.Cleanup(func() {
		if err := td.stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return td, log
}

// TestFoundationLate starts a server before its cluster: it says so, waits, and serves when the
// cluster comes.
func TestFoundationLate(t *testing.T) {
	server := fdbtest.Start(t)
	server.Kill()
	sim := startRelaysim(t, "--frames", "500", "--wait-for-consumer")
	addr := freeAddr(t)
	p := startFoundationProcess(t, sim.url, t.TempDir(), addr, fdbFlags(server)...)
	time.Sleep(4 * time.Second)
	select {
	case <-p.exited:
		t.Fatalf("it did not wait: %s", p.stderr)
	default:
	}
	server.Run()
	waitServing(t, addr) // the client tries again after ever longer pauses
	sim.waitMade(t, 500)
	want := readTruth(t, sim.truth)
	checkExact(t, "the log", readAll(t, addr, "cursor=0", len(want)), want)
	p.kill()
	if !strings.Contains(p.stderr.String(), "FoundationDB does not answer; still trying") {
		t.Errorf("it did not say that it waits: %s", p.stderr)
	}
}

// TestFoundationMove takes a server's UIDs from Pebble to FoundationDB: its log goes on with them.
func TestFoundationMove(t *testing.T) {
	server := fdbtest.Start(t)
	sim := startRelaysim(t, "--frames", "1000", "--rate", "2000", "--wait-for-consumer")
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "uids")
	d := startDaemon(t, sim.url, dir)
	sim.waitMade(t, 500)
	waitFor(t, "something in the log", func() bool { return d.log.Progress().Seq > 0 }) // or the next start begins live
	d.mustStop(t)
	for _, args := range [][]string{
		{"export", "--data-dir", dir, file},
		{"import", "--intern", "fdb", "--fdb-cluster-file", server.ClusterFile, file},
		{"verify", "--intern", "fdb", "--fdb-cluster-file", server.ClusterFile},
		{"skip-ahead", "--intern", "fdb", "--fdb-cluster-file", server.ClusterFile},
	} {
		if code, out := millrace(t, append([]string{"intern"}, args...)...); code != exitOK {
			t.Fatalf("millrace intern %v: exit code %d\n%s", args, code, out)
		}
	}
	if code, out := millrace(t, "intern", "compact", "--intern", "fdb", "--fdb-cluster-file", server.ClusterFile); code != exitUsage {
		t.Errorf("compact: exit code %d\n%s", code, out)
	}
	d = startDaemon(t, sim.url, dir, "--intern=fdb", "--fdb-cluster-file", server.ClusterFile)
	sim.waitMade(t, 1000)
	want := readTruth(t, sim.truth)
	got := readAll(t, d.addr, "cursor=0", len(want))
	checkExact(t, "the log", got, want)
	checkUIDs(t, got)
}

// TestFoundationLag prints how late a subscriber sees events at 1,500 frames/s. It counts from the
// moment that an event is stamped to the moment that it has been received. An event is stamped when
// its frame was read and translated.
func TestFoundationLag(t *testing.T) {
	seconds := 5
	if long() {
		seconds = 60
	}
	server := fdbtest.Start(t)
	frames := 1500 * seconds
	sim := startRelaysim(t, "--rate", "1500", "--frames", strconv.Itoa(frames), "--wait-for-consumer")
	d := startDaemon(t, sim.url, t.TempDir(), fdbFlags(server)...)
	s := subscribe(t, d.addr, "")
	var lags []time.Duration
	for {
		wait := 3 * time.Second
		if len(lags) < frames {
			wait = patience
		}
		msg, err := s.next(wait)
		if err != nil {
			break
		}
		if e := parseTruthEvent(t, string(msg)); e.TimeUS > 0 {
			lags = append(lags, time.Since(time.UnixMicro(e.TimeUS)))
		}
	}
	if len(lags) < frames {
		t.Fatalf("%d events of %d frames", len(lags), frames)
	}
	lags = lags[len(lags)/10:] // the first ones wait for connections and caches
	slices.Sort(lags)
	t.Logf("lag of %d events at 1,500 frames/s: p50 %v, p99 %v, most %v", len(lags), lags[len(lags)/2], lags[len(lags)*99/100], lags[len(lags)-1])
	if p50 := lags[len(lags)/2]; p50 > time.Second {
		t.Errorf("p50 is %v", p50)
	}
}
