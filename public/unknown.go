package public

import (
	"net/http"

	"millrace/public/internal/linksapi"
	"millrace/public/internal/viewapi"
)

// routeUnknown answers requests for endpoints of links and of the graph that do not exist, or that
// the server was started without, and requests with other methods.
func (s *Server) routeUnknown(mux *http.ServeMux) {
	unknown := func(message string, paths ...string) {
		for _, path := range paths {
			mux.Handle("GET "+path, &viewapi.Error{Status: http.StatusNotFound, Name: "NotFound", Message: message})
		}
	}
	unknown("no such endpoint: docs/links.md lists those of links", "/links/", "/xrpc/")
	if s.cfg.Links == nil {
		unknown("links are off: they need serve --references=on --links", linksapi.Paths()...)
	}
	if s.cfg.Graph != nil {
		unknown("no such endpoint: docs/graph.md lists those of the graph", "/sets/", "/graph/")
	} else {
		unknown("the graph is off: it needs serve --references=on --graph", "/sets", "/sets/", "/graph/")
	}
	wrong := &viewapi.Error{Status: http.StatusMethodNotAllowed, Name: "MethodNotAllowed", Message: "this path takes GET"}
	for _, path := range []string{"/links", "/links/", "/xrpc/", "/sets", "/sets/", "/graph/"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", "GET, HEAD")
			wrong.ServeHTTP(w, r)
		})
	}
}
