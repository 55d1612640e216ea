package consume

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"sync"
	"sync/atomic"
	"time"
)

// Client reads one relay's firehose.
type Client struct {
	cfg  Config
	log  *slog.Logger
	url  *url.URL
	m    *metrics
	num  numbering // Run's goroutine only
	buf  buffer    // Run's goroutine only
	logs logLimits // Run's goroutine only
	ran  atomic.Bool

	// Written by Run's goroutine, read by Status and the metrics.
	epoch     atomic.Uint32
	lastSeq   atomic.Int64
	lastFrame atomic.Int64 // Unix nanoseconds, 0: none
	blocked   atomic.Int64 // nanoseconds in Handle
	suspect   atomic.Bool

	mu        sync.Mutex
	connected bool
	since     time.Time
	lastErr   string
	advice    string
}

// New returns a Client for cfg. It does not connect.
func New(cfg Config) (*Client, error) {
	u, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Client{
		cfg: cfg,
		log: cfg.Logger,
		url: u,
		num: numbering{
			patience: cfg.EpochPatience, epoch: cfg.Epoch, last: cfg.Cursor, have: cfg.Cursor > 0,
			start: cfg.Start, previous: cfg.Previous,
		},
		logs:  newLogLimits(),
		since: time.Now(),
	}
	c.epoch.Store(cfg.Epoch)
	c.lastSeq.Store(cfg.Cursor)
	if c.m, err = newMetrics(c, cfg.Registerer); err != nil {
		return nil, err
	}
	return c, nil
}

// Run connects, reads and hands over frames until ctx is done, for which it returns nil, or Handle
// returns an error, which it returns. It reconnects after everything else. When it returns its
// connection is closed and its goroutines have ended. It may be called once.
func (c *Client) Run(ctx context.Context) error {
	if !c.ran.CompareAndSwap(false, true) {
		return errors.New("consume: Run was called before")
	}
	again := reconnects{patience: c.cfg.EpochPatience}
	stopped := func() bool { return ctx.Err() != nil }
	for {
		e := c.session(ctx)
		switch {
		case e.cause == causeHandleError:
			if stopped() && (errors.Is(e.err, ctx.Err()) || errors.Is(e.err, context.Cause(ctx))) {
				return nil
			}
			return e.err
		case stopped():
			return nil
		}
		c.m.reconnects.WithLabelValues(string(e.cause)).Inc()
		wait := again.wait(time.Now(), e)
		c.logEnd(e, wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
	}
}

// Status is what a Client is doing.
type Status struct {
	Host      string    // the relay, as Host names it
	Connected bool      // there is a connection
	Since     time.Time // when Connected last changed
	LastError string    // why the last connection ended or was not made, "" while connected
	Advice    string    // what to do about LastError, as in the log; may be empty
	LastFrame time.Time // when the last frame with a seq came, repeats included; zero: none did
	Epoch     uint32
	Seq       int64 // the last one handed over, 0: none
	Suspect   bool  // the relay may have restarted its numbering; frames are held back
}

// Status returns what the Client is doing. It is safe for concurrent use.
func (c *Client) Status() Status {
	c.mu.Lock()
	s := Status{Host: c.url.Host, Connected: c.connected, Since: c.since, LastError: c.lastErr, Advice: c.advice}
	c.mu.Unlock()
	s.Epoch, s.Seq, s.Suspect = c.epoch.Load(), c.lastSeq.Load(), c.suspect.Load()
	if ns := c.lastFrame.Load(); ns != 0 {
		s.LastFrame = time.Unix(0, ns)
	}
	return s
}

// setConnected notes that there is a connection, or why there is none, and what to do about it.
func (c *Client) setConnected(connected bool, why, advice string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connected != connected {
		c.since = time.Now()
	}
	c.connected, c.lastErr, c.advice = connected, why, advice
}
