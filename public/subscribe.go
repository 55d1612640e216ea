package public

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"millrace/dict"
	"millrace/public/internal/admission"
	"millrace/replay"
)

// millrace's own headers in the answer to a websocket handshake.
const (
	headerOldest     = "Millrace-Oldest-Cursor"
	headerDictionary = "Millrace-Dictionary"
)

// handshakeTimeout bounds how long the answer to a handshake may take to be sent.
const handshakeTimeout = 10 * time.Second

// refusal is an error that has an HTTP status of its own.
type refusal struct {
	status     int
	reason     string // for the metric of those that are no subscribers
	name       string // on v2's wire; "": that of the status
	text       string // for the client
	retryAfter time.Duration
}

func (f *refusal) Error() string { return f.text }

// refusalOf returns the answer to a request that failed: an error of no other kind is the client's.
func refusalOf(err error) *refusal {
	refused, ok := errors.AsType[*refusal](err)
	switch {
	case ok:
		return refused
	case errors.Is(err, errFilterMemory):
		return unavailable(rejectMemory, err.Error())
	case errors.Is(err, errUIDStore):
		return unavailable(rejectUIDStore, err.Error())
	}
	return badRequest("", err)
}

func badRequest(name string, err error) *refusal {
	return &refusal{status: http.StatusBadRequest, reason: rejectBadRequest, name: name, text: err.Error()}
}

func notFound(name, format string, args ...any) error {
	return &refusal{status: http.StatusNotFound, name: name, text: fmt.Sprintf(format, args...)}
}

func unavailable(reason, text string) *refusal {
	return &refusal{status: http.StatusServiceUnavailable, reason: reason, text: text, retryAfter: 5 * time.Second}
}

func (f *refusal) write(w http.ResponseWriter) {
	f.setRetryAfter(w)
	http.Error(w, f.text, f.status)
}

func (f *refusal) setRetryAfter(w http.ResponseWriter) {
	if f.retryAfter > 0 {
		seconds := int64((f.retryAfter + time.Second - 1) / time.Second)
		w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
	}
}

func (s *Server) handleSubscribe(w http.ResponseWriter, r *http.Request) {
	s.subscribe(w, r, s.parseV1Options, (*refusal).write)
}

func (s *Server) parseV1Options(r *http.Request) (options, error) {
	opts, err := parseOptions(r)
	if err == nil {
		err = s.checkReferences(&opts)
	}
	return opts, err
}

// subscribe upgrades the connection and leaves it to a subscriber of its own. It answers with write
// if it refuses.
func (s *Server) subscribe(
	w http.ResponseWriter, r *http.Request, parse func(*http.Request) (options, error), write func(*refusal, http.ResponseWriter),
) {
	client, err := s.admit(r)
	var sub *subscriber
	if err == nil {
		var opts options
		if opts, err = parse(r); err == nil {
			sub, err = s.newSubscriber(r.Context(), client, opts)
		}
		if err != nil {
			s.admission.Leave(client)
		}
	}
	if err != nil {
		refused := refusalOf(err)
		s.rejected(client, refused.reason)
		write(refused, w)
		return
	}
	if err := sub.upgrade(w, r); err != nil {
		s.rejected(client, rejectHandshake)
		s.forget(sub)
		return
	}
	s.start(sub)
}

// rejected accounts for a client that was turned away before it was a subscriber.
func (s *Server) rejected(client netip.Addr, reason string) {
	s.metrics.rejected.WithLabelValues(reason).Inc()
	s.cfg.Logger.Debug("client turned away", "address", client, "reason", reason)
}

// admit checks the client's address. If it returns no error, the caller must call
// s.admission.Leave when the client leaves.
func (s *Server) admit(r *http.Request) (netip.Addr, error) {
	client, forwards := s.admission.ClientOf(r)
	if forwards {
		s.metrics.forwarded.Inc()
	}
	v := s.admission.Admit(client, forwards, time.Now())
	if v.Shared {
		s.cfg.Logger.Warn("many clients come through one address that is no trusted proxy: they share its limits",
			"address", client, "flag", "--trusted-proxies")
	}
	switch v.Reason {
	case "":
		return client, nil
	case admission.ReasonConnections:
		return client, &refusal{
			status: http.StatusTooManyRequests, reason: v.Reason, retryAfter: v.RetryAfter,
			text: fmt.Sprintf("your address has %d connections, the most it may have", s.cfg.MaxConnectionsPerIP),
		}
	case admission.ReasonAttempts:
		return client, &refusal{
			status: http.StatusTooManyRequests, reason: v.Reason, retryAfter: v.RetryAfter,
			text: "your address connects too often",
		}
	default:
		return client, unavailable(v.Reason, "too many clients")
	}
}

// newSubscriber makes one with these options. It is registered and its filter counted; forget
// undoes both.
func (s *Server) newSubscriber(ctx context.Context, client netip.Addr, opts options) (*subscriber, error) {
	enc, err := s.encoder(opts.dictionary)
	if err != nil {
		return nil, err
	}
	f, err := s.compile(ctx, opts.wants, opts.kinds, client)
	if err != nil {
		return nil, err
	}
	opts.wants = nil
	sub := &subscriber{
		server: s, opts: opts, client: client, filter: f,
		out: outbound{
			messages: messages{enc: enc}, heartbeat: opts.heartbeat, timing: &s.timing, pings: s.metrics.pings,
		},
		readDone: make(chan struct{}),
	}
	if opts.v2 {
		sub.out.messages.v2Seq = s.events.v2Seq
	}
	if err := sub.openReader(); err != nil {
		f.release()
		return nil, err
	}
	if err := s.register(sub, s.cfg.MaxConnections); err != nil {
		sub.reader.Close()
		f.release()
		return nil, err
	}
	return sub, nil
}

