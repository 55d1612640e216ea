//go:build linux

package main

import (
	"bufio"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
)

// TestSkimmer cuts a stream of frames at random places: what the skimmer counts and hashes does not
// depend on where.
func TestSkimmer(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var stream []byte
	hash := xxhash.New()
	events := int64(0)
	for range 300 {
		first, size := byte(0x81), rng.IntN(300)
		switch rng.IntN(10) {
		case 0:
			size = 1<<16 + rng.IntN(1000)
		case 1:
			first, size = 0x8a, rng.IntN(126) // a pong is no event
		case 2:
			first = 0x82
		}
		f := appendServerFrame(nil, first, make([]byte, size))
		stream = append(stream, f...)
		if isEventFrame(first) {
			events++
			_, _ = hash.Write(f)
		}
	}
	for range 50 {
		k := skimmer{hash: xxhash.New()}
		var noted int64
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), 1+rng.IntN(1<<rng.IntN(18)))
			k.take(rest[:n])
			rest = rest[n:]
		}
		for _, n := range k.notes {
			if n.first != noted {
				t.Fatalf("note of event %d after %d", n.first, noted)
			}
			noted += int64(n.n)
		}
		if k.events != events || noted != events || k.hash.Sum64() != hash.Sum64() || len(k.carry) > 0 {
			t.Fatalf("%d events, %d noted, want %d; %d bytes are left", k.events, noted, events, len(k.carry))
		}
	}
}

// TestHeldLogJudges: a part depends on each event that passes.
func TestHeldLogJudges(t *testing.T) {
	log := func(n int) *heldLog {
		l := &heldLog{parts: map[string]*heldPart{}}
		for i := range n {
			e := heldEvent{timeUS: int64(i), did: "did:plc:a", collection: "app.bsky.feed.post", plain: []byte{byte(i)}}
			if i%2 == 1 {
				e.did, e.collection = "did:plc:b", ""
			}
			l.events = append(l.events, e)
		}
		return l
	}
	for _, c := range []struct {
		k    skimmer
		want int
	}{
		{skimmer{class: &class{}}, 10},
		{skimmer{class: &class{query: oneCollection}}, 5},
		// other kinds pass
		{skimmer{class: &class{query: "wantedCollections=org.example.nothing"}}, 5},
		{skimmer{class: &class{}, dids: map[string]struct{}{"did:plc:b": {}}}, 5},
	} {
		p := log(10).part(&c.k)
		if len(p.stamps) != c.want {
			t.Errorf("%q: %d events, want %d", c.k.class.query, len(p.stamps), c.want)
		}
		if q := log(8).part(&c.k); q.hash == p.hash {
			t.Errorf("%q: the hash does not show that events are missing", c.k.class.query)
		}
	}
}

func TestPercentiles(t *testing.T) {
	h := lagHistogram{}
	for i := range int64(1000) {
		h[i+1]++
	}
	p50, p99, most := h.percentiles()
	if p50 != 500*time.Microsecond || p99 != 990*time.Microsecond || most != time.Millisecond {
		t.Errorf("p50 %v, p99 %v, most %v", p50, p99, most)
	}
}

// TestSkimmerSignals sends the signals of Go's scheduler to a skimmer that waits for the answer to
// its handshake.
func TestSkimmerSignals(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	thread, done := make(chan int, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		thread <- syscall.Gettid()
		c := skimmer{class: &class{}, source: 1}
		err := c.connect(syscall.SockaddrInet4{Port: ln.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}, "test", "")
		if err == nil {
			err = syscall.Close(c.fd)
		}
		done <- err
	}()
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
		t.Fatal(err)
	}
	tid := <-thread
	for range 100 {
		if _, _, errno := syscall.Syscall(syscall.SYS_TGKILL, uintptr(os.Getpid()), uintptr(tid), uintptr(syscall.SIGURG)); errno != 0 {
			break // it has ended: done says why
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
