package consume

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config says what a Client reads, and from where on. URL and Handle must be set.
type Config struct {
	// URL is the relay: a host with or without port, or a ws, wss, http or https URL. Without a
	// scheme it is wss, for loopback hosts ws. The XRPC path is added where it is missing. HTTP
	// proxies are taken from the environment.
	URL string

	// Epoch and Cursor are the position committed: the numbering's epoch and the last seq handled
	// in it. Reading resumes after Cursor. Cursor 0 means that nothing of this epoch was
	// committed; without Start reading then begins live.
	Epoch  uint32
	Cursor int64

	// Start, if not nil, is where the first connection begins, after *Start, instead of after
	// Cursor; 0 means at the oldest frame the relay has. It must not lie below Cursor: for that
	// the caller begins a new epoch.
	Start *int64

	// Previous, if Cursor is 0 and an operator began a new epoch, is the end of the one before: the
	// first frame carries a Gap from there.
	Previous *Mark

	// EpochPatience is how long all frames must lie below the last one before a new epoch begins.
	// 0 means 5 minutes.
	EpochPatience time.Duration

	// Handle gets the frames in order, all from one goroutine. While it blocks nothing is read. An
	// error of it ends Run. The context is Run's.
	Handle func(ctx context.Context, f Frame) error

	// Idle, if set, is called by Handle's goroutine when everything that came was handed over,
	// before it waits for more, and once more when the connection has ended. It may take a moment
	// and return true: then it is looked again whether something came, and if not, Idle is called
	// again. So frames that come one by one can be read several at a time. It is not called on
	// connections whose sockets cannot be looked into (see Dial).
	Idle func() (again bool)

	PingInterval     time.Duration // 0: 15 s
	SilenceTimeout   time.Duration // how long a relay may answer no ping; above PingInterval; 0: three of it
	HandshakeTimeout time.Duration // for TCP, TLS and upgrade together; 0: 20 s
	UserAgent        string        // "": "millrace"
	TLS              *tls.Config   // nil: the default

	// Dial makes the connections below TLS. nil: a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	Logger     *slog.Logger          // nil: nothing is logged
	Registerer prometheus.Registerer // nil: the metrics are not registered. One Client per Registerer.
}

// Mark is a place in a relay's numbering.
type Mark struct {
	Epoch uint32
	Seq   int64
}

// validate names the field that is wrong, and fills in defaults.
func (c *Config) validate() error {
	switch {
	case c.Handle == nil:
		return errors.New("config: Handle is nil")
	case c.Cursor < 0:
		return fmt.Errorf("config: Cursor %d is negative", c.Cursor)
	case c.Start != nil && *c.Start < 0:
		return fmt.Errorf("config: Start %d is negative", *c.Start)
	case c.Start != nil && *c.Start < c.Cursor:
		return fmt.Errorf("config: Start %d lies below the position %d, which needs a new epoch", *c.Start, c.Cursor)
	case c.Previous != nil && c.Cursor != 0:
		return errors.New("config: Previous is set, but so is Cursor")
	case c.Previous != nil && c.Previous.Epoch >= c.Epoch:
		return fmt.Errorf("config: Previous has epoch %d, not below Epoch %d", c.Previous.Epoch, c.Epoch)
	}
	durations := []struct {
		name    string
		d       *time.Duration
		initial time.Duration
	}{
		{"EpochPatience", &c.EpochPatience, 5 * time.Minute},
		{"PingInterval", &c.PingInterval, 15 * time.Second},
		{"SilenceTimeout", &c.SilenceTimeout, 0},
		{"HandshakeTimeout", &c.HandshakeTimeout, 20 * time.Second},
	}
	for _, f := range durations {
		if *f.d < 0 {
			return fmt.Errorf("config: %s %v is negative", f.name, *f.d)
		}
		if *f.d == 0 {
			*f.d = f.initial
		}
	}
	if c.SilenceTimeout == 0 {
		c.SilenceTimeout = 3 * c.PingInterval
	}
	if c.SilenceTimeout <= c.PingInterval {
		return fmt.Errorf("config: SilenceTimeout %v is not above PingInterval %v", c.SilenceTimeout, c.PingInterval)
	}
	if c.UserAgent == "" {
		c.UserAgent = "millrace"
	}
	if c.Dial == nil {
		c.Dial = (&net.Dialer{}).DialContext
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Client reads one relay's firehose.
type Client struct {
	cfg    Config
	log    *slog.Logger
	url    *url.URL
	dialer dialer
	m      *metrics
	num    numbering // Run's goroutine only
	buf    buffer    // Run's goroutine only
	logs   logLimits // Run's goroutine only
	ran    atomic.Bool

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
}

// New returns a Client for cfg. It does not connect.
func New(cfg Config) (*Client, error) {
	u, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Client{
		cfg: cfg,
		log: cfg.Logger,
		url: u,
		dialer: dialer{
			dial: cfg.Dial, tls: cfg.TLS, userAgent: cfg.UserAgent, handshakeTimeout: cfg.HandshakeTimeout,
			pingInterval: cfg.PingInterval, silenceTimeout: cfg.SilenceTimeout, idle: cfg.Idle,
		},
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
		if sleep(ctx, wait); stopped() {
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
	LastFrame time.Time // when the last frame with a seq came, repeats included; zero: none did
	Epoch     uint32
	Seq       int64 // the last one handed over, 0: none
	Suspect   bool  // the relay may have restarted its numbering; frames are held back
}

// Status returns what the Client is doing. It is safe for concurrent use.
func (c *Client) Status() Status {
	c.mu.Lock()
	s := Status{Host: c.url.Host, Connected: c.connected, Since: c.since, LastError: c.lastErr}
	c.mu.Unlock()
	s.Epoch, s.Seq, s.Suspect = c.epoch.Load(), c.lastSeq.Load(), c.suspect.Load()
	if ns := c.lastFrame.Load(); ns != 0 {
		s.LastFrame = time.Unix(0, ns)
	}
	return s
}

func (c *Client) setConnected(connected bool, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connected != connected {
		c.since = time.Now()
	}
	c.connected, c.lastErr = connected, why
}

func (c *Client) gaugeConnected() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.connected {
		return 1
	}
	return 0
}
