package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
)

// refusalPatience is how long a client that has been served goes on asking a server that refuses
// it. The next instance behind the same address may not.
const refusalPatience = time.Minute

// healthyAfter is how long a connection must last to count as a success even if nothing came of it.
const healthyAfter = 10 * time.Second

// Client is one subscription. Events is for one goroutine at a time; the other methods are safe for
// concurrent use.
type Client struct {
	cfg      Config
	servers  []*server
	v2       bool // they are of Jetstream v2's wire
	header   http.Header
	http     *http.Client // for what is asked once in a long while
	probes   *http.Client // keeps its connections
	counts   counts
	progress *progress
	patience time.Duration // refusalPatience
	hooks    testHooks

	running atomic.Bool
	parser  parser  // of Events
	decoder decoder // of Events
	served  bool    // of Events: a message has come, on any connection
	last    *server // of Events: that of the last connection; nil: none was made

	mu       sync.Mutex
	options  Options
	version  int      // of options
	conn     *conn    // nil: none
	selector selector // only Events changes lenient, and reads it without mu
}

// testHooks is what tests replace.
type testHooks struct {
	dial  func(ctx context.Context, network, address string) (net.Conn, error)
	proxy func(*http.Request) (*url.URL, error)
}

// New makes a client. It connects when its events are asked for.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Client{
		cfg: cfg, header: cfg.Header.Clone(), patience: refusalPatience, options: cfg.Options.clone(),
		hooks: testHooks{dial: (&net.Dialer{}).DialContext, proxy: http.ProxyFromEnvironment},
	}
	for i, text := range cfg.urls() {
		u, err := SubscribeURL(text)
		if err != nil {
			return nil, fmt.Errorf("client: field URL: %w", err)
		}
		if u.User != nil {
			return nil, fmt.Errorf("client: field URL: %s has a user name, which belongs in Header", u.Redacted())
		}
		if i > 0 && isV2(u) != c.v2 {
			return nil, fmt.Errorf("client: field URLs: %s is not of the same wire as %s", u.Redacted(), c.servers[0].subscribe.Redacted())
		}
		c.v2 = isV2(u)
		c.servers = append(c.servers, &server{
			subscribe: u, backoff: newBackoff(cfg.MinBackoff, cfg.MaxBackoff), builtIn: cfg.Compress && !c.v2 && !u.Query().Has(dictionaryParameter),
		})
	}
	if c.v2 {
		if err := cfg.validateV2(); err != nil {
			return nil, err
		}
	}
	c.selector = newSelector(len(c.servers), cfg.Lag, cfg.MaxBackoff)
	c.progress = newProgress(cfg.Cursor, cfg.Overlap, c.v2)
	c.progress.joinByTime(c.several() && !c.v2)
	if c.header == nil {
		c.header = make(http.Header)
	}
	if c.header.Get("User-Agent") == "" {
		c.header.Set("User-Agent", cfg.UserAgent)
	}
	transport := c.transport()
	transport.DisableKeepAlives = true
	c.http, c.probes = &http.Client{Transport: transport}, &http.Client{Transport: c.transport()}
	c.decoder = decoder{
		subscribe: c.servers[0].subscribe, v2: c.v2, dir: cfg.DictionaryDir, given: cfg.Dictionaries, known: slices.Clone(cfg.Dictionaries), header: c.header,
		http: c.http, fetches: func() { c.counts.fetches.Add(1) },
	}
	return c, nil
}

// transport returns one for what is asked besides. It speaks HTTP/1.1, where a request that times
// out ends its connection, which may be dead.
func (c *Client) transport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.TLSClientConfig = c.cfg.TLS
	t.Protocols = new(http.Protocols)
	t.Protocols.SetHTTP1(true)
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		return c.hooks.dial(ctx, network, address)
	}
	t.Proxy = func(r *http.Request) (*url.URL, error) { return c.hooks.proxy(r) }
	t.OnProxyConnectResponse = func(_ context.Context, proxy *url.URL, _ *http.Request, resp *http.Response) error {
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		return fmt.Errorf("through the proxy %s: %s", proxy.Host, strings.TrimSpace(resp.Status))
	}
	return t
}

