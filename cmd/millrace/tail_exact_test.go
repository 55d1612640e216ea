package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/testwait"
)

// network passes connections on to a server until it is broken. While it is held no byte passes.
type network struct {
	net.Listener
	to     string
	tunnel bool // it is an HTTP proxy: each connection begins with CONNECT, wherever to

	refuses atomic.Bool // new connections, as the machine of a dead server

	mu    sync.Mutex
	conns []net.Conn
	open  chan struct{} // closed while bytes pass
	wg    sync.WaitGroup
	down  atomic.Int64 // bytes that the server sent
}

func newNetwork(t *testing.T, to string) *network {
	t.Helper()
	l := listenLoopback(t)
	n := &network{Listener: l, to: to, open: make(chan struct{})}
	close(n.open)
	n.wg.Go(n.run)
	t.Cleanup(func() {
		l.Close()
		n.release()
		n.breakAll()
		n.wg.Wait()
	})
	return n
}

func (n *network) run() {
	for {
		c, err := n.Accept()
		if err != nil {
			return
		}
		s, err := dialLoopback(n.to)
		if err == nil && n.refuses.Load() {
			s.Close()
			err = net.ErrClosed
		}
		if err != nil {
			c.Close()
			continue
		}
		n.mu.Lock()
		n.conns = append(n.conns, c, s)
		n.mu.Unlock()
		n.wg.Go(func() { n.carry(c, s) })
	}
}

func (n *network) carry(c, s net.Conn) {
	if n.tunnel {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
		}
	}
	copying := func(to, from net.Conn, passed *atomic.Int64) {
		defer to.Close()
		defer from.Close()
		buf := make([]byte, 16<<10)
		for {
			k, err := from.Read(buf)
			if err != nil {
				return
			}
			n.mu.Lock()
			open := n.open
			n.mu.Unlock()
			<-open
			if _, err := to.Write(buf[:k]); err != nil {
				return
			}
			passed.Add(int64(k))
		}
	}
	n.wg.Go(func() { copying(s, c, new(atomic.Int64)) })
	copying(c, s, &n.down)
}

// hold lets no byte pass until release. Connections are accepted meanwhile.
func (n *network) hold() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.open = make(chan struct{})
}

// release ends hold. Safe twice.
func (n *network) release() {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case <-n.open:
	default:
		close(n.open)
	}
}

// connected says whether there are connections since breakAll.
func (n *network) connected() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns) > 0
}

// breakAll ends all connections at once, wherever they are in a frame.
func (n *network) breakAll() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		_ = c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
	n.conns = nil
}

// tailProcess is millrace tail in a process of its own, whose output is appended to a file.
type tailProcess struct {
	cmd    *exec.Cmd
	stderr lockedBuffer
}

func startTail(t *testing.T, output string, args ...string) *tailProcess {
	t.Helper()
	bin := binaries(t)
	out, err := os.OpenFile(output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p := &tailProcess{cmd: exec.Command(bin["millrace"], append([]string{"tail", "--dictionary-cache", ""}, args...)...)}
	p.cmd.Stdout, p.cmd.Stderr = out, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	return p
}

// interrupt is ^C. It returns the exit code.
func (p *tailProcess) interrupt(t *testing.T) int {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// millrace tail --since goes through breaks of the network, a server that is killed and started
// again, and its own restart with a cursor file. The output is the truth, nothing missing, nothing
// twice.
func TestTailExact(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"--extended", "--compress", "--v2"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			const frames = 4000
			sim := startRelaysim(t, "--rate", "1000", "--frames", "4000", "--wait-for-consumer", "--truth-sync")
			dir, addr := t.TempDir(), freeAddr(t)
			server := startMillrace(t, sim.url, dir, addr)
			waitServing(t, addr)
			net := newNetwork(t, addr)
			output := filepath.Join(t.TempDir(), "events.jsonl")
			args := []string{"--url", net.Addr().String(), "--since", "1h", flag, "--kinds", allKinds, "--cursor-file", filepath.Join(t.TempDir(), "cursor")}
			lines := func() []string {
				raw, err := os.ReadFile(output)
				if err != nil {
					t.Fatal(err)
				}
				all := strings.SplitAfter(string(raw), "\n")
				all = slices.DeleteFunc(all, func(s string) bool { return !strings.HasSuffix(s, "\n") || flag != "--v2" && !isEvent([]byte(s)) })
				return all
			}
			reach := func(n int) {
				t.Helper()
				if !testwait.Becomes(5*patience, func() bool { return len(lines()) >= n }) {
					t.Fatalf("%d of %d lines", len(lines()), n)
				}
			}
			tail := startTail(t, output, args...)
			reach(300)
			net.breakAll()
			// A later break can find it between two connections, which is then nothing new to
			// report.
			waitFor(t, "tail reports the break", func() bool { return strings.Contains(tail.stderr.String(), "connecting again") })
			reach(700)
			server.kill()
			startMillrace(t, sim.url, dir, addr)
			reach(1300)
			net.breakAll()
			reach(1600)
			if code := tail.interrupt(t); code != exitOK {
				t.Errorf("exit code %d\n%s", code, &tail.stderr)
			}
			net.breakAll() // what the first has left
			tail = startTail(t, output, args...)
			waitFor(t, "the second tail to connect", net.connected) // it may find nothing left to write
			reach(2000)
			net.breakAll()
			sim.waitMade(t, frames)
			want := readTruth(t, sim.truth)
			reach(len(want))
			if code := tail.interrupt(t); code != exitOK {
				t.Errorf("exit code %d\n%s", code, &tail.stderr)
			}
			seen := streams{}
			var got []truthEvent
			for _, line := range lines() {
				if flag == "--v2" {
					got = append(got, parseV2Frame(t, line))
				} else {
					got = append(got, seen.parse(t, strings.TrimSuffix(line, "\n")))
				}
			}
			for i := range want {
				switch flag {
				case "--compress":
					want[i].Epoch, want[i].Seq, want[i].Op = 0, 0, 0
				case "--v2":
					want[i].Epoch, want[i].JSON = 0, parseV2(t, want[i].JSON).JSON
				}
			}
			checkExact(t, "millrace tail", got, want)
			t.Logf("%d events exact", len(want))
		})
	}
}

