package public

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/dict"
	"millrace/public/internal/admission"
	"millrace/replay"
)

// Config is what New needs. Log and Dictionaries must be set; zeros elsewhere stand for the defaults
// named.
type Config struct {
	Log          *replay.Log
	Dictionaries *dict.Registry
	UIDs         UIDs           // for look-ups; nil: interning is off
	Health       func() Health  // asked by /readyz; nil: always ready
	Process      func() Process // asked by /status; nil: nothing is known
	Version      string         // "dev"

	MaxConnections      int            // subscribers in all; 20000
	MaxConnectionsPerIP int            // subscribers of one address (IPv6: of one /64); 100
	MaxHandshakes       int            // connections that are no subscribers: handshakes, idle HTTP; 512
	AttemptsPerSecond   float64        // handshakes of one address; 10
	AttemptBurst        int            // of them at once; twice MaxConnectionsPerIP
	TrustedProxies      []netip.Prefix // whose X-Forwarded-For is believed
	MaxEventsPerSecond  float64        // to one subscriber; 0: no limit

	SlowTimeout     time.Duration // a subscriber that takes nothing for that long is ended; 30 s
	ShutdownTimeout time.Duration // for Serve when its context is done; 10 s
	ClientBytes     int64         // what clients may make us remember: filters, slow clients' events (half each; for one address an eighth, or 640 kB if that is more and no more than a half); 32 MiB

	ChunkBytes int64 // chunks being written to subscribers that catch up, but for single larger events; 32 MiB

	Logger     *slog.Logger          // nil: discard
	Registerer prometheus.Registerer // nil: metrics are not registered
}

// has reports whether the registry knows a dictionary.
func has(r *dict.Registry, id uint32) bool {
	_, ok := r.Get(id)
	return ok
}

func (c *Config) validate() error {
	switch {
	case c.Dictionaries == nil:
		return errors.New("public: Config.Dictionaries is missing")
	case !has(c.Dictionaries, dict.JetstreamID):
		return fmt.Errorf("public: Config.Dictionaries: Jetstream's, %d, is missing", dict.JetstreamID)
	case c.MaxConnections < 0:
		return fmt.Errorf("public: Config.MaxConnections is negative: %d", c.MaxConnections)
	case c.MaxConnectionsPerIP < 0:
		return fmt.Errorf("public: Config.MaxConnectionsPerIP is negative: %d", c.MaxConnectionsPerIP)
	case c.MaxHandshakes < 0:
		return fmt.Errorf("public: Config.MaxHandshakes is negative: %d", c.MaxHandshakes)
	case c.AttemptsPerSecond < 0 || c.AttemptBurst < 0:
		return fmt.Errorf("public: Config.AttemptsPerSecond or AttemptBurst is negative: %g, %d", c.AttemptsPerSecond, c.AttemptBurst)
	case c.MaxEventsPerSecond < 0:
		return fmt.Errorf("public: Config.MaxEventsPerSecond is negative: %g", c.MaxEventsPerSecond)
	case c.SlowTimeout < 0 || c.ShutdownTimeout < 0:
		return fmt.Errorf("public: Config.SlowTimeout or ShutdownTimeout is negative: %v, %v", c.SlowTimeout, c.ShutdownTimeout)
	case c.ClientBytes < 0:
		return fmt.Errorf("public: Config.ClientBytes is negative: %d", c.ClientBytes)
	}
	if c.ChunkBytes < 0 {
		return fmt.Errorf("public: Config.ChunkBytes is negative: %d", c.ChunkBytes)
	}
	for _, p := range c.TrustedProxies {
		if !p.IsValid() {
			return errors.New("public: Config.TrustedProxies has an invalid prefix")
		}
	}
	return nil
}

