package consume

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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	readBufferBytes  = 64 << 10
	handshakeTimeout = 20 * time.Second // for TCP, TLS and upgrade together
	pingInterval     = 15 * time.Second
	silenceTimeout   = 3 * pingInterval       // how long a relay may answer no ping
	messageTimeout   = 5 * time.Minute        // for one message to come, or to be skipped
	writeTimeout     = 10 * time.Second       // of a ping or pong
	closeTimeout     = time.Second            // of the close frame
	lingerTimeout    = 250 * time.Millisecond // for the relay's answer to it
	maxAskedWait     = 5 * time.Minute        // by Retry-After
)

// errTooLong ends a connection on which a message did not come within messageTimeout.
var errTooLong = errors.New("one message took too long to come")

// refusedError is an HTTP answer other than the upgrade.
type refusedError struct {
	code   int
	status string
	name   string        // the XRPC error's name, or where else the relay sends us; "": neither
	text   string        // the XRPC error's message, or all of an answer in plain text
	wait   time.Duration // that the relay asks for
}

func (e *refusedError) Error() string {
	said := "the relay answered " + e.status
	if e.name != "" {
		said += ", " + e.name
	}
	if e.text != "" {
		said += ": " + e.text
	}
	return said
}

// proxyError is why there is no connection through a proxy.
type proxyError struct {
	proxy string // its host and port
	err   error
}

func (e *proxyError) Error() string { return fmt.Sprintf("through the proxy %s: %v", e.proxy, e.err) }

func (e *proxyError) Unwrap() error { return e.err }

// dialError is why there is no connection. A relay's own words may be in it.
type dialError struct{ err error }

func (e *dialError) Error() string { return "dial the relay: " + clip(e.err.Error(), maxErrorBytes) }

func (e *dialError) Unwrap() error { return e.err }

// conn is one websocket connection to the relay: read by the goroutine that dialled it, written by
// its keeper.
type conn struct {
	ws      *websocket.Conn
	wire    *wire
	recheck *time.Timer // when it fires, the keeper cuts the connection
	failed  *time.Timer // cuts it too, when nothing follows an error frame
	pongs   chan string // the newest ping to be answered

	stopKeeper chan struct{}
	keeper     sync.WaitGroup
}

// open dials address and starts the keeper. ctx bounds the connection's life, not only the
// handshake.
func open(ctx context.Context, cfg *Config, address string) (*conn, error) {
	hctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	var w *wire
	stop := func() bool { return true }
	ws, resp, err := upgrade(hctx, address, cfg, &websocket.Dialer{ //nolint:bodyclose // needs none
		NetDialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := cfg.hooks.dial(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			// During the upgrade nothing else closes the connection when the context ends.
			w, stop = &wire{Conn: nc}, context.AfterFunc(hctx, func() { nc.Close() })
			return w, nil
		},
		TLSClientConfig: cfg.hooks.tls,
		ReadBufferSize:  readBufferBytes,
		WriteBufferSize: 1 << 10,
	})
	if !stop() && err == nil {
		ws.Close()
		err = context.Cause(hctx)
	}
	if err != nil {
		if resp != nil && errors.Is(err, websocket.ErrBadHandshake) {
			return nil, refusal(resp) // even if the body did not come in time
		}
		return nil, &dialError{err}
	}
	c := &conn{
		ws: ws, wire: w, recheck: time.NewTimer(time.Hour), failed: time.NewTimer(time.Hour),
		pongs: make(chan string, 1), stopKeeper: make(chan struct{}),
	}
	c.recheck.Stop()
	c.failed.Stop()
	w.timeout = silenceTimeout
	w.setIdle(cfg.Idle)
	ws.SetPingHandler(c.answer)
	ws.SetPongHandler(func(string) error { return nil })       // that it was read is enough
	ws.SetCloseHandler(func(int, string) error { return nil }) // close answers it
	c.keeper.Go(func() { c.keep(ctx) })
	return c, nil
}

// upgrade dials and shakes hands, through the environment's proxy, if it has one.
func upgrade(ctx context.Context, address string, cfg *Config, d *websocket.Dialer) (ws *websocket.Conn, resp *http.Response, err error) {
	var proxy *url.URL
	d.Proxy = func(r *http.Request) (_ *url.URL, err error) {
		proxy, err = cfg.hooks.proxy(r)
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
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if proxy != nil {
			err = &proxyError{proxy.Host, err}
		}
	}()
	return d.DialContext(ctx, address, http.Header{"User-Agent": {cfg.UserAgent}})
}

