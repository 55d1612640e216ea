package linksapi

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/public/internal/viewapi"
	"millrace/replay/links"
)

// Log gives sources, and streams, their numbers; *replay.Log is one.
type Log interface {
	viewapi.Log
	FindSource(source string) (number uint32, ok bool)
	SourceOf(number uint32) (source string, ok bool)
}

// Config is what New needs. Links, UIDs and Log must be set; New does not check that.
type Config struct {
	Links      links.Queries
	UIDs       viewapi.UIDs
	Log        Log
	Logger     *slog.Logger          // nil: discard
	Registerer prometheus.Registerer // nil: metrics are not registered
}

// API answers requests. It is safe for concurrent use.
type API struct {
	*viewapi.API
	cfg Config
}

// New makes an API. It starts nothing.
func New(cfg Config) *API {
	return &API{cfg: cfg, API: viewapi.New(viewapi.Config{
		Kind: "links", UIDs: cfg.UIDs, Log: cfg.Log, Failure: failure, Logger: cfg.Logger, Registerer: cfg.Registerer,
	})}
}

// endpoint is one path. Its parse reads the request's own parameters; its answer returns what is to
// be JSON.
type endpoint struct {
	path   string
	parse  func(*params) query
	answer func(*request) (any, error)
}

// endpoints returns Constellation's API: the present one, then the old one; and what is ours.
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
		{"/links/most-linked", parseNothing, answerMostLinked},
	}
}

// Paths returns those of the endpoints.
func Paths() (paths []string) {
	for _, e := range endpoints() {
		paths = append(paths, e.path)
	}
	return paths
}

// Route adds the endpoints to mux.
func (a *API) Route(mux *http.ServeMux) {
	for _, e := range endpoints() {
		mux.HandleFunc("GET "+e.path, a.Handler(e.path, func(h http.Header, r *http.Request) ([]byte, error) { return a.serve(h, r, &e) }))
	}
}

func (a *API) serve(h http.Header, r *http.Request, e *endpoint) (body []byte, err error) {
	p := &params{viewapi.NewParams(r.URL.RawQuery)}
	q := e.parse(p)
	q.at = p.At()
	if q.cursor.after != (links.OthersCursor{}) && q.cursor.since != a.cfg.Links.Since() {
		p.Fail("cursor: another server made it, or the links were begun anew since: begin again without a cursor")
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	if err := a.Await(r.Context(), &q.at, a.cfg.Links.Wait); err != nil {
		return nil, err
	}
	ctx, done, err := a.Turn(r.Context())
	if err != nil {
		return nil, err
	}
	defer done()
	v, err := a.view(h, &q)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	// Names are resolved after the view is taken, so that they include all that it has.
	t, err := a.resolve(ctx, &q)
	if err != nil {
		return nil, err
	}
	answer, err := e.answer(&request{ctx, a, v, &q, t})
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

// view returns links as they are, which is at or after q.at, with the headers that say so.
func (a *API) view(h http.Header, q *query) (links.View, error) {
	v, err := a.cfg.Links.View()
	if errors.Is(err, links.ErrBuilding) {
		return nil, viewapi.NotBuilt(errBuilding, "links are", a.cfg.Links.Progress())
	}
	if err != nil {
		return nil, err
	}
	err = a.Reached(h, &q.at, viewapi.View{Since: a.cfg.Links.Since(), Position: v.Position(), Inexact: a.cfg.Links.InexactSince()})
	if err != nil {
		return nil, errors.Join(v.Close(), err)
	}
	return v, nil
}
