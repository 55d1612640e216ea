package consume

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
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

	// Previous, if Cursor is 0 and an operator began a new epoch, is the end of the one before. The
	// first frame carries a Gap from there.
	Previous *EpochEnd

	// EpochPatience is how long all frames must lie below the last one before a new epoch begins.
	// 0 means 5 minutes.
	EpochPatience time.Duration

	// Handle gets the frames in order, all from one goroutine. While it blocks nothing is read. An
	// error of it ends Run. The context is Run's.
	Handle func(ctx context.Context, f Frame) error

	// Idle, if set, is called by Handle's goroutine when everything that came was handed over,
	// before it waits for more. It is called once more when the connection has ended. It may take a
	// moment and return true: then it is looked again whether something came, and if not, Idle is
	// called again. So frames that come one by one can be read several at a time. For connections
	// that are no syscall.Conn it is called at the end only.
	Idle func() (again bool)

	UserAgent string // "": "millrace"

	Logger *slog.Logger // nil: nothing is logged
	// nil: the metrics are not registered. One Client per Registerer.
	Registerer prometheus.Registerer

	hooks testHooks
}

// testHooks changes what only tests may change. The zero value changes nothing.
type testHooks struct {
	dial  func(ctx context.Context, network, addr string) (net.Conn, error) // below TLS
	proxy func(*http.Request) (*url.URL, error)
	tls   *tls.Config
}

// EpochEnd is the last frame of an epoch.
type EpochEnd struct {
	Epoch uint32
	Seq   int64
}

// withDefaults returns c with its zeros filled.
func (c Config) withDefaults() Config {
	c.EpochPatience = cmp.Or(c.EpochPatience, 5*time.Minute)
	c.UserAgent = cmp.Or(c.UserAgent, "millrace")
	if c.hooks.dial == nil {
		c.hooks.dial = (&net.Dialer{}).DialContext
	}
	if c.hooks.proxy == nil {
		c.hooks.proxy = http.ProxyFromEnvironment
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// validate names the first field that cannot be used. New checks URL, which it parses.
func (c Config) validate() error {
	switch {
	case c.Handle == nil:
		return errors.New("consume: field Handle: must be set")
	case c.Cursor < 0:
		return fmt.Errorf("consume: field Cursor: %d is negative", c.Cursor)
	case c.Start != nil && *c.Start < 0:
		return fmt.Errorf("consume: field Start: %d is negative", *c.Start)
	case c.Start != nil && *c.Start < c.Cursor:
		return fmt.Errorf("consume: field Start: %d is below Cursor %d, which needs a new epoch", *c.Start, c.Cursor)
	case c.Previous != nil && c.Cursor != 0:
		return errors.New("consume: field Previous: must not be set together with Cursor")
	case c.Previous != nil && c.Previous.Epoch >= c.Epoch:
		return fmt.Errorf("consume: field Previous: epoch %d is not below Epoch %d", c.Previous.Epoch, c.Epoch)
	case c.EpochPatience < 0:
		return fmt.Errorf("consume: field EpochPatience: %v is negative", c.EpochPatience)
	}
	return nil
}
