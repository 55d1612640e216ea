package public

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/replay/graph"
	"millrace/replay/links"
)

// buildingLinks are not complete yet.
type buildingLinks struct{ links.Queries }

func (buildingLinks) View() (links.View, error) { return nil, links.ErrBuilding }
func (buildingLinks) Progress() links.Progress  { return links.Progress{Done: .5} }

func TestLinksAreServed(t *testing.T) {
	const path = "/xrpc/blue.microcosm.links.getBacklinksCount?subject=did:web:example.com&source=a:b"
	cfg := Config{Dictionaries: newRegistry(t), UIDs: downUIDs{}, Log: newTestLog(t).Log}
	off := emptyServer(t, cfg)
	for _, path := range []string{path, "/links", "/links/count?target=x"} {
		if status, answer := ask(off.Handler(), "GET", path, ""); status != 404 || !strings.Contains(answer, "--links") {
			t.Errorf("%s without links: %d %s", path, status, answer)
		}
	}
	for _, path := range []string{"/links/counts", "/xrpc/blue.microcosm.links.getLinks", "/xrpc/app.bsky.feed.getTimeline"} {
		if status, answer := ask(off.Handler(), "GET", path, ""); status != 404 || !strings.Contains(answer, "no such endpoint") {
			t.Errorf("%s without links: %d %s", path, status, answer)
		}
	}
	cfg.Links, cfg.Registerer = buildingLinks{}, prometheus.NewRegistry()
	on := emptyServer(t, cfg)
	for _, path := range []string{"/links/counts", "/xrpc/blue.microcosm.links.getLinks"} {
		if status, answer := ask(on.Handler(), "GET", path, ""); status != 404 || !strings.Contains(answer, "docs/links.md") {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	w := httptest.NewRecorder()
	on.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	h := w.Header()
	if w.Code != 503 || !strings.Contains(w.Body.String(), "50.0 % built") || h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Access-Control-Expose-Headers") != "*" {
		t.Errorf("%d %s %v", w.Code, w.Body, h)
	}
	cfg.UIDs = nil
	if _, err := newServer(cfg, eventLog{}, defaultTiming()); err == nil || !strings.Contains(err.Error(), "UIDs") {
		t.Errorf("links without UIDs: %v", err)
	}
}

// TestViewMethods: paths of links and of the graph take GET and HEAD, and answer others as they
// answer other errors.
func TestViewMethods(t *testing.T) {
	cfg := Config{Dictionaries: newRegistry(t), UIDs: unknownUIDs{}, Log: newTestLog(t).Log, Links: buildingLinks{}, Graph: buildingGraph{}}
	off := cfg
	off.Links, off.Graph = nil, nil
	for _, cfg := range []Config{cfg, off} {
		s := emptyServer(t, cfg)
		for _, path := range []string{"/links", "/links/all", "/links/unknown", "/xrpc/blue.microcosm.links.getBacklinks", "/xrpc/a.b.c", "/sets", "/sets/count", "/graph/mutuals", "/graph/unknown"} {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest("POST", path, nil))
			if h := w.Header(); w.Code != 405 || h.Get("Allow") != "GET, HEAD" || w.Body.String() != `{"error":"MethodNotAllowed","message":"this path takes GET"}`+"\n" {
				t.Errorf("POST %s: %d %s %v", path, w.Code, w.Body, h)
			}
			if status, _ := ask(s.Handler(), "HEAD", path, ""); status == 405 {
				t.Errorf("HEAD %s is not allowed", path)
			}
		}
	}
}

// buildingGraph is not complete yet.
type buildingGraph struct{ graph.Queries }

func (buildingGraph) Graph() (*graph.Graph, error) { return nil, graph.ErrBuilding }
func (buildingGraph) Source(string) (int, bool)    { return 0, true }
func (buildingGraph) Progress() graph.Progress     { return graph.Progress{Done: .5} }

func TestGraphIsServed(t *testing.T) {
	cfg := Config{Dictionaries: newRegistry(t), UIDs: unknownUIDs{}, Log: newTestLog(t).Log, Graph: buildingGraph{}, Registerer: prometheus.NewRegistry()}
	s := emptyServer(t, cfg)
	status, answer := ask(s.Handler(), "GET", "/sets/count?expr=follows:did:web:example.com", "")
	if status != 503 || !strings.Contains(answer, "50.0 % built") {
		t.Errorf("%d %s", status, answer)
	}
	if status, answer := ask(s.Handler(), "GET", "/graph/mutual?actor=did:web:example.com", ""); status != 404 || !strings.Contains(answer, "docs/graph.md") {
		t.Errorf("misspelt: %d %s", status, answer)
	}
	cfg.UIDs, cfg.Graph, cfg.Registerer = nil, nil, nil
	off := emptyServer(t, cfg)
	for _, path := range []string{"/sets", "/sets/count", "/graph/mutuals"} {
		if status, answer := ask(off.Handler(), "GET", path, ""); status != 404 || !strings.Contains(answer, "--graph") {
			t.Errorf("%s without a graph: %d %s", path, status, answer)
		}
	}
	cfg.Graph = buildingGraph{}
	if _, err := newServer(cfg, eventLog{}, defaultTiming()); err == nil || !strings.Contains(err.Error(), "UIDs") {
		t.Errorf("a graph without UIDs: %v", err)
	}
}

// unknownUIDs knows no string.
type unknownUIDs struct{ downUIDs }

func (unknownUIDs) LookupStrings(context.Context, []string, []uint64) error { return nil }
