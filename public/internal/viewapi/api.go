package viewapi

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
)

const (
	// RequestsAtOnce is how many requests of an API have a turn at the same time.
	RequestsAtOnce = 8
	// requestTimeout is how long one may take, waiting for its turn included.
	requestTimeout = 10 * time.Second
	// logEvery is how often at most a failure of the UID store is logged: each request meets it.
	logEvery = time.Minute
)

// Config is what New needs. All but Logger and Registerer must be set; New does not check that.
type Config struct {
	Kind string // what the view is of, such as links: in messages and names of metrics
	UIDs UIDs
	Log  Log
	// Failure returns the answer to an error of the API's own kind, nil if it is another error.
	Failure    func(error) *Error
	Logger     *slog.Logger          // nil: discard
	Registerer prometheus.Registerer // nil: metrics are not registered
}

// API is what requests of one kind share. It is safe for concurrent use.
type API struct {
	cfg     Config
	metrics metrics
	turns   chan struct{} // a token for each request that has a turn

	failures rate.Sometimes // when a failure of the UID store is logged
}

// New makes an API. It starts nothing.
func New(cfg Config) *API {
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	return &API{cfg: cfg, metrics: newMetrics(cfg.Kind, cfg.Registerer), turns: make(chan struct{}, RequestsAtOnce),
		failures: rate.Sometimes{Interval: logEvery}}
}

// Handler answers requests of an endpoint with the JSON that serve returns, or with its error.
func (a *API) Handler(endpoint string, serve func(http.Header, *http.Request) ([]byte, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		if body, err := serve(w.Header(), r); err != nil {
			failure := a.failure(err)
			a.metrics.errors.WithLabelValues(failure.Name).Inc()
			failure.ServeHTTP(w, r)
		} else {
			WriteJSON(w, http.StatusOK, append(body, '\n'))
		}
		a.metrics.seconds.WithLabelValues(endpoint).Observe(time.Since(begun).Seconds())
	}
}

// WriteJSON answers with JSON that is not to be cached.
func WriteJSON(w http.ResponseWriter, status int, body []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	w.Write(body)
}

// failure returns a client's answer for an error. One without an answer of its own is logged.
func (a *API) failure(err error) *Error {
	if failure, ok := errors.AsType[*Error](err); ok {
		return failure
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Unavailable("the request took too long: ask for less, or try again in five seconds")
	}
	if failure := a.cfg.Failure(err); failure != nil {
		return failure
	}
	a.cfg.Logger.Warn("a request failed with status 500: its view cannot be read", "view", a.cfg.Kind, "err", err)
	return &Error{http.StatusInternalServerError, ErrInternal, "the server cannot read its " + a.cfg.Kind + "; its log says why"}
}

// Turn waits for a request's turn. The context it returns ends when the request has taken too long;
// done gives the turn back.
func (a *API) Turn(ctx context.Context) (turn context.Context, done func(), err error) {
	turn, cancel := context.WithTimeout(ctx, requestTimeout)
	select {
	case a.turns <- struct{}{}:
		return turn, func() { <-a.turns; cancel() }, nil
	case <-turn.Done():
		cancel()
		return nil, nil, Unavailable("too many requests at once: try again in five seconds")
	}
}