// How tail ends, and what it says then.
func TestTailEndings(t *testing.T) {
	t.Parallel()
	relay := newTestRelay(t)
	d := startDaemon(t, relay.url, t.TempDir())
	live := subscribe(t, d.addr, "")
	for seq := int64(1); seq <= 200; seq++ {
		relay.send <- identityFrame(t, seq).Data
	}
	live.lines(t, 200)
	output := filepath.Join(t.TempDir(), "out")
	wait := func(p *tailProcess) int { _ = p.cmd.Wait(); return p.cmd.ProcessState.ExitCode() }

	if p := startTail(t, output, "--url", d.addr, "--cursor", "0", "--count", "7"); wait(p) != exitOK || countLines(t, output) != 7 || p.stderr.String() != "" {
		t.Errorf("--count 7: %v, %d lines\n%s", p.cmd.ProcessState, countLines(t, output), &p.stderr)
	}
	out := output + "another"
	if p := startTail(t, out, "--url", freeAddr(t), "--url", d.addr, "--cursor", "0", "--count", "7"); wait(p) != exitOK || countLines(t, out) != 7 ||
		!strings.Contains(p.stderr.String(), "connection refused; going on with another server") {
		t.Errorf("two servers: %v, %d lines\n%s", p.cmd.ProcessState, countLines(t, out), &p.stderr)
	}
	for _, until := range []string{"now", "live", "0s"} {
		out := output + until
		if p := startTail(t, out, "--url", d.addr, "--since", "1h", "--until", until); wait(p) != exitOK || countLines(t, out) != 200 {
			t.Errorf("--until %s: %v, %d lines\n%s", until, p.cmd.ProcessState, countLines(t, out), &p.stderr)
		}
	}
	begin := time.Now() // nothing more comes, and the clock alone says that it is over
	until := begin.Add(time.Second).Format(time.RFC3339Nano)
	soon := map[string]*tailProcess{}
	for _, wire := range []string{"--v2=false", "--v2"} {
		soon[wire] = startTail(t, output+wire, "--url", d.addr, "--cursor", "0", "--until", until, wire)
	}
	for wire, p := range soon {
		if wait(p) != exitOK || countLines(t, output+wire) != 200 || time.Since(begin) < time.Second {
			t.Errorf("%s --until %s: %v, %d lines\n%s", wire, until, p.cmd.ProcessState, countLines(t, output+wire), &p.stderr)
		}
	}
	// Nothing matches, and still the cursor file says how far that is known.
	file := filepath.Join(t.TempDir(), "cursor")
	none := startTail(t, output+"none", "--url", d.addr, "--cursor", "0", "--dids", "did:plc:none", "--until", "now", "--cursor-file", file)
	kept, err := "", error(nil)
	if wait(none) == exitOK {
		kept, err = readCursorFile(file)
	}
	if want := d.log.Range().Newest.Position.String(); err != nil || kept != want {
		t.Errorf("nothing matched, and the cursor file says %q, %v, want %s", kept, err, want)
	}
	p := startTail(t, "/dev/full", "--url", d.addr, "--cursor", "0")
	if code := wait(p); code != exitFailed || !strings.Contains(p.stderr.String(), "no space left") {
		t.Errorf("full disk: exit code %d\n%s", code, &p.stderr)
	}
	p = startTail(t, output, "--url", d.addr, "--cursor", "0", "--count", "1000")
	waitFor(t, "207 lines", func() bool { return countLines(t, output) == 207 })
	if code := p.interrupt(t); code != exitInterrupted {
		t.Errorf("interrupted before --count: exit code %d", code)
	}
	p = startTail(t, output, "--url", d.addr, "--collections", "a b")
	if code := wait(p); code != exitFailed || !strings.Contains(p.stderr.String(), "invalid subscriber options") {
		t.Errorf("refused: exit code %d\n%s", code, &p.stderr)
	}
	p = startTail(t, output, "--url", freeAddr(t), "--once")
	if code := wait(p); code != exitFailed || !strings.Contains(p.stderr.String(), "connection refused") {
		t.Errorf("--once: exit code %d\n%s", code, &p.stderr)
	}
}

