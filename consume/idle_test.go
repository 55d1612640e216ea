package consume

import (
	"context"
	"net"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"millrace/consume/relaysim/testwait"
)

// TestIdle: frames that arrive while Idle waits are handled together before it is called again.
// When it returns that it has waited enough, reading blocks. When the connection has ended, it is
// called once more.
func TestIdle(t *testing.T) {
	const rounds, batch = 5, 4
	idling, sent, read := make(chan bool), make(chan int), make(chan bool)
	r := &relay{t: t}
	r.script = func(p *peer) {
		next := int64(1)
		for range rounds {
			p.commits(next, next) // reading waits for it
			<-idling
			n := 0
			for seq := next + 1; seq <= next+batch; seq++ {
				n += 2 + len(commitFrame(seq))
			}
			p.commits(next+1, next+batch)
			next += batch + 1
			sent <- n
			<-read
		}
		p.commits(next, next) // and ends the connection
	}
	srv := httptest.NewServer(r)
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var seqs []int64
	calls, since := 0, 0 // of Idle; frames since it was called
	var socket syscall.RawConn
	c, err := New(Config{URL: srv.URL,
		hooks: testHooks{dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil {
				socket, err = conn.(*net.TCPConn).SyscallConn()
			}
			return conn, err
		}},
		Handle: func(_ context.Context, f Frame) error {
			seqs = append(seqs, f.Seq)
			since++
			return nil
		},
		Idle: func() bool {
			calls++
			got := since
			since = 0
			switch {
			case got == 1 && len(seqs) < rounds*(batch+1):
				idling <- true
				awaitBytes(t, socket, <-sent)
				return true
			case got == batch && len(seqs) <= rounds*(batch+1):
				read <- true
			case got == 0 && len(seqs) > rounds*(batch+1):
				cancel()
			case got != 0 && len(seqs) <= rounds*(batch+1):
				t.Errorf("%d frames came between two calls of Idle", got)
			}
			return false
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(ctx); err != nil {
		t.Fatal(err)
	}
	for i, seq := range seqs {
		if seq != int64(i+1) {
			t.Fatalf("frame %d has number %d", i+1, seq)
		}
	}
	if len(seqs) != rounds*(batch+1)+1 || calls < 2*rounds {
		t.Errorf("%d frames, %d calls of Idle", len(seqs), calls)
	}
}

// TestLook: what was sent is seen without waiting, also after a deadline that has passed; a
// connection that was cut, or has ended, says so.
func TestLook(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	send := func(s string) {
		t.Helper()
		if _, err := far.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	asked := 0
	w := &wire{Conn: near, timeout: patience}
	w.setIdle(func() bool {
		if asked++; asked == 3 {
			// while it waits, mostly
			time.AfterFunc(10*time.Millisecond, func() { _, _ = far.Write([]byte("two")) })
		}
		return asked < 3
	})
	if w.idle == nil {
		t.Skip("sockets cannot be looked into here")
	}
	p := make([]byte, 64)
	read := func() string {
		t.Helper()
		n, err := w.Read(p)
		if err != nil {
			t.Fatal(err)
		}
		return string(p[:n])
	}
	send("one")
	awaitBytes(t, w.raw, len("one"))
	if got := read(); got != "one" || asked != 0 {
		t.Errorf("%q, Idle called %d times", got, asked)
	}
	if got := read(); got != "two" || asked != 3 {
		t.Errorf("%q, Idle called %d times", got, asked)
	}
	if err := near.SetReadDeadline(time.Now().Add(-time.Second)); err != nil { // left by a read
		t.Fatal(err)
	}
	send("three")
	if got := read(); got != "three" {
		t.Errorf("%q", got)
	}
	w.cut(causeRecheck)
	send("four")
	if n, err := w.Read(p); err == nil {
		t.Errorf("a connection that was cut gave %q", p[:n])
	}
	gone := &wire{Conn: near, timeout: patience}
	gone.setIdle(func() bool { return true })
	if err := near.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	_, _ = gone.Read(p)
	far.Close()
	if n, err := gone.Read(p); err == nil {
		t.Errorf("a connection that has ended gave %q", p[:n])
	}
}

// awaitBytes waits until n bytes are in the socket, to be read.
func awaitBytes(t *testing.T, raw syscall.RawConn, n int) {
	t.Helper()
	p, have := make([]byte, n), 0
	var err error
	testwait.Becomes(patience, func() bool {
		err = raw.Control(func(fd uintptr) {
			have, _, _ = syscall.Recvfrom(int(fd), p, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		})
		return have >= n || err != nil
	})
	if have < n {
		t.Errorf("%d of %d bytes came: %v", have, n, err)
	}
}
