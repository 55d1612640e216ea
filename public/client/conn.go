package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	handshakeTimeout = 15 * time.Second
	writeTimeout     = 10 * time.Second
	readBufferBytes  = 64 << 10
	pingsPerSilence  = 3

	// maxHandshakeBytes is how much is read from a server before the upgrade is answered. What is
	// left of the last read may be messages.
	maxHandshakeBytes = 1 << 20
)

// errLongHandshake ends a handshake of more than maxHandshakeBytes.
var errLongHandshake = errors.New("the answer has no end")

// silentHeartbeats is how many heartbeats a millrace may miss.
const silentHeartbeats = 3

// minArriving is how many bytes of a message must come in the time in which some message must.
const minArriving = 1 << 10

// liveConn is a connection on which it is noticed that the other side is silent. Reads are those of
// one goroutine, which also sets the fields.
type liveConn struct {
	net.Conn
	silence time.Duration // for any byte to come
	onWait  func()        // see Config.OnWait

	handshake int           // bytes that came during the handshake
	started   bool          // it is done
	heartbeat time.Duration // for a message to come; 0: it need not
	taken     bool          // waiting for the next message has not begun
	arriving  bool          // a part of the next one has come
	came      int           // bytes since waiting began
	waiting   time.Time     // when waiting began
}

// Read implements net.Conn. It is called when all that came before is used up.
func (c *liveConn) Read(p []byte) (int, error) {
	if !c.started {
		if c.handshake > maxHandshakeBytes {
			return 0, errLongHandshake
		}
		n, err := c.Conn.Read(p)
		c.handshake += n
		return n, err
	}
	switch {
	case c.taken:
		c.onWait()
		c.taken, c.waiting, c.came = false, time.Now(), 0
	case c.arriving && c.came >= minArriving: // a large message takes long over a slow connection
		c.waiting, c.came = time.Now(), 0
	}
	deadline := time.Now().Add(c.silence)
	due := c.waiting.Add(max(c.silence, silentHeartbeats*c.heartbeat))
	if (c.heartbeat > 0 || c.arriving) && due.Before(deadline) {
		deadline = due
	}
	if err := c.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	c.came += n
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w for %v", ErrSilent, time.Since(c.waiting).Round(time.Millisecond))
	}
	return n, err
}

// conn is one connection to the server.
type conn struct {
	server *server
	ws     *websocket.Conn
	live   *liveConn
	buf    bytes.Buffer // of the message that is read
	left   error        // under Client.mu: why the client ended it first; nil: it did not

	writeMu sync.Mutex // serialises messages
	ended   chan struct{}
	pings   sync.WaitGroup
}

// dial connects and shakes hands.
func (c *Client) dial(ctx context.Context, s *server, query string) (*conn, error) {
	live := &liveConn{silence: c.cfg.Silence, onWait: c.cfg.OnWait, taken: true}
	stop := func() bool { return true }
	defer func() { stop() }()
	d := websocket.Dialer{
		HandshakeTimeout: handshakeTimeout,
		ReadBufferSize:   readBufferBytes,
		TLSClientConfig:  c.cfg.TLS,
		NetDialContext: func(dialing context.Context, network, address string) (net.Conn, error) {
			raw, err := c.hooks.dial(dialing, network, address)
			if err != nil {
				return nil, err
			}
			live.Conn = raw
			// The handshake heeds the deadline of a context only. That of dialing ends with it.
			stop = context.AfterFunc(ctx, func() { raw.Close() })
			return live, nil
		},
	}
	if c.v2 {
		d.Subprotocols = []string{v2Subprotocol}
	}
	u := *s.subscribe
	u.RawQuery = query
	ws, resp, err := c.upgrade(ctx, &d, u.String())
	if err != nil {
		if resp != nil && errors.Is(err, websocket.ErrBadHandshake) {
			return nil, refusalOf(resp)
		}
		return nil, fmt.Errorf("connect: %w", err)
	}
	ws.SetReadLimit(maxMessageBytes)
	live.started = true
	k := &conn{server: s, ws: ws, live: live, ended: make(chan struct{})}
	k.pings.Go(func() { k.ping(c.cfg.Silence / pingsPerSilence) })
	return k, nil
}