// refusal reads what an HTTP answer has to say. gorilla has read 1024 bytes of the body at most.
func refusal(resp *http.Response) error {
	e := &refusedError{code: resp.StatusCode, status: clip(resp.Status, maxTextBytes)}
	asked := resp.Header.Get("Retry-After") // seconds or a date, RFC 9110 section 10.2.3
	if seconds, err := strconv.ParseUint(asked, 10, 32); err == nil {
		e.wait = min(time.Duration(seconds)*time.Second, maxAskedWait)
	} else if at, err := http.ParseTime(asked); err == nil {
		e.wait = min(max(time.Until(at), 0), maxAskedWait)
	}
	if e.code/100 == 3 {
		e.name = clip(resp.Header.Get("Location"), maxTextBytes)
		return e
	}
	var body struct{ Error, Message string }
	raw, _ := io.ReadAll(resp.Body) // what came
	_ = json.Unmarshal(raw, &body)  // it may have another form
	if body.Error == "" && body.Message == "" && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		body.Message = string(bytes.TrimSpace(raw))
	}
	e.name, e.text = clip(body.Error, maxNameBytes), clip(body.Message, maxTextBytes)
	return e
}

// answer hands a ping's data to the keeper. It never blocks: of several pings the newest is
// answered, as RFC 6455 section 5.5.3 allows.
func (c *conn) answer(data string) error {
	for {
		select {
		case c.pongs <- data:
			return nil
		default:
		}
		select {
		case <-c.pongs:
		default:
		}
	}
}

// keep writes pings and pongs until it is stopped. It cuts the connection if it cannot, if ctx is
// done or if one of the timers fires. It pings only while a read waits: otherwise there is traffic,
// or no read that could get the pong.
func (c *conn) keep(ctx context.Context) {
	tick := time.NewTicker(pingInterval)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-c.stopKeeper:
			return
		case <-ctx.Done():
			c.wire.cut(causeStopped)
			return
		case <-c.recheck.C:
			c.wire.cut(causeRecheck)
			return
		case <-c.failed.C:
			c.wire.cut(causeErrorFrame)
			return
		case <-tick.C:
			if !c.wire.waiting.Load() {
				continue
			}
			err = c.ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout))
		case data := <-c.pongs:
			err = c.ws.WriteControl(websocket.PongMessage, []byte(data), time.Now().Add(writeTimeout))
		}
		if err != nil {
			c.wire.cut(causePing)
			return
		}
	}
}

// close ends the connection and returns when the keeper has ended. If sendClose, the relay gets a
// close frame and a moment to read it. Closing a socket with unread data would take the
// close frame back.
func (c *conn) close(sendClose bool) {
	close(c.stopKeeper)
	c.keeper.Wait()
	c.recheck.Stop()
	c.failed.Stop()
	defer c.ws.Close()
	if !sendClose {
		return
	}
	bye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	if c.ws.WriteControl(websocket.CloseMessage, bye, time.Now().Add(closeTimeout)) != nil {
		return
	}
	if c.wire.SetReadDeadline(time.Now().Add(lingerTimeout)) == nil {
		_, _ = io.CopyBuffer(io.Discard, struct{ io.Reader }{c.wire.Conn}, make([]byte, 16<<10))
	}
}

// whyEnded names the cause of an error from reading.
func (c *conn) whyEnded(err error) (cause, error) {
	if why := c.wire.cutBy.Load(); why != nil {
		return *why, nil
	}
	var ce *websocket.CloseError
	var ne net.Error
	switch {
	case errors.Is(err, errTooLong):
		return causeTooLong, err
	case errors.As(err, &ce) && ce.Code != websocket.CloseAbnormalClosure:
		return causeClosed, errors.New(strings.TrimSpace(fmt.Sprintf("the relay closed the connection: %d %s", ce.Code, clip(ce.Text, maxTextBytes))))
	case errors.As(err, &ne) && ne.Timeout():
		return causeSilent, errors.New("the relay sent nothing, not even a pong")
	case errors.Is(err, websocket.ErrReadLimit), strings.HasPrefix(err.Error(), "websocket: ") && ce == nil:
		return causeProtocol, err
	}
	return causeLost, err
}
