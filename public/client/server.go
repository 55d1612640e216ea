package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

const (
	// firstAttempt is how long a server may take to begin if there are others. Each failure doubles
	// it, up to handshakeTimeout.
	firstAttempt = time.Second
	// probesPerLag is how often in Config.Lag all servers are asked how far they are.
	probesPerLag = 4
	// probeTimeout is how long they may take to answer when one of them is chosen.
	probeTimeout = 500 * time.Millisecond
)

// server is one of those that a client may read. But for kind it is of the goroutine of Events.
type server struct {
	subscribe *url.URL
	backoff   backoff
	failures  int  // attempts since any server was of use
	builtIn   bool // the built-in dictionary is asked for
	// It has heartbeats; 0: it has none, as far as is known.
	heartbeat time.Duration

	kind serverKind // under Client.mu
}

// serverKind says what a server is, as far as is known.
type serverKind int

const (
	kindUnknown serverKind = iota
	kindMillrace
	kindJetstream // a plain one: its /cursors is no log's
)

// several says whether there is another server to go to.
func (c *Client) several() bool { return len(c.servers) > 1 }

// strict says whether a server is to refuse a cursor that is older than its log.
func (c *Client) strict() bool {
	return c.cfg.Strict || c.several() && !c.selector.lenient && !c.cfg.NoReconnect
}

// attempt returns the context of an attempt to connect to the server.
func (c *Client) attempt(ctx context.Context, s *server) (context.Context, context.CancelFunc) {
	if !c.several() {
		return ctx, func() {}
	}
	wait := min(handshakeTimeout, firstAttempt<<min(s.failures, 10))
	return context.WithTimeoutCause(ctx, wait, fmt.Errorf("no answer within %v", wait))
}

// next chooses the server for the next connection, and says how long to wait before.
func (c *Client) next(now time.Time) (i int, wait time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wait = c.selector.next(now)
	return c.selector.current, wait
}

// leave notes that the connection to server i ended so, at now, and whether it was of use.
func (c *Client) leave(i int, useful bool, err error, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if useful {
		c.servers[i].backoff.reset()
		for _, s := range c.servers {
			s.failures = 0
		}
		c.selector.lenient = false
	}
	wait := max(c.servers[i].backoff.wait(), retryAfter(err))
	if !errors.Is(err, ErrLag) { // leaveForLag notes it
		c.selector.servers[i].notBefore = now.Add(wait)
	}
	c.selector.servers[i].refused = isPermanent(err)
}

// refusedFor says whether nothing is left to try: there is one server, or all refuse, or long has
// reached the client's patience. If it is allowed, lenient requests are begun first.
func (c *Client) refusedFor(long time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.several():
	case !c.selector.allRefused() && long < c.patience:
		return false
	case c.strict() && !c.cfg.Strict:
		c.selector.beginLenient()
		return false
	}
	return true
}

// end closes the connection, and keeps why. The reader notices.
func (c *Client) end(k *conn, why error) {
	c.mu.Lock()
	k.left = cmp.Or(k.left, why)
	c.mu.Unlock()
	k.ws.Close()
}

// reason returns why the connection, whose read failed, has ended: what the server said, or why the
// client closed it, or the read's error.
func (c *Client) reason(k *conn, read error) error {
	if _, said := errors.AsType[*ClosedError](read); said {
		return read
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(k.left, read)
}

// report passes on why a connection ended, or could not be made.
func (c *Client) report(s *server, err error, wait time.Duration) {
	switch {
	case c.cfg.OnDisconnect == nil:
		c.cfg.Logger.Warn("not connected to the event stream", "url", s.subscribe.Redacted(), "err", err, "retry_in", wait)
	case c.several():
		c.cfg.OnDisconnect(fmt.Errorf("%s: %w", s.subscribe.Redacted(), err), wait)
	default:
		c.cfg.OnDisconnect(err, wait)
	}
}

// probe asks server i what its log holds, and notes the answer.
func (c *Client) probe(ctx context.Context, hc *http.Client, i int) error {
	asked := time.Now()
	r, err := c.rangeOf(ctx, hc, c.servers[i])
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	refused, _ := errors.AsType[*RefusedError](err)
	switch {
	case err == nil:
		c.servers[i].kind = kindMillrace
		newest, oldestUS := position{}, int64(0)
		if r.Newest != nil {
			newest, _ = parsePosition(r.Newest.Cursor)
		}
		if r.Oldest != nil {
			oldestUS = r.Oldest.TimeUS
		}
		c.selector.answered(i, newest, oldestUS, asked, now)
	case refused != nil && refused.permanent():
		c.servers[i].kind, c.selector.servers[i].dead = kindJetstream, false
		return nil
	default:
		c.selector.servers[i].dead = true
	}
	return err
}

// probeAll asks all servers how far they are.
func (c *Client) probeAll(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var probes sync.WaitGroup
	for i := range c.servers {
		probes.Go(func() { _ = c.probe(ctx, c.probes, i) }) // it notes what comes of it
	}
	probes.Wait()
}

// watch asks all servers again and again how far they are, and ends the connection to one that
// lags, until ctx is done.
func (c *Client) watch(ctx context.Context) {
	defer c.probes.CloseIdleConnections()
	every := max(c.cfg.Lag/probesPerLag, time.Millisecond)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		c.probeAll(ctx, max(every, firstAttempt))
		if ctx.Err() != nil {
			return
		}
		c.leaveLagging(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// leaveLagging draws conclusions from the answers: it ends the connection if its server lags.
func (c *Client) leaveLagging(now time.Time) {
	c.mu.Lock()
	c.progress.joinByTime(!c.v2 && slices.ContainsFunc(c.servers, func(s *server) bool { return s.kind != kindMillrace }))
	k := c.conn
	by, lags := c.selector.lagging(now)
	if lags = lags && k != nil && k.left == nil; lags {
		k.left = fmt.Errorf("%w: over %v behind %s", ErrLag, c.selector.lag, c.servers[by].subscribe.Redacted())
		c.selector.leaveForLag(now)
	}
	c.mu.Unlock()
	if lags {
		k.ws.Close() // the reader notices
	}
}