// Cursor returns where a subscription starts that goes on after the event that was given out last.
// It is Config.Cursor for another client, at another time. It is a position; from a plain Jetstream
// the event's time_us, which is inclusive; "" if there is nothing to go on from. Within the loop it
// covers the event at hand. After the loop it covers a later position if the server has said that
// nothing that is wanted came before that.
func (c *Client) Cursor() string {
	return c.progress.current()
}

// Update replaces the options. They are in force from some later event on, and over all
// connections. An error means that nothing has changed; a server that does not like them ends the
// iteration. Jetstream v2's wire takes them over the next connection only: this one ends.
func (c *Client) Update(o Options) error {
	if err := o.validate(); err != nil {
		return fmt.Errorf("client: update: %w", err)
	}
	c.mu.Lock()
	c.options = o.clone()
	c.version++
	conn := c.conn
	c.mu.Unlock()
	c.progress.changed()
	switch {
	case conn == nil:
	case c.v2:
		c.end(conn, errNewOptions) // the next one asks for them
	default:
		c.sendOptions(conn)
	}
	return nil
}

// sendOptions sends the options over k. It takes the newest when it may write to k, so that the
// update that the server gets last is the newest.
func (c *Client) sendOptions(k *conn) {
	k.writeMu.Lock()
	defer k.writeMu.Unlock()
	c.mu.Lock()
	o := c.options
	c.mu.Unlock()
	q := k.server.subscribe.Query() // the URL's own filter holds, too
	o.addTo(q, "wantedCollections", "wantedDids")
	if err := k.writeLocked(updateMessage(q)); err != nil {
		c.end(k, fmt.Errorf("the connection broke: send the options: %w", err))
	}
}

// updateMessage returns the update for the options that a query has.
func updateMessage(q url.Values) []byte {
	type payload struct {
		Collections []string `json:"wantedCollections"`
		DIDs        []string `json:"wantedDids"`
		MaxBytes    int      `json:"maxMessageSizeBytes"`
		Subjects    []string `json:"wantedSubjects,omitempty"`
		SubjectDIDs []string `json:"wantedSubjectDids,omitempty"`
		Sources     []string `json:"wantedSources,omitempty"`
	}
	list := func(name string) []string {
		return slices.DeleteFunc(append([]string{}, q[name]...), func(v string) bool { return v == "" })
	}
	n, _ := strconv.Atoi(q.Get("maxMessageSizeBytes")) // as a server has it
	msg, _ := json.Marshal(struct {                    // strings and numbers always can
		Type    string  `json:"type"`
		Payload payload `json:"payload"`
	}{"options_update", payload{list("wantedCollections"), list("wantedDids"), max(n, 0),
		list("wantedSubjects"), list("wantedSubjectDids"), list("wantedSources")}})
	return msg
}

// Events connects, and yields the events from the cursor on, each once and in order, over as many
// connections as that takes. It ends, with the error last, when ctx is done (its cause), or when
// the server refuses what is asked for (*RefusedError, *ClosedError). It also ends when events
// cannot be read (ErrDictionary, ErrTooLarge, ErrUnreadable). It ends without one when the loop is
// left; a later call then goes on with the next event.
func (c *Client) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		if !c.running.CompareAndSwap(false, true) {
			yield(Event{}, ErrRunning)
			return
		}
		defer c.running.Store(false)
		defer c.decoder.close()
		if err := c.run(ctx, yield); !errors.Is(err, errLeft) {
			yield(Event{}, err)
		}
	}
}

