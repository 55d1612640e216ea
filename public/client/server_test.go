package client_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/consume/relaysim/pipenet"
	"millrace/public"
	"millrace/public/client"
)

// patience is for what must come.
const patience = 2 * time.Minute

// instance is a millrace of this process.
type instance struct {
	*httptest.Server
	public *public.Server
}

func serve(t testing.TB, l *eventLog) *instance {
	t.Helper()
	p, err := public.New(public.Config{Log: l.Log, Dictionaries: l.dictionaries, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	s := &instance{httptest.NewServer(p.Handler()), p}
	t.Cleanup(func() { s.stop(0) })
	return s
}

// served makes a log that has the events of these frames, and serves it.
func served(t testing.TB, frames ...frame) (*eventLog, *instance) {
	t.Helper()
	l := newEventLog(t, frames...)
	return l, serve(t, l)
}

// stop ends the server, giving its clients so much time for the close.
func (s *instance) stop(grace time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	_ = s.public.Shutdown(ctx)
	s.Server.CloseClientConnections()
	s.Server.Close()
}

func (s *instance) addr() string { return strings.TrimPrefix(s.URL, "http://") }

// proxy passes connections on to a server that may change, and breaks them as it is asked to.
type proxy struct {
	net.Listener
	wg sync.WaitGroup

	mu      sync.Mutex
	backend string // "": none answers
	conns   map[net.Conn]struct{}
	fault   func() fault // of the next connection; nil: none
	dialled int
}

// fault says what becomes of a connection.
type fault struct {
	cut   int  // bytes from the server after which it breaks; 0: never
	stall bool // instead of breaking it sends nothing more
}

func newProxy(t testing.TB, backend string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, backend: backend, conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.run)
	t.Cleanup(func() {
		l.Close()
		p.breakAll()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) url() string { return "ws://" + p.Addr().String() }

// to changes the server.
func (p *proxy) to(backend string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backend = backend
}

// breakBy says how later connections break; nil: they do not.
func (p *proxy) breakBy(fault func() fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

// breakAll breaks what there is.
func (p *proxy) breakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.(*net.TCPConn).SetLinger(0)
		c.Close()
	}
}

func (p *proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dialled
}

func (p *proxy) run() {
	for {
		c, err := p.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.dialled++
		backend, f := p.backend, fault{}
		if p.fault != nil {
			f = p.fault()
		}
		p.mu.Unlock()
		s, err := net.Dial("tcp", backend)
		if backend == "" || err != nil {
			c.Close()
			continue
		}
		p.mu.Lock()
		p.conns[c], p.conns[s] = struct{}{}, struct{}{}
		p.mu.Unlock()
		p.wg.Go(func() { p.forward(c, s, f) })
	}
}

func (p *proxy) forward(c, s net.Conn, f fault) {
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(s, c)
		s.Close()
	})
	if f.cut > 0 {
		_, _ = io.CopyN(c, s, int64(f.cut))
		if f.stall {
			_, _ = io.Copy(io.Discard, s)
		}
	} else {
		_, _ = io.Copy(c, s)
	}
	c.Close()
	s.Close()
	up.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	delete(p.conns, s)
}

// randomFaults break connections anywhere, in the handshake too, and stall some.
func randomFaults(rng *rand.Rand, most int) func() fault {
	return func() fault { return fault{cut: 1 + rng.IntN(most), stall: rng.IntN(16) == 0} }
}

// newClient makes a client that is in a hurry.
func newClient(t testing.TB, cfg client.Config) *client.Client {
	t.Helper()
	if cfg.MinBackoff == 0 {
		cfg.MinBackoff, cfg.MaxBackoff = time.Millisecond, 20*time.Millisecond
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// servePipes serves a handler in a bubble of synctest, and makes a client of it.
func servePipes(t *testing.T, h http.Handler, cfg client.Config) *client.Client {
	t.Helper()
	srv, l := pipenet.NewServer(h)
	srv.Start()
	t.Cleanup(srv.Close)
	cfg.URL = srv.URL
	c := newClient(t, cfg)
	c.DialBy(l.Dial)
	return c
}

// read takes n events.
func read(t testing.TB, c *client.Client, n int) []client.Event {
	t.Helper()
	if n == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out []client.Event
	for e, err := range c.Events(ctx) {
		if err != nil {
			t.Fatalf("after %d of %d events: %v", len(out), n, err)
		}
		if out = append(out, e); len(out) == n {
			break
		}
	}
	return out
}

// checkNoMore makes sure that no event comes which the test did not expect: the next one is what is
// added to the logs.
func checkNoMore(t testing.TB, c *client.Client, logs ...*eventLog) {
	t.Helper()
	var next []truth
	for _, l := range logs {
		next = l.add(identity(didN(1)))
	}
	check(t, read(t, c, 1), next)
}

// keepAdding appends the same frames again and again, until ctx is done.
func keepAdding(ctx context.Context, l *eventLog, frames ...frame) {
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for ctx.Err() == nil {
		l.add(frames...)
		<-pace.C
	}
}

// check compares events with the truth, but for their stamps, which are each instance's own.
func check(t testing.TB, got []client.Event, want []truth) {
	t.Helper()
	for i, e := range got {
		g := truth{cursor: e.Cursor, json: string(e.AppendPlain(nil))}
		if i >= len(want) || g.timeless() != want[i].timeless() {
			t.Fatalf("event %d of %d is\n%s\nwant\n%s", i, len(want), g.timeless(), append(want, truth{})[min(i, len(want))].timeless())
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d", len(got), len(want))
	}
}

// refusing answers every handshake with an error, until it has done so n times.
func refusing(n, status int, header http.Header, text string, then http.Handler) http.Handler {
	var mu sync.Mutex
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		n--
		refuse := n >= 0
		mu.Unlock()
		if !refuse {
			then.ServeHTTP(w, r)
			return
		}
		for k, v := range header {
			w.Header()[k] = v
		}
		http.Error(w, text, status)
	})
}
