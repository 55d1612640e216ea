package consume

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/testwait"
)

// The tests here go through real sockets.

// raw returns the server's websocket frames of the messages, back to back. It also returns in them
// the offsets of the eight bytes of each seq, which must be of the widest form.
func raw(t testing.TB, msgs [][]byte) (stream []byte, seqs []int) {
	t.Helper()
	for _, m := range msgs {
		stream = append(stream, 0x82)
		switch {
		case len(m) < 126:
			stream = append(stream, byte(len(m)))
		case len(m) < 1<<16:
			stream = binary.BigEndian.AppendUint16(append(stream, 126), uint16(len(m)))
		default:
			stream = binary.BigEndian.AppendUint64(append(stream, 127), uint64(len(m)))
		}
		at := findValue(m, skipItem(m, 0), "seq")
		if at < 0 || m[at] != 0x1b {
			t.Fatalf("no wide seq in %.40x", m)
		}
		seqs = append(seqs, len(stream)+at+1)
		stream = append(stream, m...)
	}
	return stream, seqs
}

// flood writes the stream over and over, with seqs rising from first, as fast as the socket takes
// it.
func flood(conn net.Conn, stream []byte, seqs []int, first uint64) {
	for {
		for _, at := range seqs {
			binary.BigEndian.PutUint64(stream[at:], first)
			first++
		}
		if _, err := conn.Write(stream); err != nil {
			return
		}
	}
}

const wideSeq = 1 << 40

func synthetic(n, size int) (msgs [][]byte) {
	for range n {
		msgs = append(msgs, frameOf(TypeCommit, wideSeq, size))
	}
	return msgs
}

// waitGoroutines waits until there are no more goroutines than before.
func waitGoroutines(t *testing.T, before int) {
	t.Helper()
	if testwait.Becomes(patience, func() bool { return runtime.NumGoroutine() <= before }) {
		return
	}
	buf := make([]byte, 1<<20)
	t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
}

// TestSockets floods, breaks and stops real connections: everything comes in order, nothing is
// left behind.
func TestSockets(t *testing.T) {
	before := runtime.NumGoroutine()
	const total = 50_000
	relay := &relay{t: t}
	relay.script = func(p *peer) {
		next := uint64(wideSeq)
		if p.cursor != "live" {
			last, err := parseInt(p.cursor)
			if err != nil {
				t.Error(err)
			}
			next = uint64(last) + 1
		}
		stream, seqs := raw(t, synthetic(1000, 200))
		if p.n <= 3 { // break while frames are sent
			time.AfterFunc(50*time.Millisecond, func() { p.ws.Close() })
		}
		flood(p.ws.NetConn(), stream, seqs, next)
	}
	srv := httptest.NewServer(relay)
	ctx, cancel := context.WithCancel(t.Context())
	next, reconnects := int64(wideSeq), 0
	var c *Client
	c, err := New(Config{URL: srv.URL, Handle: func(_ context.Context, f Frame) error {
		if f.Seq != next || f.Gap != nil {
			return errors.New("out of order: " + show([]Frame{f}))
		}
		next++
		if reconnects = int(relay.conns.Load()); reconnects > 3 && f.Seq-wideSeq > total {
			cancel()
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		t.Error(err)
	}
	if reconnects <= 3 {
		t.Errorf("%d connections", reconnects)
	}
	srv.CloseClientConnections()
	srv.Close()
	relay.wg.Wait()
	http.DefaultClient.CloseIdleConnections()
	waitGoroutines(t, before)
}

func parseInt(s string) (n int64, err error) {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, errors.New("not a number: " + s)
		}
		n = 10*n + int64(c-'0')
	}
	return n, nil
}

// TestTLS reads over wss, with the relay's certificate checked.
func TestTLS(t *testing.T) {
	var agent string
	relay := &relay{t: t, script: func(p *peer) {
		p.commits(11, 12)
		p.wait()
	}}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agent = r.UserAgent()
		relay.ServeHTTP(w, r)
	}))
	srv.Config.ErrorLog = nil
	defer srv.Close()
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	s := newSink()
	c := startWith(t, nil, Config{URL: srv.URL, Cursor: 10, UserAgent: "millrace/test", hooks: testHooks{tls: &tls.Config{RootCAs: pool}}}, s)
	if got := show(c.until(t, 2)); got != "0/11 0/12" {
		t.Errorf("frames %s", got)
	}
	c.stop()
	if agent != "millrace/test" {
		t.Errorf("user agent %q", agent)
	}
	relay.wg.Wait()
	if relay.closes[0] != websocket.CloseNormalClosure {
		t.Errorf("close frames %v", relay.closes)
	}
}

// TestUntrusted refuses a relay whose certificate it does not know.
func TestUntrusted(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = discardLog()
	srv.StartTLS()
	defer srv.Close()
	s := newSink()
	c := startWith(t, nil, Config{URL: srv.URL}, s)
	testwait.Becomes(patience, func() bool { return c.Status().LastError != "" })
	if msg := c.Status().LastError; !strings.Contains(msg, "certificate") {
		t.Errorf("LastError %q", msg)
	}
	if help := c.Status().Advice; !strings.Contains(help, "ca-certificates") {
		t.Errorf("Advice %q", help)
	}
}

