package public

import (
	"fmt"
	"net/http"
)

// writeIndexText says what is served here.
func (s *Server) writeIndexText(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, `millrace %[1]s

An AT Protocol firehose as JSON events, live, filtered and replayed; Jetstream's wire.

  websocat '%[2]s?wantedCollections=app.bsky.feed.post&cursor=0'

  GET /subscribe           websocket; docs/wire.md has all parameters
  GET /cursors             what the log holds
  GET /dictionaries        zstd dictionaries for zstdDictionary=<id>; /dictionaries/{id} is the file
  GET /uid, POST /uids     look UIDs up: /uid?did=…, /uid?uri=…, /uid/{uid}
  GET /status              how it is doing, as JSON; a browser gets a page here that shows it
  GET /healthz, /readyz    alive; ready, and why not

Subscribers now: %[3]d
`, s.cfg.Version, subscribeURL(r), s.count.Load())
}

// subscribeURL returns where the client of a request can subscribe: with TLS if a proxy says so.
func subscribeURL(r *http.Request) string {
	scheme := "ws"
	if r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "wss"
	}
	return scheme + "://" + r.Host + "/subscribe"
}
