package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"github.com/klauspost/compress/zstd"

	dto "github.com/prometheus/client_model/go"

	"millrace/consume/relaysim/testwait"
)

// corpusDir is where real captured frames are, beside the repository.
const corpusDir = "../../../shared/corpus"

// corpusFile opens one of the captured files and skips the test, saying so, where there is none.
func corpusFile(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(corpusDir, name))
	if os.IsNotExist(err) {
		t.Skipf("SKIPPED: %s is not beside the repository; this test needs the captured frames", filepath.Join("../shared/corpus", name))
	}
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// corpusFrames returns the captured frames of one minute of the real network.
func corpusFrames(t *testing.T) [][]byte {
	t.Helper()
	dec, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	raw, err := dec.DecodeAll(corpusFile(t, "frames.bin.zst"), nil)
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	for len(raw) > 0 {
		n := binary.LittleEndian.Uint32(raw)
		frames = append(frames, raw[4:4+n])
		raw = raw[4+n:]
	}
	return frames
}

// corpusEvents returns what production Jetstream served for corpusFrames.
func corpusEvents(t *testing.T) []string {
	t.Helper()
	return strings.Split(strings.TrimSpace(string(corpusFile(t, "expected.jsonl"))), "\n")
}

// testRelay is a relay that sends what the test gives it, to one consumer at a time.
type testRelay struct {
	url   string
	send  chan []byte
	conns atomic.Int64 // consumers that may get what is sent
}

func newTestRelay(t *testing.T) *testRelay {
	r := &testRelay{send: make(chan []byte, 1<<10)}
	up := websocket.Upgrader{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c, err := up.Upgrade(w, req, nil)
		if err != nil {
			return
		}
		defer c.Close()
		r.conns.Add(1)
		defer r.conns.Add(-1)
		gone := make(chan struct{})
		go func() { // answers pings and notices the end; ends with the connection
			defer close(gone)
			for {
				if _, _, err := c.NextReader(); err != nil {
					return
				}
			}
		}()
		for {
			select {
			case frame := <-r.send:
				if c.WriteMessage(websocket.BinaryMessage, frame) != nil {
					return
				}
			case <-gone:
				return
			}
		}
	}))
	t.Cleanup(srv.Close)
	r.url = "ws" + strings.TrimPrefix(srv.URL, "http")
	return r
}

// left waits until no consumer is there. One that has just stopped may still get what is sent.
func (r *testRelay) left(t *testing.T) {
	t.Helper()
	waitFor(t, "the relay sees that its consumer has gone", func() bool { return r.conns.Load() == 0 })
}

// testDaemon is a daemon of this process.
type testDaemon struct {
	*daemon
	addr string
	stop func() error // stops it and returns what run returned; safe twice
}

// parseServe returns what serve makes of its arguments and environment.
func parseServe(args, environ []string) (*config, error) {
	c := newConfig()
	_, err := c.command().parse(args, environ)
	return c, err
}