// run connects again and again. Its error is never nil.
func (c *Client) run(ctx context.Context, yield func(Event, error) bool) error {
	if c.several() {
		watched, stop := context.WithCancel(ctx)
		var watching sync.WaitGroup
		watching.Go(func() { c.watch(watched) })
		defer watching.Wait()
		defer stop()
	}
	refusedSince, unreadableAt := time.Time{}, "never"
	i, wait := c.selector.current, time.Duration(0)
	for {
		s := c.servers[i]
		useful, err := c.connection(ctx, i, yield)
		if len(err.Error()) > maxErrorBytes {
			err = &longError{err}
		}
		if errors.Is(err, ErrUnreadable) {
			c.decoder.forget()
		}
		switch {
		case errors.Is(err, errLeft):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case c.cfg.NoReconnect:
			return err
		}
		if useful {
			refusedSince = time.Time{}
		}
		if errors.Is(err, ErrUnreadable) {
			if at := c.Cursor(); at != unreadableAt {
				unreadableAt = at
			} else {
				return err // it was no accident
			}
		}
		now := time.Now()
		c.leave(i, useful, err, now)
		if isPermanent(err) {
			if refusedSince.IsZero() {
				refusedSince = now
			}
			if long := now.Sub(refusedSince); c.refusedFor(long) && (!c.served || !isRefusal(err) || long >= c.patience) {
				return err
			}
		}
		if c.several() {
			c.probeAll(ctx, probeTimeout)
			now = time.Now()
		}
		i, wait = c.next(now)
		c.cfg.OnWait()
		c.report(s, err, wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// connection reads one connection to its end. It says whether the connection was of use: the
// subscription came further, or it lasted.
func (c *Client) connection(ctx context.Context, i int, yield func(Event, error) bool) (useful bool, err error) {
	k, err := c.connect(ctx, i)
	if err != nil {
		c.servers[i].failures++
		c.counts.failures.Add(1)
		return false, err
	}
	made, from := time.Now(), c.Cursor() // an attempt that fails may take long, too
	c.counts.connects.Add(1)
	if s := c.servers[i]; s != c.last {
		if c.last != nil {
			c.counts.switches.Add(1)
		}
		c.last = s
	}
	defer func() {
		c.mu.Lock()
		c.conn = nil
		c.mu.Unlock()
		k.close()
		c.counts.disconnects.Add(1)
		useful = c.Cursor() != from || time.Since(made) > healthyAfter
	}()
	defer context.AfterFunc(ctx, func() { k.ws.Close() })()
	for ctx.Err() == nil { // what has been read ahead would go on
		kind, msg, err := k.read()
		if err != nil {
			return false, c.reason(k, err)
		}
		c.served = true
		c.counts.bytes.Add(int64(len(msg)))
		var own []byte
		if kind == websocket.BinaryMessage {
			if own, err = c.decoder.decode(ctx, msg); err != nil {
				return false, err
			}
		} else {
			own = slices.Clone(msg)
		}
		if err := c.give(k, own, yield); err != nil {
			return false, err
		}
	}
	return false, context.Cause(ctx)
}

// connect makes a connection to server i that has the newest options.
func (c *Client) connect(ctx context.Context, i int) (*conn, error) {
	c.mu.Lock()
	o, version, kind := c.options, c.version, c.servers[i].kind
	c.mu.Unlock()
	s := c.servers[i]
	attempt, cancel := c.attempt(ctx, s)
	defer cancel()
	if kind == kindUnknown && c.several() {
		if err := c.probe(attempt, c.http, i); err != nil {
			return nil, err
		}
		return c.connect(ctx, i)
	}
	if kind == kindJetstream && c.v2 {
		return nil, errOwnSeqs
	}
	c.decoder.use(s.subscribe)
	query, hello, err := c.query(attempt, s, kind, o)
	if err != nil {
		return nil, err
	}
	k, err := c.dial(attempt, s, query)
	if err != nil {
		if c.yields(s, err) {
			return c.connect(ctx, i)
		}
		return nil, err
	}
	switch {
	case kind == kindMillrace:
		k.live.heartbeat = c.cfg.Heartbeat
	case !c.v2: // whose events do not show whether the server is a millrace
		k.live.heartbeat = s.heartbeat
	}
	c.decoder.refused = false
	c.mu.Lock()
	c.conn = k
	changed := c.version != version
	c.mu.Unlock()
	switch {
	case changed && c.v2:
		c.end(k, errNewOptions) // as Update does
	case hello || changed:
		c.sendOptions(k)
	}
	return k, nil
}

// query returns what the next connection asks for. If hello is set an update with the options must
// be sent first.
func (c *Client) query(ctx context.Context, s *server, kind serverKind, o Options) (query string, hello bool, err error) {
	base, cursor := s.subscribe.Query(), c.progress.resume(kind == kindJetstream)
	switch {
	case c.v2:
		if c.cfg.Compress && !base.Has(dictionaryParameter) {
			id, err := c.decoder.current(ctx)
			if err != nil {
				return "", false, err
			}
			base.Set(dictionaryParameter, strconv.FormatUint(uint64(id), 10))
		}
		return c.cfg.queryV2(base, o, cursor), false, nil
	case s.builtIn:
		base.Set(dictionaryParameter, strconv.Itoa(builtInDictionary))
	}
	cfg := c.cfg
	cfg.Strict = cfg.Strict || cursor != "" && c.strict()
	query, hello = cfg.query(base, o, cursor)
	return query, hello, nil
}

// yields says whether the client asks for less, at once, since the server refused what it asked.
func (c *Client) yields(s *server, err error) bool {
	switch {
	case s.builtIn && strings.Contains(badRequest(err), "unknown "+dictionaryParameter):
		s.builtIn = false // an older millrace, which lacks the built-in one
		return true
	case c.v2 && strings.HasPrefix(badRequest(err), v2UnknownDictionary+": "):
		return c.decoder.outdated()
	case c.v2 && strings.HasPrefix(badRequest(err), v2CursorTooOld+": "):
		return c.progress.clamp(c.strict())
	}
	return false
}

// give passes one message on: to the loop, or to Config.OnInfo. raw is the receiver's.
func (c *Client) give(k *conn, raw []byte, yield func(Event, error) bool) error {
	if c.v2 {
		return c.giveV2(k, raw, yield)
	}
	if !isEvent(raw) {
		return c.inform(k, raw)
	}
	e, err := c.parser.parse(raw)
	if err != nil {
		return fmt.Errorf("%w: %w: %.200q", ErrUnreadable, err, raw)
	}
	c.expectHeartbeats(k, e.Cursor != "")
	return c.offer(e, yield)
}

// offer gives the event to the loop, unless that has had it.
func (c *Client) offer(e Event, yield func(Event, error) bool) error {
	if !c.progress.take(&e) {
		c.counts.duplicates.Add(1)
		return nil
	}
	if len(c.cfg.Kinds) > 0 && !slices.Contains(c.cfg.Kinds, e.Kind) {
		return nil // a plain Jetstream sends all kinds
	}
	c.counts.events.Add(1)
	if !yield(e, nil) {
		return errLeft
	}
	return nil
}

// expectHeartbeats notes whether the server sends them: millraces do, plain Jetstreams do not.
func (c *Client) expectHeartbeats(k *conn, yes bool) {
	k.server.heartbeat = 0
	if yes {
		k.server.heartbeat = c.cfg.Heartbeat
	}
	k.live.heartbeat = k.server.heartbeat
}

// isEvent distinguishes events from what a millrace says besides: that begins with its kind.
func isEvent(raw []byte) bool {
	m := members{b: raw}
	name, value, _, ok := m.next()
	return !ok || string(name) != "kind" || string(value) != `"info"` && string(value) != `"heartbeat"`
}

// inform takes an info message or a heartbeat.
func (c *Client) inform(k *conn, raw []byte) error {
	i, err := parseInfo(raw)
	if err != nil {
		return fmt.Errorf("%w: %w: %.200q", ErrUnreadable, err, raw)
	}
	c.expectHeartbeats(k, true)
	switch i.Name {
	case InfoLive:
		c.progress.live(i.Cursor, i.TimeUS, time.Now())
	case InfoHeartbeat, InfoGoingAway:
		c.progress.reach(i.Cursor, i.TimeUS)
	}
	c.cfg.OnInfo(i)
	return nil
}
