package graphapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/public/internal/setexpr"
	"millrace/public/internal/viewapi"
	"millrace/replay/graph"
	"millrace/replay/links"
	"millrace/replay/references"
)

// Log gives sources, and streams, their numbers; *replay.Log is one.
type Log interface {
	viewapi.Log
	FindSource(source string) (number uint32, ok bool)
}

// Config is what New needs. Graph, UIDs and Log must be set; New does not check that.
type Config struct {
	Graph      graph.Queries
	Links      links.Queries // nil: there are no sets of links
	UIDs       viewapi.UIDs
	Log        Log
	MaxCost    int64                 // members that an evaluation may visit; 100 million
	Logger     *slog.Logger          // nil: discard
	Registerer prometheus.Registerer // nil: metrics are not registered
}

// API answers requests. It is safe for concurrent use.
type API struct {
	*viewapi.API
	cfg   Config
	cache cache
}

// New makes an API. It starts nothing.
func New(cfg Config) *API {
	cfg.MaxCost = cmp.Or(cfg.MaxCost, 100_000_000)
	return &API{cfg: cfg, cache: newCache(), API: viewapi.New(viewapi.Config{
		Kind: "graph", UIDs: cfg.UIDs, Log: cfg.Log, Failure: failure, Logger: cfg.Logger, Registerer: cfg.Registerer,
	})}
}

// endpoint is one path. Its parse reads the request's own parameters; its ask asks the graph, and
// its answer returns what is to be JSON.
type endpoint struct {
	path   string
	parse  func(*params) request
	ask    func(context.Context, *graph.Graph, *request) ([]graph.Result, error)
	answer func(*request) any
}

func endpoints() []endpoint {
	return []endpoint{
		{"/sets", parsePage, askPage, answerPage},
		{"/sets/count", parseExpr, askCount, answerCount},
		{"/sets/sample", parseSample, askSample, answerSample},
		{"/graph/follows-following", parseFollowsFollowing, askPage, answerSubjects},
		{"/graph/mutuals", parseBoth(setexpr.Follows, graph.And, setexpr.Followers), askPage, answerPage},
		{"/graph/does-follow", parseDoesFollow, askHas, answerFollows},
		{"/graph/common-follows", parseCommon(setexpr.Follows), askPage, answerPage},
		{"/graph/common-followers", parseCommon(setexpr.Followers), askPage, answerPage},
		{"/graph/followers-not-following", parseBoth(setexpr.Followers, graph.AndNot, setexpr.Follows), askPage, answerPage},
	}
}

// Route adds the endpoints to mux.
func (a *API) Route(mux *http.ServeMux) {
	for _, e := range endpoints() {
		mux.HandleFunc("GET "+e.path, a.Handler(e.path, func(h http.Header, r *http.Request) ([]byte, error) { return a.serve(h, r, &e) }))
	}
}

func (a *API) serve(h http.Header, r *http.Request, e *endpoint) ([]byte, error) {
	p := &params{viewapi.NewParams(r.URL.RawQuery)}
	req := e.parse(p)
	req.at, req.limits.MaxCost = p.At(), a.cfg.MaxCost
	if err := p.Err(); err != nil {
		return nil, err
	}
	if err := a.supported(&req); err != nil {
		return nil, err
	}
	if err := a.await(r.Context(), &req); err != nil {
		return nil, err
	}
	ctx, done, err := a.Turn(r.Context())
	if err != nil {
		return nil, err
	}
	defer done()
	oldest, err := a.resolve(ctx, &req)
	if err != nil {
		return nil, err
	}
	if err := a.ask(ctx, &req, e); err != nil {
		return nil, err
	}
	view := viewapi.View{Since: a.cfg.Graph.Since(), Position: req.results[0].Position, Inexact: a.cfg.Graph.InexactSince()}
	if oldest != nil && oldest.Before(view.Position) {
		view.Position = *oldest
	}
	if err := a.Reached(h, &req.at, view); err != nil {
		return nil, err
	}
	var members []uint64
	for i := range req.results {
		members = append(members, req.results[i].UIDs...)
	}
	if req.names, err = a.Names(ctx, members); err != nil {
		return nil, err
	}
	return json.Marshal(e.answer(&req))
}

// await waits until the graph, and links if they are asked for, have come to a position.
func (a *API) await(ctx context.Context, r *request) error {
	return a.Await(ctx, &r.at, func(ctx context.Context, at references.Position) error {
		err := a.cfg.Graph.Wait(ctx, at)
		if err == nil && r.ofLinks() {
			err = a.cfg.Links.Wait(ctx, at)
		}
		return err
	})
}

// ask asks the graph.
func (a *API) ask(ctx context.Context, r *request, e *endpoint) error {
	g, err := a.cfg.Graph.Graph()
	if errors.Is(err, graph.ErrBuilding) {
		return viewapi.NotBuilt(errBuilding, "graph is", a.cfg.Graph.Progress())
	}
	if err != nil {
		return err
	}
	r.results, err = e.ask(ctx, g, r)
	return err
}

// supported returns an error that names a set that the server does not have.
func (a *API) supported(r *request) (err error) {
	for _, s := range r.sets {
		if from := sourceOf(s.Name); from.read != nil {
			if a.cfg.Links == nil {
				err = unsupported("%v: sets of links need a server with --links", s.Name)
			}
		} else if _, ok := a.cfg.Graph.Source(from.source); !ok {
			err = unsupported("%v: the graph of this server has no %s", s.Name, from.source)
		}
	}
	return err
}