func (c *Config) setDefaults() {
	setDefault(&c.Version, "dev")
	setDefault(&c.MaxConnections, 20_000)
	setDefault(&c.MaxConnectionsPerIP, 100)
	setDefault(&c.MaxHandshakes, maxHandshakes)
	setDefault(&c.AttemptsPerSecond, 10)
	setDefault(&c.AttemptBurst, 2*c.MaxConnectionsPerIP)
	setDefault(&c.SlowTimeout, 30*time.Second)
	setDefault(&c.ShutdownTimeout, 10*time.Second)
	setDefault(&c.ClientBytes, 32<<20)
	setDefault(&c.ChunkBytes, 32<<20)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Health == nil {
		c.Health = func() Health { return Health{} }
	}
	if c.Process == nil {
		c.Process = func() Process { return Process{} }
	}
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// timing is what tests shorten.
type timing struct {
	ping    time.Duration // between pings
	silent  time.Duration // without a sign of life, until a client is taken for dead
	message time.Duration // for one message to arrive
	flood   time.Duration // of sending without end
	// At the end of a connection:
	patience time.Duration // for the chunk that is on its way, at a shutdown
	grace    time.Duration // for what is said last
	linger   time.Duration // for the client to close its side
	trimmed  time.Duration // for each of the two, of a subscriber whose place was trimmed: it reads slowly

	header time.Duration // for a request's headers to arrive
	body   time.Duration // for the body of a POST /uids
}

func defaultTiming() timing {
	return timing{
		ping: 30 * time.Second, silent: 90 * time.Second, message: 10 * time.Second, flood: time.Minute,
		patience: 2 * time.Second, grace: 5 * time.Second, linger: 2 * time.Second, trimmed: 30 * time.Second, header: 10 * time.Second,
		body: 5 * time.Second,
	}
}

// source is where events come from: the log, or a test's stand-in.
type source struct {
	newReader    func(replay.ReaderConfig) (reader, error)
	changed      func() <-chan struct{}
	rangeOf      func() replay.Range
	dictionaries func() []replay.DictionaryUse
	counts       func() replay.Counts
	progress     func() replay.Progress
	diskBytes    func() int64
}

func logSource(l *replay.Log) source {
	return source{
		newReader:    func(cfg replay.ReaderConfig) (reader, error) { return l.NewReader(cfg) },
		changed:      l.Changed,
		rangeOf:      l.Range,
		dictionaries: l.Dictionaries,
		counts:       l.Counts,
		progress:     l.Progress,
		diskBytes:    l.DiskBytes,
	}
}

// Server serves the log. Its methods are safe for concurrent use.
type Server struct {
	cfg        Config
	log        *slog.Logger
	source     source
	timing     timing
	metrics    metrics
	admission  *admission.Controller
	catchingUp chan struct{} // a slot for each subscriber that looks through the log
	chunks     *admission.Chunks
	waker      *waker
	upgrader   websocket.Upgrader
	handler    http.Handler
	status     status
	assets     func() (map[string]*asset, error)
	lookups    chan struct{} // a token for each look-up under way
	batches    chan struct{} // a token for each POST /uids under way
	sessions

	readErrorAt atomic.Int64 // Unix nanoseconds when logReadError logged last; 0: never
}

// New makes a Server. It starts nothing.
func New(cfg Config) (*Server, error) {
	if cfg.Log == nil {
		return nil, errors.New("public: Config.Log is missing")
	}
	return newServer(cfg, logSource(cfg.Log), defaultTiming())
}

func newServer(cfg Config, src source, t timing) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	s := &Server{
		cfg: cfg, log: cfg.Logger, source: src, timing: t,
		catchingUp: make(chan struct{}, 2*runtime.GOMAXPROCS(0)),
		chunks:     admission.NewChunks(max(cfg.ChunkBytes, maxChunkBytes)),
		waker:      newWaker(src.changed),
		upgrader:   newUpgrader(),
		lookups:    make(chan struct{}, lookupsAtOnce),
		batches:    make(chan struct{}, batchesAtOnce),
		assets:     sync.OnceValues(loadAssets),
		sessions:   newSessions(),
	}
	s.admission = newAdmission(&cfg, t.header, s.rejected)
	s.metrics = newMetrics(s, cfg.Registerer)
	s.handler = s.routes()
	return s, nil
}

// Handler returns the public routes. Serve adds limits below HTTP, which other servers lack.
func (s *Server) Handler() http.Handler { return s.handler }

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /subscribe", s.handleSubscribe)
	mux.HandleFunc("GET /cursors", s.handleCursors)
	mux.HandleFunc("GET /dictionaries", s.handleDictionaries)
	mux.HandleFunc("GET /dictionaries/{id}", s.handleDictionary)
	mux.HandleFunc("GET /uid", s.handleUIDOf)
	mux.HandleFunc("GET /uid/{uid}", s.handleUID)
	mux.HandleFunc("POST /uids", s.handleUIDs)
	mux.HandleFunc("GET /healthz", s.handleHealthz)
	mux.HandleFunc("GET /readyz", s.handleReadyz)
	mux.HandleFunc("GET /status", s.handleStatus)
	mux.HandleFunc("GET /web/{path...}", s.handleAsset)
	mux.HandleFunc("GET /{$}", s.handleIndex)
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