// Against a Jetstream that is no millrace: what there is until now, with a cursor file that is a
// time, and inclusive.
func TestTailPlainJetstream(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var stamps []int64
	up := websocket.Upgrader{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cursor, err := strconv.ParseInt(r.URL.Query().Get("cursor"), 10, 64)
		if r.URL.Path != "/subscribe" || err != nil {
			http.NotFound(w, r)
			return
		}
		ws, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		mu.Lock()
		for _, us := range stamps {
			if us >= cursor {
				_ = ws.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, `{"did":"did:plc:a","time_us":%d,"kind":"identity","identity":{"did":"did:plc:a","seq":%d,"time":"t"}}`, us, us))
			}
		}
		mu.Unlock()
		for { // until it leaves; answers pings
			if _, _, err := ws.NextReader(); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "cursor")
	read := func(flags ...string) []string {
		t.Helper()
		var out, errs bytes.Buffer
		args := append([]string{"--url", srv.URL, "--cursor", "0", "--cursor-file", file}, flags...)
		if err := dispatch(t.Context(), append([]string{"tail"}, args...), &out, &errs); err != nil || errs.Len() > 0 {
			t.Fatalf("%v\n%s", err, &errs)
		}
		return strings.Split(strings.TrimSpace(out.String()), "\n")
	}
	base := time.Now().Add(-time.Hour).UnixMicro()
	for i := range int64(5) {
		stamps = append(stamps, base+i)
	}
	if got := read("--count", "3"); len(got) != 3 {
		t.Errorf("first %d lines", len(got))
	}
	if s, err := readCursorFile(file); s != strconv.FormatInt(base+2, 10) || err != nil {
		t.Errorf("the file says %q, %v", s, err)
	}
	mu.Lock()
	stamps = append(stamps, base+5, time.Now().Add(time.Hour).UnixMicro())
	mu.Unlock()
	got := read("--until", "now") // the last one is not of now
	if len(got) != 3 || !strings.Contains(got[0], strconv.FormatInt(base+3, 10)) || !strings.Contains(got[2], strconv.FormatInt(base+5, 10)) {
		t.Errorf("then %v", got)
	}
	mu.Lock()
	stamps = append(stamps[:len(stamps)-1], base+6)
	mu.Unlock()
	if got := read("--until", "1m"); len(got) != 1 || !strings.Contains(got[0], strconv.FormatInt(base+6, 10)) {
		t.Errorf("quiet, and so at its end: %v", got)
	}
}

// The reader of the pipe has seen enough: no word, no error.
func TestTailPipe(t *testing.T) {
	t.Parallel()
	relay := newTestRelay(t)
	d := startDaemon(t, relay.url, t.TempDir())
	live := subscribe(t, d.addr, "")
	for seq := int64(1); seq <= 1000; seq++ { // more than a pipe holds
		relay.send <- identityFrame(t, seq).Data
	}
	live.lines(t, 1000)
	bin := binaries(t)
	script := bin["millrace"] + " tail --url " + d.addr + " --cursor 0 ; echo code $? >&2"
	cmd := exec.Command("sh", "-c", "("+script+") | head -n 3")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait() // tail has more to write than the pipe holds
	if err != nil || strings.Count(stdout.String(), "\n") != 3 || stderr.String() != "code 0\n" {
		t.Errorf("%v, %d lines, stderr %q, want 3 lines and code 0", err, strings.Count(stdout.String(), "\n"), &stderr)
	}
}

func countLines(t *testing.T, name string) int {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(raw, []byte("\n"))
}

// TestTailCursorFileStaysAhead: heartbeats of a server that is behind, such as one restored from a
// backup, do not take the cursor file back.
func TestTailCursorFileStaysAhead(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		const behind = `{"$type":"message","payload":{"$type":"millrace#heartbeat","seq":2048,"time":"2026-11-29T09:00:00.000000Z"}}`
		_ = ws.WriteMessage(websocket.TextMessage, []byte(behind)) // the tail notices
	}))
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "cursor")
	writeFile(t, file, "4096\n")
	if err := dispatch(t.Context(), []string{"tail", "--v2", "--once", "--url", srv.URL, "--cursor-file", file}, io.Discard, io.Discard); err == nil {
		t.Error("the end of the connection is no error")
	}
	if s, err := readCursorFile(file); s != "4096" || err != nil {
		t.Errorf("the file says %q, %v", s, err)
	}
}
