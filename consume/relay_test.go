package consume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"millrace/consume/relaysim/cbor"
	"millrace/consume/relaysim/pipenet"
)

// patience is for what must come.
const patience = time.Minute

// TestMain keeps a proxy of the environment out of the tests.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		os.Unsetenv(name)
	}
	os.Exit(m.Run())
}

// relay is an in-process relay. Each connection runs script; when that returns the connection
// breaks, without a close frame.
type relay struct {
	t            testing.TB
	script       func(p *peer)
	conns        atomic.Int64
	readsNothing atomic.Bool // connections made from now on read nothing, so answer no ping
	wg           sync.WaitGroup

	mu      sync.Mutex
	asked   []string // the cursor of each connection, "live" without one
	times   []time.Time
	refusal func(n int, w http.ResponseWriter) bool // true: it has answered
	closes  []int                                   // codes of close frames received
}

// peer is one connection, as the relay sees it.
type peer struct {
	*relay
	n      int // counts connections from 1
	cursor string
	ws     *websocket.Conn
	gone   chan struct{} // closed when the client has gone; never on a relay that reads nothing
}

func (r *relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.wg.Add(1)
	defer r.wg.Done()
	n := int(r.conns.Add(1))
	p := &peer{relay: r, n: n, cursor: "live", gone: make(chan struct{})}
	if q := req.URL.Query(); q.Has("cursor") {
		p.cursor = q.Get("cursor")
	}
	r.mu.Lock()
	r.asked = append(r.asked, p.cursor)
	r.times = append(r.times, time.Now())
	refusal := r.refusal
	r.mu.Unlock()
	if req.URL.Path != subscribePath {
		r.t.Errorf("path %q", req.URL.Path)
	}
	if refusal != nil && refusal(n, w) {
		return
	}
	ws, err := (&websocket.Upgrader{}).Upgrade(w, req, nil)
	if err != nil {
		return // the client has gone
	}
	defer ws.Close()
	p.ws = ws
	if !r.readsNothing.Load() {
		r.wg.Go(func() {
			defer close(p.gone)
			for {
				if _, _, err := ws.ReadMessage(); err != nil {
					var ce *websocket.CloseError
					if errors.As(err, &ce) {
						r.mu.Lock()
						r.closes = append(r.closes, ce.Code)
						r.mu.Unlock()
					}
					return
				}
			}
		})
	}
	r.script(p)
}

// send sends messages as they are, and reports whether the client was there.
func (p *peer) send(msgs ...[]byte) bool {
	for _, m := range msgs {
		if p.ws.WriteMessage(websocket.BinaryMessage, m) != nil {
			return false
		}
	}
	return true
}

// commits sends a #commit of every seq from first to last.
func (p *peer) commits(first, last int64) bool {
	for s := first; s <= last; s++ {
		if !p.send(commitFrame(s)) {
			return false
		}
	}
	return true
}

// wait keeps the connection open until the client goes.
func (p *peer) wait() { <-p.gone }

// pause is wait for d at most.
func (p *peer) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-p.gone:
	}
}

func (r *relay) cursors() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.asked)
}

// pipeRelay starts a relay for use within a synctest bubble, and returns what dials it.
func pipeRelay(t *testing.T, script func(p *peer)) (*relay, *pipenet.Listener) {
	r := &relay{t: t, script: script}
	l := pipenet.Listen()
	srv := &http.Server{Handler: r, ErrorLog: discardLog()}
	go srv.Serve(l)
	t.Cleanup(func() {
		srv.Close()
		synctest.Wait() // until no connection begins
		r.wg.Wait()
	})
	return r, l
}

// socketRelay starts a relay on a loopback socket and returns its URL.
func socketRelay(t testing.TB, script func(p *peer)) (*relay, string) {
	r := &relay{t: t, script: script}
	srv := httptest.NewServer(r)
	t.Cleanup(func() {
		srv.Close()
		r.wg.Wait()
	})
	return r, srv.URL
}

func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }

// sink collects what Handle gets.
type sink struct {
	mu     sync.Mutex
	frames []Frame // Data copied
	came   chan struct{}
	before func(ctx context.Context, f Frame) error
}

func newSink() *sink { return &sink{came: make(chan struct{}, 1)} }

