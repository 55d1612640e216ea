package public

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/dict"
	"millrace/replay"
	"millrace/replay/graph"
	"millrace/replay/links"
)

// Config is what New needs. Log and Dictionaries must be set; zeros elsewhere stand for the
// defaults named.
type Config struct {
	Log          *replay.Log
	Dictionaries *dict.Registry
	UIDs         UIDs           // nil: interning is off; needed if the log has references
	Links        links.Queries  // nil: they are off; needs UIDs
	Graph        graph.Queries  // nil: it is off; needs UIDs
	Health       func() []Check // asked by /readyz; nil: always ready
	Process      func() Process // asked by /status; nil: nothing is known
	LeftOut      func() int64   // events that failed verification and so are not in Log; nil: none
	Version      string         // "dev"
	DayFile      string         // where Run keeps a day of samples; "": in memory only

	MaxConnections      int // subscribers in all; 20000
	MaxConnectionsPerIP int // subscribers of one address (IPv6: of one /64); 100
	// connections that are no subscribers: handshakes, idle HTTP; 512
	MaxHandshakes      int
	AttemptsPerSecond  float64        // handshakes of one address; 10
	AttemptBurst       int            // of them at once; twice MaxConnectionsPerIP
	TrustedProxies     []netip.Prefix // whose X-Forwarded-For is believed
	MaxEventsPerSecond float64        // to one subscriber; 0: no limit

	SlowTimeout time.Duration // a subscriber that takes nothing for that long is ended; 30 s

	// ClientBytes is what clients may make the server remember: filters, and the events of slow
	// clients, half each. One address may have an eighth, or 640 kB if that is more and not more
	// than a half. 32 MiB.
	ClientBytes int64
	// ChunkBytes bounds the chunks being written to subscribers that catch up, apart from single
	// larger events. 32 MiB.
	ChunkBytes int64

	Logger     *slog.Logger          // nil: discard
	Registerer prometheus.Registerer // nil: metrics are not registered
}

// withDefaults returns c with its zeros filled.
func (c Config) withDefaults() Config {
	c.Version = cmp.Or(c.Version, "dev")
	c.MaxConnections = cmp.Or(c.MaxConnections, 20_000)
	c.MaxConnectionsPerIP = cmp.Or(c.MaxConnectionsPerIP, 100)
	c.MaxHandshakes = cmp.Or(c.MaxHandshakes, maxHandshakes)
	c.AttemptsPerSecond = cmp.Or(c.AttemptsPerSecond, 10)
	c.AttemptBurst = cmp.Or(c.AttemptBurst, 2*min(c.MaxConnectionsPerIP, math.MaxInt/2))
	c.SlowTimeout = cmp.Or(c.SlowTimeout, 30*time.Second)
	c.ClientBytes = cmp.Or(c.ClientBytes, 32<<20)
	c.ChunkBytes = cmp.Or(c.ChunkBytes, 32<<20)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Health == nil {
		c.Health = func() []Check { return nil }
	}
	if c.Process == nil {
		c.Process = func() Process { return Process{} }
	}
	return c
}

// validate names the first field that cannot be used. New checks Log, for which tests have a
// stand-in.
func (c Config) validate() error {
	if c.Dictionaries == nil {
		return errors.New("public: field Dictionaries: must be set")
	}
	if _, ok := c.Dictionaries.Get(dict.JetstreamID); !ok {
		return fmt.Errorf("public: field Dictionaries: Jetstream's, %d, is missing", dict.JetstreamID)
	}
	if c.Links != nil && c.UIDs == nil {
		return errors.New("public: field Links: needs UIDs")
	}
	if c.Graph != nil && c.UIDs == nil {
		return errors.New("public: field Graph: needs UIDs")
	}
	for _, f := range []struct {
		name     string
		value    any
		negative bool
	}{
		{"MaxConnections", c.MaxConnections, c.MaxConnections < 0},
		{"MaxConnectionsPerIP", c.MaxConnectionsPerIP, c.MaxConnectionsPerIP < 0},
		{"MaxHandshakes", c.MaxHandshakes, c.MaxHandshakes < 0},
		{"AttemptsPerSecond", c.AttemptsPerSecond, c.AttemptsPerSecond < 0},
		{"AttemptBurst", c.AttemptBurst, c.AttemptBurst < 0},
		{"MaxEventsPerSecond", c.MaxEventsPerSecond, c.MaxEventsPerSecond < 0},
		{"SlowTimeout", c.SlowTimeout, c.SlowTimeout < 0},
		{"ClientBytes", c.ClientBytes, c.ClientBytes < 0},
		{"ChunkBytes", c.ChunkBytes, c.ChunkBytes < 0},
	} {
		if f.negative {
			return fmt.Errorf("public: field %s: %v is negative", f.name, f.value)
		}
	}
	for _, p := range c.TrustedProxies {
		if !p.IsValid() {
			return errors.New("public: field TrustedProxies: a prefix is invalid")
		}
	}
	return nil
}