// serveConfig is parseServe of arguments that are right.
func serveConfig(t *testing.T, args []string) *config {
	t.Helper()
	cfg, err := parseServe(args, nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// openDaemon makes a daemon that can start.
func openDaemon(t *testing.T, cfg *config, logger *slog.Logger) *daemon {
	t.Helper()
	d, err := newDaemon(t.Context(), cfg, logger)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// startDaemon runs `millrace serve` in this process with further flags, on a port of its own.
func startDaemon(t *testing.T, relay, dir string, flags ...string) *testDaemon {
	t.Helper()
	return startDaemonOn(t, testHooks{}, relay, dir, flags...)
}

// startDaemonOn is startDaemon with hooks. With a test's UID store the daemon takes itself for one
// of several.
func startDaemonOn(t *testing.T, hooks testHooks, relay, dir string, flags ...string) *testDaemon {
	t.Helper()
	args := append([]string{
		"--relay", relay, "--data-dir", dir, "--listen", "127.0.0.1:0", "--metrics-listen", "",
		"--memory", "64MiB", "--min-free-disk", "0", "--log-level", "warn",
	}, flags...)
	cfg := serveConfig(t, args)
	if cfg.hooks = hooks; hooks.uids != nil {
		cfg.intern.value = "fdb" // which this program may not have
	}
	d := openDaemon(t, cfg, slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelError})))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx) }()
	var once sync.Once
	var result error
	td := &testDaemon{daemon: d, addr: d.publicListener.Addr().String(), stop: func() error {
		once.Do(func() {
			cancel()
			select {
			case result = <-ended:
			case <-time.After(patience):
				result = fmt.Errorf("the daemon did not stop within %v", patience)
			}
		})
		return result
	}}
	t.Cleanup(func() {
		if err := td.stop(); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return td
}

// mustStop stops a daemon that must end in order.
func (d *testDaemon) mustStop(t *testing.T) {
	t.Helper()
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// counter returns the value of one of the daemon's counters or gauges, by the text that begins its
// line: millrace_translate_dropped_total{reason="invalid_did"}.
func (d *testDaemon) counter(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := d.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if hasLabels(m, labels) {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func hasLabels(m *dto.Metric, values []string) bool {
	for _, want := range values {
		found := false
		for _, l := range m.GetLabel() {
			found = found || l.GetValue() == want
		}
		if !found {
			return false
		}
	}
	return true
}

// subscriber reads one subscription with gorilla's client.
type subscriber struct {
	conn   *websocket.Conn
	decode func([]byte) ([]byte, error) // nil: plain
}

func subscribe(t *testing.T, addr, query string) *subscriber {
	t.Helper()
	conn, resp, err := websocket.DefaultDialer.Dial("ws://"+addr+"/subscribe?"+query, nil)
	if err != nil {
		if resp != nil {
			body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
			err = fmt.Errorf("%w: %s: %s", err, resp.Status, body)
		}
		t.Fatalf("subscribe %s: %v", query, err)
	}
	t.Cleanup(func() { conn.Close() })
	return &subscriber{conn: conn}
}

// next returns the next message within a deadline.
func (s *subscriber) next(wait time.Duration) ([]byte, error) {
	_ = s.conn.SetReadDeadline(time.Now().Add(wait))
	_, msg, err := s.conn.ReadMessage()
	if err == nil && s.decode != nil {
		msg, err = s.decode(msg)
	}
	return msg, err
}

// lines returns the next n messages.
func (s *subscriber) lines(t *testing.T, n int) []string {
	t.Helper()
	var out []string
	for len(out) < n {
		msg, err := s.next(patience)
		if err != nil {
			t.Fatalf("after %d of %d events: %v", len(out), n, err)
		}
		out = append(out, string(msg))
	}
	return out
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testwait.Eventually(t, 2*patience, what, ok)
}

// TestMain takes away what binaries built.
func TestMain(m *testing.M) {
	code := m.Run()
	if binariesDir != "" {
		_ = os.RemoveAll(binariesDir)
	}
	os.Exit(code)
}

var binariesDir string

// binaries builds millrace and relaysim once and returns their paths.
func binaries(t *testing.T) map[string]string {
	t.Helper()
	bin, err := buildBinaries()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

var buildBinaries = sync.OnceValues(func() (map[string]string, error) {
	dir, err := os.MkdirTemp("", "millrace-test-bin")
	if err != nil {
		return nil, err
	}
	binariesDir = dir
	out := map[string]string{}
	for _, name := range []string{"millrace", "relaysim"} {
		out[name] = filepath.Join(dir, name)
		if err := goBuild(out[name], "millrace/cmd/"+name); err != nil {
			return nil, err
		}
	}
	return out, nil
})

// getJSON decodes what answers a request, and returns the status.
func getJSON(t *testing.T, url string, answer any) (status int) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		t.Fatalf("%s: %s: %v", url, resp.Status, err)
	}
	return resp.StatusCode
}

// fromJSON decodes a text.
func fromJSON[T string | []byte](t *testing.T, text T, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatal(err)
	}
}

// firstLine returns the first line that begins with prefix, without it.
func firstLine(r io.Reader, prefix string) (string, error) {
	s := bufio.NewScanner(r)
	for s.Scan() {
		if rest, ok := strings.CutPrefix(s.Text(), prefix); ok {
			return rest, nil
		}
	}
	return "", fmt.Errorf("no line begins with %q: %w", prefix, s.Err())
}

func listenLoopback(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func dialLoopback(addr string) (net.Conn, error) { return net.DialTimeout("tcp", addr, time.Second) }