// encoder returns the encoder of a dictionary that a client asks for, nil for ID 0.
func (s *Server) encoder(id uint32) (*dict.Encoder, error) {
	if id == 0 {
		return nil, nil
	}
	if _, ok := s.cfg.Dictionaries.Get(id); !ok {
		return nil, invalidOption("unknown zstdDictionary %d: the stored one is %d, /dictionaries lists all",
			id, s.cfg.Dictionaries.Stored().ID())
	}
	enc, err := s.cfg.Dictionaries.Encoder(id)
	if err != nil {
		return nil, unavailable(rejectShutdown, err.Error())
	}
	return enc, nil
}

// openReader makes the subscriber's reader, in place of the one that it may have. After an error it
// has none.
func (s *subscriber) openReader() error {
	if s.reader != nil {
		s.reader.Close()
		s.reader = nil
	}
	r, err := s.server.events.newReader(replay.ReaderConfig{
		Cursor:        s.opts.cursor,
		Filter:        s.filter.compiled,
		Extended:      s.opts.extended,
		References:    s.opts.references,
		V2:            s.opts.v2,
		Dictionary:    s.opts.dictionary,
		MaxChunkBytes: maxChunkBytes,
	})
	if err != nil {
		return s.opts.refusalOfReader(err)
	}
	if oldest, clamped := r.Clamped(); clamped && s.opts.strict {
		r.Close()
		if oldest == (replay.Point{}) {
			return invalidOption("cursor %s is older than the log, which is empty: all of it was trimmed; leave the cursor out", s.opts.cursor)
		}
		return invalidOption("cursor %s is older than the log, whose oldest is %d (%s)",
			s.opts.cursor, oldest.TimeUS, oldest.Position)
	}
	if s.opts.strict && s.wantsReferences() {
		if begin, before := s.server.beforeReferences(r); before {
			r.Close()
			return invalidOption("cursor %s is older than the references in the log, which begin after %s", s.opts.cursor, begin.Position)
		}
	}
	s.reader = r
	return nil
}

// upgrade answers the handshake. An error means that the client has its answer already.
func (s *subscriber) upgrade(w http.ResponseWriter, r *http.Request) error {
	header := w.Header().Clone()
	if oldest := s.server.events.rangeOf().Oldest; oldest.TimeUS != 0 {
		header.Set(headerOldest, strconv.FormatInt(oldest.TimeUS, 10))
	}
	if s.opts.dictionary != 0 {
		header.Set(headerDictionary, strconv.FormatUint(uint64(s.opts.dictionary), 10))
	}
	w.Header().Set("Sec-WebSocket-Version", "13") // of a refusal: RFC 6455, 4.4
	const offers = "Sec-Websocket-Protocol"       // may come in several lines, of which gorilla reads one
	r.Header.Set(offers, strings.Join(r.Header.Values(offers), ","))
	upgrader := newUpgrader()
	if s.opts.v2 {
		upgrader.Subprotocols, upgrader.Error = []string{v2Subprotocol}, refuseV2Handshake
	}
	if err := checkHandshake(r); err != nil {
		upgrader.Error(w, r, http.StatusBadRequest, err)
		return err
	}
	h := &hijacker{ResponseWriter: w, floodTimeout: s.server.timing.flood}
	ws, err := upgrader.Upgrade(h, r, header)
	if err != nil {
		return err
	}
	s.ws, s.conn = ws, h.conn
	s.sleeper.conn, s.sleeper.mailbox = h.conn, &s.mailbox
	s.conn.throttled = s.server.metrics.held.WithLabelValues(heldInbound).Inc
	s.conn.framing.Store(true)
	s.out.conn = s.conn
	s.out.writer = writer{
		raw: s.conn.Conn, slowTimeout: s.server.cfg.SlowTimeout, stop: s.cut, kept: s.release,
		quota: s.server.admission.Quota(admission.Unsent, s.client),
	}
	return nil
}

// checkHandshake returns what gorilla does not check. RFC 9110, 7.8 forbids to upgrade HTTP/1.0.
func checkHandshake(r *http.Request) error {
	switch {
	case !r.ProtoAtLeast(1, 1):
		return errors.New("the request is HTTP/1.0: a websocket needs HTTP/1.1")
	case r.ContentLength != 0: // -1 if it is chunked
		return errors.New("the request has a body: a websocket's handshake has no body")
	}
	return nil
}

func newUpgrader() websocket.Upgrader {
	return websocket.Upgrader{
		HandshakeTimeout: handshakeTimeout,
		ReadBufferSize:   readBufferBytes,
		WriteBufferPool:  noBuffers{},
		CheckOrigin:      func(*http.Request) bool { return true },
		Error: func(w http.ResponseWriter, r *http.Request, status int, reason error) {
			http.Error(w, fmt.Sprintf("%v\nThis is a websocket: connect to %s", reason, subscribeURL(r)), status)
		},
	}
}

// readBufferBytes is gorilla's read buffer; clients send little.
const readBufferBytes = 1 << 10

// noBuffers keeps gorilla from holding a write buffer for each connection: it never writes
// messages.
type noBuffers struct{}

func (noBuffers) Get() any { return nil }
func (noBuffers) Put(any)  {}
