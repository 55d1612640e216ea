package relaysim

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

const (
	subscribePath = "/xrpc/com.atproto.sync.subscribeRepos"

	writeBytes    = 256 << 10        // of data in one write
	writeTimeout  = 30 * time.Second // for one write
	maxInbound    = 1 << 20          // of a consumer's message; relays expect none
	pingInterval  = 30 * time.Second
	lingerTimeout = 2 * time.Second // for a consumer to take the end of what was written
	waitingPongs  = 16              // pings beyond that many unanswered ones are ignored
)

// Relay is a simulated relay. It serves what the producer makes.
type Relay struct {
	cfg      Config
	producer *producer
	faults   faults
	plc      PLC

	consumers sync.WaitGroup // one for each of conns

	mu    sync.Mutex
	conns map[*conn]struct{}
	ended bool // no consumer may begin
}

// conn is one consumer's connection.
type conn struct {
	ws      *websocket.Conn
	raw     net.Conn
	reading sync.WaitGroup
	pongs   chan []byte
	shaper  shaper
	stop    context.CancelCauseFunc
}

// handler returns the relay's routes.
func (r *Relay) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+subscribePath, r.subscribe)
	mux.Handle("GET /{did}", &r.plc)
	r.routeAdmin(mux)
	return mux
}

// PLC returns the PLC directory that the relay serves beside the stream.
func (r *Relay) PLC() *PLC { return &r.plc }

// subscribe serves one consumer for as long as it stays.
func (r *Relay) subscribe(w http.ResponseWriter, req *http.Request) {
	cursor, live := int64(0), true
	if s := req.URL.Query().Get("cursor"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			http.Error(w, "cursor is not a sequence number", http.StatusBadRequest)
			return
		}
		cursor, live = n, false
	}
	up := websocket.Upgrader{
		ReadBufferSize:  4 << 10,
		WriteBufferSize: 4 << 10,
		CheckOrigin:     func(*http.Request) bool { return true },
	}
	ws, err := up.Upgrade(w, req, nil)
	if err != nil {
		return // Upgrade has answered
	}
	ctx, stop := context.WithCancelCause(req.Context())
	c := &conn{
		ws:     ws,
		raw:    ws.NetConn(),
		pongs:  make(chan []byte, waitingPongs),
		shaper: shaper{faults: &r.faults, cut: -1},
		stop:   stop,
	}
	if !r.add(c) {
		c.raw.Close()
		return
	}
	defer r.remove(c)
	c.reading.Go(c.read)
	err = r.feed(ctx, c, cursor, live)
	r.cfg.Logger.Debug("consumer left", "remote", req.RemoteAddr, "cause", err)
	c.hangUp(err)
}

// hangUp closes the connection, which ends the reading of it. What was written still arrives if the
// stream ended by itself.
func (c *conn) hangUp(why error) {
	if tcp, ok := c.raw.(*net.TCPConn); ok && (errors.Is(why, errRenumbering) || errors.Is(why, errTooSlow) || errors.Is(why, errFuture)) {
		_ = tcp.CloseWrite()
		_ = tcp.SetReadDeadline(time.Now().Add(lingerTimeout))
		c.reading.Wait()
	}
	c.raw.Close()
	c.reading.Wait()
}

// add returns false if Serve has ended, which waits for all that were added before.
func (r *Relay) add(c *conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	r.conns[c] = struct{}{}
	r.consumers.Add(1)
	return true
}

func (r *Relay) remove(c *conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
	r.consumers.Done()
}

// end ends all connections for good and waits until nothing runs for them.
func (r *Relay) end() {
	r.mu.Lock()
	r.ended = true
	r.mu.Unlock()
	r.disconnect(errors.New("relaysim is stopping"), 0)
	r.consumers.Wait()
}

// disconnect ends all connections, after so many more bytes of data, and returns their number.
func (r *Relay) disconnect(why error, after int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		if after > 0 {
			c.shaper.breakAfter(after)
			continue
		}
		c.stop(why)
		c.raw.Close()
	}
	return len(r.conns)
}

// read answers the consumer's pings until the connection ends.
func (c *conn) read() {
	c.ws.SetReadLimit(maxInbound)
	c.ws.SetPingHandler(func(data string) error {
		select {
		case c.pongs <- append([]byte{0x8a, byte(len(data))}, data...):
		default:
		}
		return nil
	})
	c.ws.SetCloseHandler(func(int, string) error { return nil })
	for {
		if _, _, err := c.ws.NextReader(); err != nil {
			c.stop(err)
			return
		}
	}
}

// feed writes the consumer's frames to it. It is the connection's only writer.
func (r *Relay) feed(ctx context.Context, c *conn, cursor int64, live bool) error {
	win := r.producer.current.Load().win
	consumer, outdated, future := win.join(cursor, live)
	defer consumer.leave()
	if future && r.cfg.FutureError {
		return c.end(errFuture, errorMessage("FutureCursor", "the cursor is beyond the newest event"))
	}
	if outdated && r.cfg.OutdatedInfo {
		info := message("#info", map[string]any{"name": "OutdatedCursor", "message": "the oldest events asked for are gone"})
		if err := c.write(wireFrame(info)); err != nil {
			return err
		}
	}
	ping := time.NewTicker(pingInterval)
	defer ping.Stop()
	ready := make(chan struct{})
	close(ready)
	for {
		wire, frames, more, err := consumer.take(writeBytes)
		switch {
		case errors.Is(err, errTooSlow):
			return c.end(err, errorMessage("ConsumerTooSlow", "the consumer did not keep up"))
		case err != nil:
			return err
		case frames > 0:
			if err := c.shaper.pass(ctx, wire, c.write); err != nil {
				return err
			}
			more = ready
		}
		if err := c.control(ctx, more, ping.C); err != nil {
			return err
		}
	}
}

// control writes control frames until more is closed.
func (c *conn) control(ctx context.Context, more <-chan struct{}, ping <-chan time.Time) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case pong := <-c.pongs:
			if err := c.write(pong); err != nil {
				return err
			}
		case <-ping:
			if err := c.write([]byte{0x89, 0}); err != nil {
				return err
			}
		case <-more:
			return nil
		}
	}
}

// write writes websocket frames, whole or in parts.
func (c *conn) write(wire []byte) error {
	if err := c.raw.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err := c.raw.Write(wire)
	return err
}

// end writes a last message and a close frame, and returns why.
func (c *conn) end(why error, last []byte) error {
	const policyViolation = "\x88\x02\x03\xf0"
	if err := c.write(append(wireFrame(last), policyViolation...)); err != nil {
		return err
	}
	return why
}

// wireFrame makes the websocket frame of a message.
func wireFrame(payload []byte) []byte {
	return append(appendWireHeader(nil, false, len(payload)), payload...)
}