// opened returns a Client with a connection to a relay that floods it with the messages, and a
// function that reads one more.
func opened(t testing.TB, msgs [][]byte) (c *Client, next func()) {
	t.Helper()
	stream, seqs := raw(t, msgs)
	_, url := socketRelay(t, func(p *peer) { flood(p.ws.NetConn(), stream, seqs, wideSeq) })
	c, err := New(Config{URL: url, Handle: func(context.Context, Frame) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := open(t.Context(), &c.cfg, withCursor(c.url, 0, false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.close(false) })
	c.num.opened()
	s := &session{Client: c, conn: conn}
	return c, func() {
		if e := s.next(t.Context()); e.cause != "" {
			t.Fatal(e.String())
		}
	}
}

// TestAllocs reads frames of every type: gorilla allocates its 8-byte message reader, the package
// nothing.
func TestAllocs(t *testing.T) {
	var msgs [][]byte
	for i := range 512 {
		typ := []string{TypeCommit, TypeIdentity, TypeAccount, TypeSync, "#fnord"}[i%5]
		msgs = append(msgs, frameOf(typ, wideSeq, 30*i))
	}
	c, next := opened(t, msgs)
	for range 2000 { // let the buffer grow
		next()
	}
	if n := testing.AllocsPerRun(5000, next); n > 1 {
		t.Errorf("%v allocations a frame, 1 of them gorilla's", n)
	}
	if c.lastSeq.Load() < wideSeq+7000 {
		t.Error("nothing was read")
	}
}

// TestBufferShrinks gives the memory of rare large messages back.
func TestBufferShrinks(t *testing.T) {
	var b buffer
	large, huge, small := make([]byte, maxKeptBuffer/2), make([]byte, 4<<20), []byte("small")
	b.read(bytes.NewReader(huge))
	b.keep()
	b.read(bytes.NewReader(huge))
	b.read(bytes.NewReader(small))
	if b.keep(); cap(b.kept) > minBuffer {
		t.Errorf("%d bytes are kept of a huge message", cap(b.kept))
	}
	if b.read(bytes.NewReader(small)); cap(b.buf) > minBuffer {
		t.Errorf("%d bytes are kept of the other huge message", cap(b.buf))
	}
	if msg, over, err := b.read(bytes.NewReader(large)); len(msg) != len(large) || over || err != nil {
		t.Fatalf("%d bytes, %v, %v", len(msg), over, err)
	}
	grown := cap(b.buf)
	for i := range 2 * shrinkEvery {
		if msg, _, _ := b.read(bytes.NewReader(small)); string(msg) != "small" {
			t.Fatalf("read %d: %q", i, msg)
		}
		if i == shrinkEvery-2 && cap(b.buf) != grown {
			t.Errorf("shrank at once: %d", cap(b.buf))
		}
	}
	if cap(b.buf) > 2*minBuffer {
		t.Errorf("%d bytes kept", cap(b.buf))
	}
	for range 2 { // both buffers large
		b.read(bytes.NewReader(large))
		b.keep()
	}
	for range 3 * shrinkEvery {
		b.read(bytes.NewReader(small))
		if b.keep(); string(b.kept) != "small" {
			t.Fatalf("kept %q", b.kept)
		}
	}
	if cap(b.buf)+cap(b.kept) > 4*minBuffer {
		t.Errorf("%d and %d bytes kept", cap(b.buf), cap(b.kept))
	}
}

// BenchmarkRun is frames per second through Run, from a relay in the same process that sends flat
// out.
func BenchmarkRun(b *testing.B) {
	sources := []struct {
		name string
		msgs func(b *testing.B) [][]byte
	}{
		{"corpus", func(b *testing.B) [][]byte { return corpusFrames(b) }},
		{"300B", func(b *testing.B) [][]byte { return synthetic(500, 200) }},
		{"4KiB", func(b *testing.B) [][]byte { return synthetic(50, 4000) }},
	}
	for _, src := range sources {
		b.Run(src.name, func(b *testing.B) {
			const batch = 10_000
			stream, seqs := raw(b, src.msgs(b))
			_, url := socketRelay(b, func(p *peer) { flood(p.ws.NetConn(), stream, seqs, wideSeq) })
			ticks, n := make(chan struct{}), 0
			c, err := New(Config{URL: url, Handle: func(ctx context.Context, f Frame) error {
				if n++; n%batch == 0 {
					select {
					case ticks <- struct{}{}:
					case <-ctx.Done():
					}
				}
				return nil
			}})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error, 1)
			go func() { done <- c.Run(ctx) }()
			b.ReportAllocs()
			b.SetBytes(int64(len(stream)) * batch / int64(len(seqs)))
			for b.Loop() {
				<-ticks
			}
			b.ReportMetric(float64(b.N)*batch/b.Elapsed().Seconds(), "frames/s")
			cancel()
			if err := <-done; err != nil {
				b.Error(err)
			}
		})
	}
}

func BenchmarkSkim(b *testing.B) {
	for _, src := range []struct {
		name string
		msgs [][]byte
	}{{"corpus", corpusFrames(b)}, {"300B", synthetic(64, 200)}} {
		b.Run(src.name, func(b *testing.B) {
			b.ReportAllocs()
			i, bytes := 0, 0
			for b.Loop() {
				m := src.msgs[i%len(src.msgs)]
				bytes += len(m)
				if _, why := skim(m); why != reasonNone {
					b.Fatal(why)
				}
				i++
			}
			b.SetBytes(int64(bytes / i))
		})
	}
}