func (s *sink) handle(ctx context.Context, f Frame) error {
	if s.before != nil {
		if err := s.before(ctx, f); err != nil {
			return err
		}
	}
	f.Data = slices.Clone(f.Data)
	s.mu.Lock()
	s.frames = append(s.frames, f)
	s.mu.Unlock()
	select {
	case s.came <- struct{}{}:
	default:
	}
	return nil
}

func (s *sink) all() []Frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.frames)
}

// until waits for n frames.
func (s *sink) until(t testing.TB, n int) []Frame {
	t.Helper()
	timeout := time.After(24 * time.Hour) // of the bubble's clock
	if _, ok := t.(*testing.B); ok {
		timeout = time.After(patience)
	}
	for {
		if got := s.all(); len(got) >= n {
			return got
		}
		select {
		case <-s.came:
		case <-timeout:
			t.Fatalf("waited for %d frames, got %s", n, show(s.all()))
		}
	}
}

// show writes frames as epoch/seq, with their gaps.
func show(fs []Frame) string {
	var b strings.Builder
	for _, f := range fs {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		if g := f.Gap; g != nil {
			fmt.Fprintf(&b, "[%d/%d..%d/%d] ", g.FromEpoch, g.From, g.ToEpoch, g.To)
		}
		fmt.Fprintf(&b, "%d/%d", f.Epoch, f.Seq)
	}
	return b.String()
}

// running is a Client under test.
type running struct {
	*Client
	*sink
	reg  *prometheus.Registry
	stop func() error
}

// start runs a Client over l. cfg needs no URL, Dial, Handle, Registerer.
func start(t testing.TB, l *pipenet.Listener, cfg Config) *running {
	t.Helper()
	s := newSink()
	return startWith(t, l, cfg, s)
}

func startWith(t testing.TB, l *pipenet.Listener, cfg Config, s *sink) *running {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	cfg.Handle, cfg.Registerer = s.handle, reg
	if l != nil {
		cfg.URL, cfg.hooks.dial = "ws://relay.test", l.Dial
	}
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop := sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return &running{Client: c, sink: s, reg: reg, stop: stop}
}

// metric returns the value of millrace_consume_<name> with the given label value, "" for none.
func (r *running) metric(t testing.TB, name, label string) float64 {
	t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "millrace_consume_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			if label == "" || slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == label }) {
				if m.GetCounter() != nil {
					return m.GetCounter().GetValue()
				}
				return m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// Frames built by hand.

func messageHeader(typ string) []byte {
	b := cbor.AppendHead(nil, majorMap, 2)
	b = cbor.AppendHead(cbor.AppendText(b, "op"), majorUint, 1)
	return cbor.AppendText(cbor.AppendText(b, "t"), typ)
}

const testRepo = "did:plc:ewvi7nxzyoun6zhxrhs64oiz"

// frameOf returns a frame of the type with the seq after and before other keys, and size bytes of
// blocks.
func frameOf(typ string, seq int64, size int) []byte { return frameBy(testRepo, typ, seq, size) }

func frameBy(repo, typ string, seq int64, size int) []byte {
	b := cbor.AppendHead(messageHeader(typ), majorMap, 4)
	b = cbor.AppendText(cbor.AppendText(cbor.AppendHead(cbor.AppendText(b, "ops"), majorArray, 1), "an op"), "seq")
	b = cbor.AppendHead(b, majorUint, uint64(seq))
	b = cbor.AppendText(cbor.AppendText(b, "repo"), repo)
	b = cbor.AppendHead(cbor.AppendText(b, "blocks"), majorBytes, uint64(size))
	return append(b, make([]byte, size)...)
}

func commitFrame(seq int64) []byte { return frameOf(TypeCommit, seq, 20) }

func errorFrameOf(name string) []byte {
	b := cbor.AppendHead(nil, majorMap, 1)
	b = cbor.AppendHead(cbor.AppendText(b, "op"), majorNint, 0)
	b = cbor.AppendHead(b, majorMap, 2)
	b = cbor.AppendText(cbor.AppendText(b, "error"), name)
	return cbor.AppendText(cbor.AppendText(b, "message"), "because of "+name)
}

func infoFrameOf(name string) []byte {
	b := cbor.AppendHead(messageHeader(TypeInfo), majorMap, 2)
	b = cbor.AppendText(cbor.AppendText(b, "name"), name)
	return cbor.AppendText(cbor.AppendText(b, "message"), "because of "+name)
}
