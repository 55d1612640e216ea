package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// feed is one subscription, read with as little work as can be: large reads, messages where they
// lie. One goroutine uses it.
type feed struct {
	conn     net.Conn
	buf      []byte
	from, to int       // what is unread in buf
	came     time.Time // when the newest bytes came
}

// Opcodes of websocket messages (RFC 6455, section 5.2).
const (
	opText   = 1
	opBinary = 2
	opClose  = 8
	opPing   = 9
)

const (
	feedBytes    = 256 << 10
	maxFeedBytes = 64 << 20 // of one message
)

// dialFeed subscribes to a ws:// URL. ctx bounds the connection's life.
func dialFeed(ctx context.Context, address string) (*feed, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
	if err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Key: bWlsbHJhY2UgYmVuY2hlcw==\r\nSec-WebSocket-Version: 13\r\n\r\n", u.RequestURI(), u.Host)
	r := bufio.NewReaderSize(conn, 4<<10)
	response, err := http.ReadResponse(r, nil)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusSwitchingProtocols {
		conn.Close()
		return nil, fmt.Errorf("subscribe: the server answered %s", response.Status)
	}
	f := &feed{conn: conn, buf: make([]byte, feedBytes), came: time.Now()}
	f.to, err = io.ReadFull(r, f.buf[:r.Buffered()])
	return f, err
}

// next returns the payload of the next message, which is good until the call after. Pings are
// answered.
func (f *feed) next() ([]byte, error) {
	for {
		op, payload, err := f.message()
		switch {
		case err != nil:
			return nil, err
		case op == opText || op == opBinary:
			return payload, nil
		case op == opClose:
			return nil, fmt.Errorf("the server closed: %q", payload)
		case op == opPing:
			// A mask of zeros leaves the payload as it is.
			pong := append([]byte{0x8a, 0x80 | byte(len(payload)), 0, 0, 0, 0}, payload...)
			if _, err := f.conn.Write(pong); err != nil {
				return nil, err
			}
		}
	}
}

func (f *feed) message() (op byte, payload []byte, err error) {
	if err := f.need(2); err != nil {
		return 0, nil, err
	}
	head := f.buf[f.from:f.to]
	op, header, length := head[0]&0xf, 2, uint64(head[1])
	switch length {
	case 126:
		header = 4
	case 127:
		header = 10
	}
	if err := f.need(header); err != nil {
		return 0, nil, err
	}
	switch head = f.buf[f.from:f.to]; header {
	case 4:
		length = uint64(binary.BigEndian.Uint16(head[2:]))
	case 10:
		length = binary.BigEndian.Uint64(head[2:])
	}
	if head[0]&0x80 == 0 || head[1]&0x80 != 0 || length > maxFeedBytes {
		return 0, nil, errors.New("a message in parts, masked or too large")
	}
	whole := header + int(length)
	if err := f.need(whole); err != nil {
		return 0, nil, err
	}
	payload = f.buf[f.from+header : f.from+whole]
	f.from += whole
	return op, payload, nil
}

// need makes sure that n bytes are there.
func (f *feed) need(n int) error {
	if f.to-f.from >= n {
		return nil
	}
	if len(f.buf)-f.from < n {
		to := f.buf
		if len(f.buf) < n {
			to = make([]byte, 2*n)
		}
		f.to = copy(to, f.buf[f.from:f.to])
		f.buf, f.from = to, 0
	}
	if f.from == f.to {
		f.from, f.to = 0, 0
	}
	for f.to-f.from < n {
		got, err := f.conn.Read(f.buf[f.to:])
		if err != nil {
			return err
		}
		f.to += got
	}
	f.came = time.Now()
	return nil
}
