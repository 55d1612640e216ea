package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/identity"
	"github.com/bluesky-social/indigo/atproto/syntax"
)

// Bounds of one fetch.
const (
	fetchTimeout     = 10 * time.Second // all of it: name, redirects, body
	handshakeTimeout = 5 * time.Second
	maxHeaderBytes   = 16 << 10
	maxDocumentBytes = 64 << 10 // decompressed
	maxRedirects     = 3
	// maxKeyless is how many answers of the PLC directory in a row may be without a key. An address
	// that is no directory's denies every account.
	maxKeyless = 16
)

const userAgent = "millrace"

var (
	errNoSigningKey = errors.New("the account has no signing key of a known type")
	errTooLong      = errors.New("the answer is too long")
	errRedirect     = errors.New("redirect refused")
)

// isAbsent says whether an error of resolve means that the account has no key that can be had. Any
// other may be another the next time.
func isAbsent(err error) bool {
	return errors.Is(err, errNoSigningKey) || errors.Is(err, identity.ErrDIDNotFound) || errors.Is(err, errNotPublic)
}

// dialFunc is net.Dialer.DialContext.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// resolver fetches keys. Safe for concurrent use.
type resolver struct {
	plc, web identity.BaseDirectory
	export   *store       // nil: plc is asked
	keyless  atomic.Int64 // answers of plc since the last with a key
}

func newResolver(cfg *Config, s *store, e *export) *resolver {
	r := &resolver{
		plc: identity.BaseDirectory{PLCURL: cfg.PLC, UserAgent: userAgent, HTTPClient: plcClient(cfg)},
		web: identity.BaseDirectory{UserAgent: userAgent, HTTPClient: webClient(cfg)},
	}
	if e != nil {
		r.export = s
	}
	return r
}

// close closes the connections that are kept.
func (r *resolver) close() {
	r.plc.HTTPClient.CloseIdleConnections()
	r.web.HTTPClient.CloseIdleConnections()
}

// resolve returns the signing key of an account. Errors: what isAbsent knows, a *serverError, and
// those of answers that make no sense.
func (r *resolver) resolve(ctx context.Context, did string) (atcrypto.PublicKey, error) {
	parsed, err := syntax.ParseDID(did)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoSigningKey, err)
	}
	directory := &r.web
	if parsed.Method() == "plc" {
		if r.export != nil {
			return r.export.exported(did)
		}
		directory = &r.plc
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	key, err := keyFrom(ctx, directory, parsed)
	if directory == &r.plc {
		err = r.doubt(err)
	}
	return key, err
}

func keyFrom(ctx context.Context, d *identity.BaseDirectory, did syntax.DID) (atcrypto.PublicKey, error) {
	doc, err := d.ResolveDID(ctx, did)
	if err != nil {
		return nil, err
	}
	id := identity.ParseIdentity(doc)
	key, err := id.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoSigningKey, err)
	}
	return key, nil
}

// doubt returns the error of a fetch from the PLC directory. If many in a row gave no key, it is
// the server's and not the account's.
func (r *resolver) doubt(err error) error {
	if err == nil {
		r.keyless.Store(0)
		return nil
	}
	if errors.As(err, new(*serverError)) || r.keyless.Add(1) <= maxKeyless {
		return err
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without the DID
	}
	return &serverError{err: fmt.Errorf("more than %d answers in a row have no key; the last: %s", maxKeyless, err.Error())}
}

// plcClient returns the client for the PLC directory. It follows no redirect to another host. It
// speaks HTTP/1.1, where a request that times out ends its connection, which may be dead.
func plcClient(cfg *Config) http.Client {
	dial := cfg.hooks.dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: handshakeTimeout}).DialContext
	}
	t := transport(cfg, dial)
	t.Proxy = cfg.hooks.proxy
	t.OnProxyConnectResponse = func(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		return fmt.Errorf("through the proxy %s: %s", proxy.Host, strings.TrimSpace(resp.Status))
	}
	t.MaxIdleConnsPerHost, t.MaxConnsPerHost = cfg.hooks.concurrency, cfg.hooks.concurrency
	return http.Client{Transport: &limiter{t}, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects || req.URL.Hostname() != via[0].URL.Hostname() {
			return errRedirect
		}
		return nil
	}}
}

// webClient returns the client for hosts of did:web. Anybody can name any host, so it keeps no
// connection, takes no proxy and connects to public addresses only.
func webClient(cfg *Config) http.Client {
	dialer := &net.Dialer{Timeout: handshakeTimeout, Resolver: cfg.hooks.resolver}
	if !cfg.AllowPrivate {
		dialer.Control = refusePrivate
	}
	t := transport(cfg, func(ctx context.Context, network, address string) (net.Conn, error) {
		if cfg.hooks.webPort != "" {
			host, _, _ := net.SplitHostPort(address)
			address = net.JoinHostPort(host, cfg.hooks.webPort)
		}
		return dialer.DialContext(ctx, network, address)
	})
	t.DisableKeepAlives = true
	return http.Client{Transport: &limiter{t}, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects || req.URL.Scheme != "https" {
			return errRedirect
		}
		return nil
	}}
}

func transport(cfg *Config, dial dialFunc) *http.Transport {
	return &http.Transport{
		DialContext:            dial,
		TLSHandshakeTimeout:    handshakeTimeout,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: maxHeaderBytes,
		TLSClientConfig:        &tls.Config{RootCAs: cfg.hooks.roots},
	}
}

// limiter bounds the bodies of answers, and tells failures of a server from those of an account.
type limiter struct{ next *http.Transport }

// CloseIdleConnections is what http.Client's calls.
func (l *limiter) CloseIdleConnections() { l.next.CloseIdleConnections() }

// RoundTrip implements http.RoundTripper.
func (l *limiter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	if err != nil {
		return nil, &serverError{err: err}
	}
	switch s := resp.StatusCode; {
	case s == http.StatusGone: // a tombstone
		resp.StatusCode = http.StatusNotFound
	case s == http.StatusTooManyRequests || s >= http.StatusInternalServerError:
		resp.Body.Close()
		return nil, &serverError{err: fmt.Errorf("status %d", s), retryAfter: retryAfterOf(resp.Header)}
	}
	resp.Body = timedBody{http.MaxBytesReader(nil, resp.Body, maxDocumentBytes)}
	return resp, nil
}

// retryAfterOf returns how long a server asks to wait, by seconds or a date; at most 0 if it does
// not.
func retryAfterOf(h http.Header) time.Duration {
	asked := strings.TrimSpace(h.Get("Retry-After"))
	if at, err := http.ParseTime(asked); err == nil {
		return time.Until(at)
	}
	seconds, err := strconv.ParseUint(asked, 10, 32)
	if err != nil {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

// timedBody is a body with a bound, of which a time-out is the server's failure.
type timedBody struct{ io.ReadCloser }

// Read implements io.Reader.
func (b timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	var timeout net.Error
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		err = errTooLong
	case errors.As(err, &timeout) && timeout.Timeout():
		err = &serverError{err: err}
	}
	return n, err
}
