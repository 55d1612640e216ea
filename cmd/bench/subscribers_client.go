//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"
)

// skimmer is one subscriber that costs as little as one can: it finds where frames end, counts and
// hashes them, and notes when they came. What they hold is settled in the end, from the log.
type skimmer struct {
	class  *class
	dids   map[string]struct{} // nil: all
	source byte                // it comes from 127.0.0.source
	fd     int

	carry  []byte // the beginning of a frame whose rest has yet to come
	events int64
	bytes  int64
	hash   *xxhash.Digest // of the events' frames
	notes  []note
	ended  error
	due    time.Time // of the next read, if it reads slowly
}

// note says when events were read.
type note struct {
	first int64 // number of the first one
	n     int32
	at    int64 // Unix µs
}

const handshakeLimit = 20 * time.Second

// connect makes the websocket connection.
func (c *skimmer) connect(addr syscall.SockaddrInet4, host, query string) (err error) {
	c.hash = xxhash.New()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	c.fd = fd
	defer func() {
		if err != nil {
			_ = syscall.Close(fd)
		}
	}()
	if c.class.pace != asItComes { // so that the server notices soon
		if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, 32<<10); err != nil {
			return err
		}
	}
	limit := syscall.NsecToTimeval(int64(handshakeLimit))
	if err := syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &limit); err != nil {
		return err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, c.source}}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if err := syscall.Connect(fd, &addr); err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	request := []byte("GET /subscribe?" + query + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	for len(request) > 0 {
		n, err := syscall.Write(fd, request)
		if err != nil {
			return fmt.Errorf("handshake: %w", err)
		}
		request = request[n:]
	}
	answer := make([]byte, 0, 4<<10)
	for !bytes.Contains(answer, []byte("\r\n\r\n")) {
		n, err := syscall.Read(fd, answer[len(answer):cap(answer)])
		if err == syscall.EINTR { // with a limit on reads, the scheduler's signals end them too
			continue
		}
		if err != nil || n == 0 {
			return fmt.Errorf("handshake: %w after %q", errors.Join(err, errGone), answer)
		}
		answer = answer[:len(answer)+n]
	}
	head, rest, _ := bytes.Cut(answer, []byte("\r\n\r\n"))
	if !strings.HasPrefix(string(head), "HTTP/1.1 101") {
		return fmt.Errorf("refused: %.300s", answer)
	}
	c.take(rest)
	return syscall.SetNonblock(fd, true)
}

var errGone = errors.New("the server ended the connection")

// read reads what is there, at most once over buf, and says whether there may be more.
func (c *skimmer) read(buf []byte) (more bool) {
	n, err := syscall.Read(c.fd, buf)
	switch {
	case err == syscall.EAGAIN || err == syscall.EINTR:
		return false
	case err != nil:
		c.ended = err
		return false
	case n == 0:
		c.ended = errGone
		return false
	}
	c.take(buf[:n])
	return n == len(buf)
}

// take looks at bytes that came. It keeps none of them but in carry.
func (c *skimmer) take(b []byte) {
	now := time.Now().UnixMicro()
	first := c.events
	c.bytes += int64(len(b))
	for len(c.carry) > 0 && len(b) > 0 {
		need := frameSize(c.carry)
		if need == 0 {
			need = len(c.carry) + 1 // of the header
		}
		n := min(need-len(c.carry), len(b))
		c.carry, b = append(c.carry, b[:n]...), b[n:]
		if size := frameSize(c.carry); size > 0 && len(c.carry) >= size {
			c.frame(c.carry)
			c.carry = c.carry[:0]
		}
	}
	run := 0 // bytes of neighbouring events' frames
	for {
		rest := b[run:]
		size := frameSize(rest)
		if size == 0 || size > len(rest) {
			break
		}
		if isEventFrame(rest[0]) {
			run += size
			c.events++
			continue
		}
		_, _ = c.hash.Write(b[:run])
		c.frame(rest[:size])
		b, run = rest[size:], 0
	}
	_, _ = c.hash.Write(b[:run])
	c.carry = append(c.carry, b[run:]...)
	if n := c.events - first; n > 0 {
		c.notes = append(c.notes, note{first, int32(n), now})
	}
}

// frame takes one whole frame.
func (c *skimmer) frame(f []byte) {
	switch f[0] {
	case 0x81, 0x82:
		_, _ = c.hash.Write(f)
		c.events++
	case 0x89: // a ping: at most 125 bytes, which always fit the socket's buffer
		pong := append([]byte{0x8a, 0x80 | f[1], 0, 0, 0, 0}, f[2:]...)
		_, _ = syscall.Write(c.fd, pong)
	}
}

func isEventFrame(first byte) bool { return first == 0x81 || first == 0x82 }

// frameSize is the length of the unmasked frame that b begins with, 0 if its header is not all
// there.
func frameSize(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch n := int(b[1]); n {
	case 126:
		if len(b) < 4 {
			return 0
		}
		return 4 + int(binary.BigEndian.Uint16(b[2:]))
	case 127:
		if len(b) < 10 {
			return 0
		}
		return 10 + int(binary.BigEndian.Uint64(b[2:]))
	default:
		return 2 + n
	}
}
