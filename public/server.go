package public

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"millrace/public/internal/admission"
	"millrace/public/internal/graphapi"
	"millrace/public/internal/linksapi"
	"millrace/public/internal/viewapi"
	"millrace/replay"
	"millrace/translate"
)

// timing is what tests shorten.
type timing struct {
	ping    time.Duration // between pings
	silent  time.Duration // without a frame or pong, until a client is taken for dead
	message time.Duration // for one message to arrive
	flood   time.Duration // of sending without end
	// At the end of a connection:
	patience time.Duration // for the chunk that is on its way, at a shutdown
	grace    time.Duration // for the last message and the close frame
	linger   time.Duration // for the client to close its side
	// grace and linger of a subscriber whose place was trimmed, as it reads slowly
	trimmed time.Duration

	header time.Duration // for a request's headers to arrive
	body   time.Duration // for the body of a request
}

func defaultTiming() timing {
	return timing{
		ping: 30 * time.Second, silent: 90 * time.Second, message: 10 * time.Second, flood: time.Minute,
		patience: 2 * time.Second, grace: 5 * time.Second, linger: 2 * time.Second, trimmed: 30 * time.Second, header: 10 * time.Second,
		body: 5 * time.Second,
	}
}

// eventLog is where events come from: the log, or a test's stand-in.
type eventLog struct {
	newReader    func(replay.ReaderConfig) (reader, error)
	changed      func() <-chan struct{}
	rangeOf      func() replay.Range
	dictionaries func() []replay.DictionaryUse
	counts       func() replay.Counts
	progress     func() replay.Progress
	diskBytes    func() int64
	v2Seq        func(translate.Position) int64
}

func eventLogOf(l *replay.Log) eventLog {
	return eventLog{
		newReader:    func(cfg replay.ReaderConfig) (reader, error) { return l.NewReader(cfg) },
		changed:      l.Changed,
		rangeOf:      l.Range,
		dictionaries: l.Dictionaries,
		counts:       l.Counts,
		progress:     l.Progress,
		diskBytes:    l.DiskBytes,
		v2Seq:        l.V2Seq,
	}
}

// catchUpLimits bound what subscribers that catch up do at once. Looking through the log is all
// work and no waiting, and those that are live would wait for it.
type catchUpLimits struct {
	slots  chan struct{} // one for each subscriber that looks through the log
	chunks *admission.Chunks
}

// Server serves the log. Its methods are safe for concurrent use.
type Server struct {
	cfg       Config
	events    eventLog
	timing    timing
	metrics   metrics
	admission *admission.Controller
	catchUp   catchUpLimits
	waker     *waker
	filters   sharedFilters
	handler   http.Handler
	status    status
	assets    func() map[string]*asset
	lookups   *lookupAPI
	sessions

	readErrors rate.Sometimes // when logReadError logs
}

// New makes a Server. It starts nothing.
func New(cfg Config) (*Server, error) {
	if cfg.Log == nil {
		return nil, errors.New("public: field Log: must be set")
	}
	return newServer(cfg, eventLogOf(cfg.Log), defaultTiming())
}

func newServer(cfg Config, src eventLog, t timing) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{
		cfg: cfg, events: src, timing: t,
		catchUp: catchUpLimits{
			slots:  make(chan struct{}, 2*runtime.GOMAXPROCS(0)),
			chunks: admission.NewChunks(max(cfg.ChunkBytes, maxChunkBytes)),
		},
		waker:    newWaker(src.changed),
		filters:  sharedFilters{of: make(map[string]*sharedFilter)},
		assets:   sync.OnceValue(loadAssets),
		sessions: sessions{subscribers: make(map[*subscriber]bool)},

		readErrors: rate.Sometimes{Interval: logEvery},
	}
	if err := s.status.day.load(cfg.DayFile); err != nil {
		s.cfg.Logger.Warn("the day of samples cannot be read: the page's curves begin anew", "file", cfg.DayFile, "err", err)
	}
	s.admission = newAdmission(&cfg, t.header, s.rejected)
	s.lookups = newLookupAPI(&cfg, s.admission, t.body)
	s.metrics = newMetrics(s, cfg.Registerer)
	s.handler = s.withHeaders(s.withV2(s.routes()))
	return s, nil
}

// Handler returns the public routes. Serve adds limits below HTTP, which other servers lack.
func (s *Server) Handler() http.Handler { return s.handler }