// Serve serves connections of ln, which it closes, until ctx is done or Shutdown is called. It then
// returns nil, all subscribers having ended.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	hs := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: s.timing.header,
		ReadTimeout:       s.timing.header,
		WriteTimeout:      3 * s.timing.header,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    admission.MaxHeaderBytes,
		ConnState:         s.admission.ConnState,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	if !s.addServer(hs) {
		ln.Close()
		return nil
	}
	shutdown := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(shutdown)
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.ShutdownTimeout)
		defer cancel()
		if err := s.Shutdown(limited); err != nil {
			s.log.Warn("shutdown was not orderly", "error", err)
		}
	})
	err := hs.Serve(s.admission.Listen(ln))
	if !stop() {
		<-shutdown
	}
	if errors.Is(err, http.ErrServerClosed) {
		s.running.Wait()
		return nil
	}
	return fmt.Errorf("serve %s: %w", ln.Addr(), err)
}

// Shutdown refuses new subscribers, tells those there are (docs/wire.md, section 6), and waits until
// all have ended. When ctx is done it closes what is left without a word, waits for that, and returns
// ctx's error. It is safe to call twice.
func (s *Server) Shutdown(ctx context.Context) error {
	subs, servers := s.close()
	patience := s.timing.patience
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/2)
	}
	for _, sub := range subs {
		if sub.started.Load() {
			sub.end(shutdownEnding(patience))
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.running.Wait()
	}()
	for _, hs := range servers {
		// Requests are short; a handshake that is not finished by now will not be.
		brief, cancel := context.WithTimeout(ctx, time.Second)
		if err := hs.Shutdown(brief); err != nil {
			hs.Close()
		}
		cancel()
	}
	var err error
	select {
	case <-ended:
	case <-ctx.Done():
		err = ctx.Err()
		s.closeAll()
		<-ended
	}
	return err
}

// start runs sub on goroutines of its own.
func (s *Server) start(sub *subscriber) {
	s.metrics.subscribers.WithLabelValues(sub.opts.variant()).Inc()
	if s.waker.join(sub) {
		s.running.Go(s.waker.run)
	}
	s.running.Go(sub.readLoop)
	s.running.Go(sub.run)
	if closing := s.begin(sub); closing { // Shutdown may have missed it
		sub.end(shutdownEnding(0))
	}
	s.running.Done() // register's
}

// ended accounts for sub's end and forgets it.
func (s *Server) ended(sub *subscriber, e ending) {
	s.metrics.subscribers.WithLabelValues(sub.opts.variant()).Dec()
	s.metrics.ends.WithLabelValues(e.reason).Inc()
	s.log.Debug("subscriber ended", "address", sub.client, "reason", e.reason, "variant", sub.opts.variant(),
		"events", sub.events, "bytes", sub.bytes, "duration", time.Since(sub.begun))
	s.remove(sub)
}

// forget undoes newSubscriber for one whose handshake failed.
func (s *Server) forget(sub *subscriber) {
	s.remove(sub)
	s.running.Done()
}

func (s *Server) remove(sub *subscriber) {
	sub.filters().Release(sub.filter.bytes)
	s.admission.Leave(sub.client)
	if sub.reader != nil {
		sub.reader.Close()
	}
	s.drop(sub)
}

// readErrorEvery is how often at most a failure to read the log is logged: each replay meets it.
const readErrorEvery = time.Minute

// logReadError logs what the log said to a subscriber, unless that is of no interest to the operator or
// was logged a moment ago. The metric counts all.
func (s *Server) logReadError(err error) {
	if errors.Is(err, replay.ErrTrimmed) || errors.Is(err, replay.ErrClosed) {
		return
	}
	now := time.Now().UnixNano()
	last := s.readErrorAt.Load()
	if last != 0 && now-last < int64(readErrorEvery) || !s.readErrorAt.CompareAndSwap(last, now) {
		return
	}
	s.log.Error("the log cannot be read", "error", err)
}