// upgrade dials and shakes hands, through the environment's proxy, if it has one.
func (c *Client) upgrade(ctx context.Context, d *websocket.Dialer, address string) (ws *websocket.Conn, resp *http.Response, err error) {
	var proxy *url.URL
	d.Proxy = func(r *http.Request) (_ *url.URL, err error) {
		proxy, err = c.hooks.proxy(r)
		if proxy != nil && proxy.Scheme == "socks5h" { // gorilla's socks5 looks no name up either
			socks := *proxy
			socks.Scheme = "socks5"
			proxy = &socks
		}
		return proxy, err
	}
	defer func() {
		// If a proxy refuses without a reason phrase, gorilla panics, or returns an empty error.
		if proxy != nil && (recover() != nil || err != nil && err.Error() == "") {
			err = errors.New("it refuses, and gives no reason")
		}
		if err == nil || resp != nil {
			return
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause // and it closed the connection
		}
		if proxy != nil {
			err = fmt.Errorf("through the proxy %s: %w", proxy.Host, err)
		}
	}()
	return d.DialContext(ctx, address, c.header)
}

// refusalOf reads what a server answered instead of what was asked of it.
func refusalOf(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // as far as it goes
	resp.Body.Close()
	reason := strings.TrimSpace(string(body))
	if strings.Contains(resp.Header.Get("Content-Type"), "html") {
		reason = "" // a page of a proxy's, which says what the status says
	}
	var named struct{ Error, Message string }
	if json.Unmarshal(body, &named) == nil && named.Error != "" { // as XRPC has it
		reason = named.Error + ": " + named.Message
	}
	if to := resp.Header.Get("Location"); to != "" {
		reason = "it is at " + to[:min(len(to), 1<<10)]
	}
	return &RefusedError{
		Status: resp.StatusCode, Reason: reason,
		RetryAfter: parseRetryAfter(resp.Header.Get("Retry-After"), time.Now()),
	}
}

// ping makes the other side say something now and then, until the connection ends.
func (k *conn) ping(every time.Duration) {
	t := time.NewTicker(max(every, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-k.ended:
			return
		case <-t.C:
			// the reader notices
			_ = k.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout))
		}
	}
}

// close ends the connection at once, and what belongs to it.
func (k *conn) close() {
	close(k.ended)
	k.ws.Close()
	k.pings.Wait()
}

// writeLocked sends a text message. If that fails the connection is of no use.
func (k *conn) writeLocked(msg []byte) error {
	if err := k.ws.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return k.ws.WriteMessage(websocket.TextMessage, msg)
}

// read returns the next message, which is valid until the next call.
func (k *conn) read() (kind int, msg []byte, err error) {
	kind, r, err := k.ws.NextReader()
	if err == nil {
		k.live.arriving, k.live.came = true, minArriving // waiting begins anew
		k.buf.Reset()
		_, err = k.buf.ReadFrom(r)
		k.live.arriving = false
	}
	if err != nil {
		return 0, nil, endOf(err)
	}
	k.live.taken = true
	return kind, k.buf.Bytes(), nil
}

// endOf turns the error of a read into this package's error.
func endOf(err error) error {
	var closed *websocket.CloseError
	switch {
	case errors.As(err, &closed) && closed.Code != websocket.CloseAbnormalClosure:
		return &ClosedError{Code: closed.Code, Reason: closed.Text}
	case errors.Is(err, websocket.ErrReadLimit):
		return fmt.Errorf("%w: over %d bytes", ErrTooLarge, maxMessageBytes)
	case errors.As(err, &closed):
		return errors.New("the connection broke")
	}
	return fmt.Errorf("the connection broke: %w", err)
}
