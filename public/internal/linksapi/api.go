package linksapi

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/replay/links"
)

const (
	// requestsAtOnce is how many requests read links at the same time.
	requestsAtOnce = 8
	// requestTimeout is how long one may take, waiting for its turn included.
	requestTimeout = 10 * time.Second
)

// Config is what New needs. Links, UIDs and Log must be set.
type Config struct {
	Links      links.Queries
	UIDs       UIDs
	Log        Log
	Logger     *slog.Logger          // nil: discard
	Registerer prometheus.Registerer // nil: metrics are not registered
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	if c.Links == nil || c.UIDs == nil || c.Log == nil {
		return errors.New("linksapi: fields Links, UIDs, Log: must be set")
	}
	return nil
}

// API answers requests. It is safe for concurrent use.
type API struct {
	cfg     Config
	metrics metrics
	slots   chan struct{} // a token for each request that reads links
}

// New makes an API. It starts nothing.
func New(cfg Config) (*API, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &API{cfg: cfg, metrics: newMetrics(cfg.Registerer), slots: make(chan struct{}, requestsAtOnce)}, nil
}

// endpoint is one path. Its parse reads the request's own parameters; its answer returns what is to
// be JSON.
type endpoint struct {
	path   string
	parse  func(*params) query
	answer func(*request) (any, error)
}

// endpoints returns Constellation's API: the present one, then the old one.
func endpoints() []endpoint {
	const xrpc = "/xrpc/blue.microcosm.links."
	return []endpoint{
		{xrpc + "getBacklinks", parseBacklinks, answerRecords},
		{xrpc + "getBacklinksCount", parseSource, answerCount},
		{xrpc + "getBacklinkDids", parseDIDs, answerDIDs},
		{xrpc + "getManyToManyCounts", parseOtherCounts, answerOtherCounts},
		{xrpc + "getManyToMany", parseItems, answerItems},
		{"/links", parseOldRecords, answerOldRecords},
		{"/links/count", parseOldSource, answerCount},
		{"/links/count/distinct-dids", parseOldSource, answerDIDCount},
		{"/links/distinct-dids", parseOldDIDs, answerDIDs},
		{"/links/all", parseTarget, answerAll},
		{"/links/all/count", parseTarget, answerAllCounts},
	}
}

// Route adds the endpoints to mux.
func (a *API) Route(mux *http.ServeMux) {
	for _, e := range endpoints() {
		mux.HandleFunc("GET "+e.path, func(w http.ResponseWriter, r *http.Request) { a.handle(w, r, &e) })
	}
}

func (a *API) handle(w http.ResponseWriter, r *http.Request, e *endpoint) {
	begun := time.Now()
	status := http.StatusOK
	answer, err := a.serve(w.Header(), r, e)
	if err != nil {
		failure := a.failure(err)
		if failure.status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "5")
		}
		a.metrics.errors.WithLabelValues(failure.Name).Inc()
		status, answer = failure.status, failure
	}
	body, err := json.Marshal(answer)
	if err != nil {
		a.cfg.Logger.Error("answer cannot be encoded", "err", err)
		status, body = http.StatusInternalServerError, []byte(`{"error":"`+errInternal+`","message":"internal error"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(append(body, '\n'))
	a.metrics.seconds.WithLabelValues(e.path).Observe(time.Since(begun).Seconds())
}

// failure returns a client's answer for an error. Errors that the client has not caused are logged.
func (a *API) failure(err error) *apiError {
	var failure *apiError
	switch {
	case errors.As(err, &failure):
		return failure
	case errors.Is(err, links.ErrTooLarge):
		return &apiError{http.StatusUnprocessableEntity, errTooManyLinks,
			"the subject has over a million links: filter by did, or list them with getManyToMany"}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return unavailable("the request took too long: ask for less, or try again in five seconds")
	}
	a.cfg.Logger.Warn("links cannot be read", "err", err)
	return &apiError{http.StatusInternalServerError, errInternal, "links cannot be read"}
}

func (a *API) serve(h http.Header, r *http.Request, e *endpoint) (any, error) {
	p := newParams(r.URL.RawQuery)
	q := e.parse(p)
	p.view(&q)
	if p.err != nil {
		return nil, p.err
	}
	if err := a.await(r.Context(), &q); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	case <-ctx.Done():
		return nil, unavailable("too many requests at once: try again in five seconds")
	}
	v, err := a.view(h, &q)
	if err != nil {
		return nil, err
	}
	// The names after the view: what it has, they know.
	t, err := a.resolve(ctx, &q)
	var answer any
	if err == nil {
		answer, err = e.answer(&request{ctx, a, v, &q, t})
	}
	return answer, errors.Join(err, v.Close())
}
