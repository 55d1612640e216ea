package identity

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
)

// Defaults and bounds of Config.
const (
	defaultEntries     = 2_000_000 // accounts in the cache on disk
	defaultBytes       = 8 << 20
	defaultConcurrency = 8 // fetches at once from the PLC directory, and from hosts of did:web
	minBytes           = 1 << 20
)

// Config is what Open needs. Dir must be set. Zero fields take their defaults.
type Config struct {
	Dir string // the cache's own directory, made if absent
	FS  vfs.FS // nil: the real file system

	// PLC is the URL of the PLC directory, which is trusted and may have any address. "": the
	// public one.
	PLC string
	// Export is a file of /export of a PLC directory, plain, gzip or zstd, that replaces it. It is
	// read once, into the cache's directory.
	Export string

	AllowPrivate bool  // hosts of did:web may have addresses that are not public
	Bytes        int64 // memory of the cache, that of Pebble included; 0: 8 MiB

	Now        func() time.Time      // nil: time.Now
	Logger     *slog.Logger          // nil: discard
	Registerer prometheus.Registerer // nil: no metrics

	hooks testHooks
}

// testHooks changes what only tests may change. The zero value changes nothing.
type testHooks struct {
	resolver *net.Resolver                         // nil: the system's
	dial     dialFunc                              // of the PLC directory; nil: a socket
	proxy    func(*http.Request) (*url.URL, error) // to it; nil: the environment's
	webPort  string                                // "": that of the URL
	roots    *x509.CertPool                        // nil: the system's
	finished func(did string)

	entries     int // accounts in the cache on disk; 0: defaultEntries
	concurrency int // workers of each kind; 0: defaultConcurrency
	queue       int // jobs that wait for each kind of worker; 0: maxQueue
}

func (c Config) withDefaults() Config {
	if c.Export == "" {
		c.PLC = strings.TrimRight(cmp.Or(c.PLC, identity.DefaultPLCURL), "/")
	}
	c.Bytes = cmp.Or(c.Bytes, defaultBytes)
	c.hooks.entries = cmp.Or(c.hooks.entries, defaultEntries)
	c.hooks.concurrency = cmp.Or(c.hooks.concurrency, defaultConcurrency)
	c.hooks.queue = cmp.Or(c.hooks.queue, maxQueue)
	c.FS = cmp.Or(c.FS, vfs.Default)
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.hooks.proxy == nil {
		c.hooks.proxy = http.ProxyFromEnvironment
	}
	if c.hooks.finished == nil {
		c.hooks.finished = func(string) {}
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Dir == "":
		return errors.New("identity: field Dir: must be set")
	case c.Export != "" && c.PLC != "":
		return errors.New("identity: field Export: PLC is set, too")
	case c.Bytes < minBytes:
		return fmt.Errorf("identity: field Bytes: %d is less than %d", c.Bytes, minBytes)
	case c.Export != "":
		return nil
	}
	u, err := url.Parse(c.PLC)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("identity: field PLC: it must be an http or https URL of a directory, without a query")
	}
	return nil
}