func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /subscribe", s.handleSubscribe)
	mux.HandleFunc("GET /cursors", s.handleCursors)
	mux.HandleFunc("GET /dictionaries", s.handleDictionaries)
	mux.HandleFunc("GET /dictionaries/{id}", s.handleDictionary)
	mux.HandleFunc("GET /uid", s.lookups.answer(s.lookups.handleUIDOf))
	mux.HandleFunc("GET /uid/{uid}", s.lookups.answer(s.lookups.handleUID))
	mux.HandleFunc("POST /uids", s.lookups.answer(s.lookups.handleUIDs))
	mux.HandleFunc("GET /healthz", s.handleHealthz)
	mux.HandleFunc("GET /readyz", s.handleReadyz)
	mux.HandleFunc("GET /status", s.handleStatus)
	mux.HandleFunc("GET /status/day", s.handleDay)
	mux.HandleFunc("GET /web/{path...}", s.handleAsset)
	mux.HandleFunc("GET /{$}", s.handleIndex)
	if s.cfg.Links != nil {
		linksapi.New(linksapi.Config{
			Links: s.cfg.Links, UIDs: s.cfg.UIDs, Log: s.cfg.Log, Logger: s.cfg.Logger, Registerer: s.cfg.Registerer,
		}).Route(mux)
	}
	if s.cfg.Graph != nil {
		graphapi.New(graphapi.Config{
			Graph: s.cfg.Graph, Links: s.cfg.Links, UIDs: s.cfg.UIDs, Log: s.cfg.Log, Logger: s.cfg.Logger, Registerer: s.cfg.Registerer,
		}).Route(mux)
	}
	s.routeUnknown(mux)
	return mux
}

// withHeaders adds what all answers have, and answers preflights.
func (s *Server) withHeaders(mux http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Server", "millrace/"+s.cfg.Version)
		h.Set("Access-Control-Allow-Origin", "*")
		h.Set("Access-Control-Expose-Headers", "*")
		if r.Method == http.MethodOptions {
			h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS")
			h.Set("Access-Control-Allow-Headers", "*")
			h.Set("Access-Control-Max-Age", "86400")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// requestsEnd is how long Shutdown waits for requests. The contexts of all end halfway.
const requestsEnd = time.Second

// Serve serves connections of ln, which it closes, until Shutdown is called. It then returns nil,
// all subscribers having ended.
func (s *Server) Serve(ln net.Listener) error {
	requests, end := context.WithCancelCause(context.Background())
	hs := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: s.timing.header,
		ReadTimeout:       s.timing.header,
		WriteTimeout:      3 * s.timing.header,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    admission.MaxHeaderBytes,
		ConnState:         s.admission.ConnState,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return requests },
	}
	hs.RegisterOnShutdown(func() { time.AfterFunc(requestsEnd/2, func() { end(viewapi.ErrStopping) }) })
	if !s.addServer(hs) {
		ln.Close()
		return nil
	}
	err := hs.Serve(s.admission.Listen(ln))
	if errors.Is(err, http.ErrServerClosed) {
		s.running.Wait()
		return nil
	}
	return fmt.Errorf("serve %s: %w", ln.Addr(), err)
}

// Shutdown refuses new subscribers, informs those there are (docs/wire.md, section 6), and waits
// until all have ended. When ctx is done it closes what is left without a message, waits for that,
// and returns ctx's error. It is safe to call twice.
func (s *Server) Shutdown(ctx context.Context) error {
	subs, servers := s.close()
	patience := s.timing.patience
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/2)
	}
	for _, sub := range subs {
		sub.end(shutdownEnding(patience))
	}
	stop := context.AfterFunc(ctx, s.closeAll)
	for _, hs := range servers {
		// A handshake that is not finished by now will not be.
		brief, cancel := context.WithTimeout(ctx, requestsEnd)
		if err := hs.Shutdown(brief); err != nil {
			hs.Close()
		}
		cancel()
	}
	s.running.Wait()
	if !stop() {
		return ctx.Err()
	}
	return nil
}

// start runs sub on goroutines of its own.
func (s *Server) start(sub *subscriber) {
	s.metrics.subscribers.WithLabelValues(sub.opts.variant()).Inc()
	if closing := s.begin(sub); closing { // Shutdown may have missed it
		sub.end(shutdownEnding(0))
	}
	if s.waker.join(&sub.sleeper) {
		s.running.Go(s.waker.run)
	}
	s.running.Go(sub.readLoop)
	s.running.Go(sub.run)
	s.running.Done() // register's
}

// ended accounts for sub's end and forgets it.
func (s *Server) ended(sub *subscriber, e ending) {
	s.metrics.subscribers.WithLabelValues(sub.opts.variant()).Dec()
	s.metrics.ends.WithLabelValues(e.reason).Inc()
	s.cfg.Logger.Debug("subscriber ended", "address", sub.client, "reason", e.reason, "variant", sub.opts.variant(),
		"events", sub.events, "bytes", sub.bytes, "duration", time.Since(sub.begun))
	s.remove(sub)
}

// forget undoes newSubscriber for one whose handshake failed.
func (s *Server) forget(sub *subscriber) {
	s.remove(sub)
	s.running.Done()
}

func (s *Server) remove(sub *subscriber) {
	if sub.reader != nil {
		sub.reader.Close()
	}
	sub.filter.release()
	s.admission.Leave(sub.client)
	s.drop(sub)
}

// logEvery is how often at most a failure that each replay or look-up meets is logged.
const logEvery = time.Minute

// logReadError logs what the log said to a subscriber, unless that is of no interest to the
// operator or was logged a moment ago. The metric counts all.
func (s *Server) logReadError(err error) {
	if errors.Is(err, replay.ErrTrimmed) || errors.Is(err, replay.ErrClosed) {
		return
	}
	s.readErrors.Do(func() { s.cfg.Logger.Error("the log cannot be read", "err", err) })
}
