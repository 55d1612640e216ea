package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A process under load is stopped by SIGTERM, and started again. It ends in order, and gives
// subscribers a cursor. One that resumes there, or that was cut off as it was slow, has the truth
// once, in order. Some subscribers read nothing meanwhile, and change none of that. That streams
// end between two frames is TestShutdownUnderLoad of package public.
func TestRestartUnderLoad(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	const restarts, count, frames = 6, 60, 15_000
	sim := startRelaysim(t, "--rate", "1500", "--frames", strconv.Itoa(frames), "--wait-for-consumer")
	dir, addr := t.TempDir(), freeAddr(t)
	const deadline = 6 * time.Second
	start := func() *millraceProcess {
		p := startMillrace(t, sim.url, dir, addr, "--shutdown-timeout", deadline.String(), "--memory", "256MiB")
		waitServing(t, addr)
		return p
	}
	p := start()
	readFirst(t, addr, 1) // until something is committed a restart begins live
	var goneAway atomic.Int64
	readers := make([]*loadReader, count)
	for i := range readers {
		readers[i] = &loadReader{t: t, addr: addr, goneAway: &goneAway, extended: i%2 == 0, compressed: i%4 >= 2, cursor: "0"}
	}
	for i := range restarts {
		var reading sync.WaitGroup
		for _, r := range readers {
			r.connect()
			reading.Go(r.read)
		}
		for range count / 4 {
			dialRaw(t, addr, "cursor=0") // and reads nothing
		}
		sim.waitMade(t, int64(frames*(i+1)/(restarts+2)))
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-p.exited
		if code := p.cmd.ProcessState.ExitCode(); code != exitOK {
			t.Errorf("it stopped with exit code %d\n%s", code, p.stderr)
		}
		reading.Wait()
		if t.Failed() {
			return
		}
		p = start()
	}
	if goneAway.Load() == 0 {
		t.Error("no subscriber got going_away")
	}
	sim.waitMade(t, int64(frames))
	want := readTruth(t, sim.truth)
	for i, r := range readers {
		if !r.extended || r.compressed {
			continue // what has no position, or is not decoded here, was checked frame by frame
		}
		var seen streams
		for _, e := range r.events {
			r.exact = append(r.exact, seen.parse(t, e))
		}
		for _, e := range readAll(t, addr, "cursor="+r.cursor, len(want)-len(r.events)) {
			e.Epoch = 0
			r.exact = append(r.exact, e)
		}
		checkExact(t, fmt.Sprintf("subscriber %d", i), r.exact, want)
	}
}

// loadReader reads frames by hand, to see where its stream ends.
type loadReader struct {
	t                    *testing.T
	addr, cursor         string
	extended, compressed bool
	goneAway             *atomic.Int64 // how many going_away messages all readers got

	conn   net.Conn
	br     *bufio.Reader
	events []string // extended and plain ones, over all connections
	exact  []truthEvent
}

func (r *loadReader) connect() {
	r.conn, r.br = dialRaw(r.t, r.addr, fmt.Sprintf("cursor=%s&extended=%t&compress=%t", r.cursor, r.extended, r.compressed))
}

// read reads until the connection ends, and notes where to go on.
func (r *loadReader) read() {
	_ = r.conn.SetReadDeadline(time.Now().Add(5 * patience))
	for {
		first, payload, err := readServerFrame(r.br)
		if err != nil || first == 0x88 {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				r.t.Errorf("extended %t, compressed %t: the stream did not end", r.extended, r.compressed)
			}
			if err == nil && !r.extended {
				r.t.Error("a plain subscriber got a close frame")
			}
			if n := len(r.events); n > 0 {
				r.cursor = nextCursor([]byte(r.events[n-1]))
			}
			return
		}
		switch {
		case !r.extended || r.compressed:
		case isEvent(payload):
			r.events = append(r.events, string(payload))
		case bytes.Contains(payload, []byte("going_away")):
			r.goneAway.Add(1)
		}
	}
}

// dialRaw subscribes by hand. The connection is closed when the test ends.
func dialRaw(t *testing.T, addr, query string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET /subscribe?%s HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", query)
	br := bufio.NewReader(conn)
	for line := ""; line != "\r\n"; {
		if line, err = br.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	return conn, br
}

// readServerFrame returns io.EOF only between two frames.
func readServerFrame(br *bufio.Reader) (first byte, payload []byte, err error) {
	var head [10]byte
	if _, err := io.ReadFull(br, head[:1]); err != nil {
		return 0, nil, err
	}
	cut := func(b []byte) error {
		_, err := io.ReadFull(br, b)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	if err := cut(head[1:2]); err != nil {
		return 0, nil, err
	}
	n := int(head[1])
	switch n {
	case 126:
		if err := cut(head[2:4]); err != nil {
			return 0, nil, err
		}
		n = int(binary.BigEndian.Uint16(head[2:]))
	case 127:
		if err := cut(head[2:10]); err != nil {
			return 0, nil, err
		}
		n = int(binary.BigEndian.Uint64(head[2:]))
	}
	payload = make([]byte, n)
	return head[0], payload, cut(payload)
}
