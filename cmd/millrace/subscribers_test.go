package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A process under load is asked to stop, and started again: within the deadline every subscriber's
// stream ends between two frames, extended ones get where to resume, and those that do have the
// truth once, in order. Some subscribers read nothing meanwhile, and change none of that.
func TestRestartUnderLoad(t *testing.T) {
	t.Parallel()
	inTime(t, func(wrong *complaints) { restartUnderLoad(t, wrong) })
}

func restartUnderLoad(t *testing.T, wrong *complaints) {
	restarts, clients, frames := 2, 40, 12_000
	if long() {
		restarts, clients, frames = 8, 100, 30_000
	}
	sim := startRelaysim(t, "--rate", "1500", "--frames", strconv.Itoa(frames), "--wait-for-consumer")
	dir, addr := t.TempDir(), freeAddr(t)
	const deadline = 6 * time.Second
	start := func() *millraceProcess {
		p := startMillrace(t, sim.url, dir, addr, "--shutdown-timeout", deadline.String(), "--memory", "256MiB")
		waitServing(t, addr)
		return p
	}
	p := start()
	readers := make([]*loadReader, clients)
	for i := range readers {
		readers[i] = &loadReader{t: t, wrong: wrong, addr: addr, extended: i%2 == 0, compressed: i%4 >= 2, cursor: "0"}
	}
	for i := range restarts {
		var reading sync.WaitGroup
		for _, r := range readers {
			r.connect()
			reading.Go(r.read)
		}
		for range clients / 4 {
			dialRaw(t, addr, "cursor=0") // and reads nothing
		}
		sim.waitMade(t, int64(frames*(i+1)/(restarts+2)))
		begun := time.Now()
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-p.exited
		if took := time.Since(begun); took > 3*deadline || p.cmd.ProcessState.ExitCode() != exitOK {
			wrong.errorf("it took %v to stop, exit code %d\n%s", took, p.cmd.ProcessState.ExitCode(), p.stderr)
		}
		reading.Wait()
		if wrong.any() {
			return
		}
		p = start()
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
	wrong                *complaints
	addr, cursor         string
	extended, compressed bool

	conn   net.Conn
	br     *bufio.Reader
	events []string // extended and plain ones, over all connections
	exact  []truthEvent
}

func (r *loadReader) connect() {
	r.conn, r.br = dialRaw(r.t, r.addr, fmt.Sprintf("cursor=%s&extended=%t&compress=%t", r.cursor, r.extended, r.compressed))
}

// read reads until the connection ends, which must be between two frames.
func (r *loadReader) read() {
	_ = r.conn.SetReadDeadline(time.Now().Add(5 * patience))
	var last []byte
	first := byte(0)
	for {
		f, payload, err := readServerFrame(r.br)
		if err == io.EOF {
			break
		}
		if err != nil {
			r.wrong.errorf("extended %t, compressed %t: the stream ended with %v", r.extended, r.compressed, err)
			return
		}
		if first = f; f == 0x88 {
			break
		}
		last = payload
		if r.extended && !r.compressed && isEvent(payload) {
			r.events = append(r.events, string(payload))
		}
	}
	switch {
	case !r.extended && first == 0x88:
		r.wrong.errorf("a plain subscriber got a close frame")
	case r.extended && first != 0x88:
		r.wrong.errorf("an extended subscriber got no close frame")
	case r.extended && !r.compressed:
		_, rest, _ := bytes.Cut(last, []byte(`"cursor":"`))
		cursor, _, ok := strings.Cut(string(rest), `"`)
		if !ok || !bytes.Contains(last, []byte("going_away")) {
			r.wrong.errorf("the last message is %.200s, want going_away with a cursor", last)
		}
		r.cursor = cursor
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
