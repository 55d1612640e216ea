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
	cfg       Config
	subscribe *url.URL
	v2        bool // it is of Jetstream v2's wire
	header    http.Header
	counts    counts
	progress  *progress
	patience  time.Duration // refusalPatience
	hooks     testHooks

	running atomic.Bool
	parser  parser  // of Events
	decoder decoder // of Events
	served  bool    // of Events: a message has come, on any connection
	builtIn bool    // Events': the built-in dictionary is asked for
	// Events': the server has heartbeats; 0: it has none, as far as is known.
	heartbeat time.Duration

	mu      sync.Mutex
	options Options
	version int   // of options
	conn    *conn // nil: none
}

// testHooks is what tests replace.
type testHooks struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// New makes a client. It connects when its events are asked for.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	u, err := SubscribeURL(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("client: field URL: %w", err)
	}
	v2 := isV2(u)
	if v2 {
		if err := cfg.validateV2(); err != nil {
			return nil, err
		}
	}
	if cfg.OnDisconnect == nil {
		cfg.OnDisconnect = func(err error, wait time.Duration) {
			cfg.Logger.Warn("not connected to the event stream", "url", u.Redacted(), "err", err, "retry_in", wait)
		}
	}
	c := &Client{
		cfg: cfg, subscribe: u, v2: v2, header: cfg.Header.Clone(), builtIn: cfg.Compress && !v2 && !u.Query().Has(dictionaryParameter),
		progress: newProgress(cfg.Cursor, cfg.Overlap, v2), patience: refusalPatience, options: cfg.Options.clone(),
		hooks: testHooks{dial: (&net.Dialer{}).DialContext},
	}
	if c.header == nil {
		c.header = make(http.Header)
	}
	if c.header.Get("User-Agent") == "" {
		c.header.Set("User-Agent", cfg.UserAgent)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = cfg.TLS
	transport.DisableKeepAlives = true // it is used once in a long while
	c.decoder = decoder{
		subscribe: u, v2: v2, dir: cfg.DictionaryDir, known: slices.Clone(cfg.Dictionaries), header: c.header,
		http: &http.Client{Transport: transport}, fetches: func() { c.counts.fetches.Add(1) },
	}
	return c, nil
}

// Cursor returns where a subscription starts that goes on after the event that was given out last.
// It is Config.Cursor for another client, at another time. It is a position; from a plain Jetstream
// the event's time_us, which is inclusive; "" if there is nothing to go on from. Within the loop it
// covers the event at hand. After the loop it covers a later position if the server has said that
// nothing that is wanted came before that.
func (c *Client) Cursor() string {
	cursor, _ := c.progress.current()
	return cursor
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
		return nil
	case c.v2:
		conn.ws.Close() // the next one asks for them
		return nil
	}
	return c.tell(conn)
}

// tell sends the options over k. They are the newest when it is k's turn to be written to, so that
// what the server hears last is never older.
func (c *Client) tell(k *conn) error {
	k.writeMu.Lock()
	defer k.writeMu.Unlock()
	c.mu.Lock()
	o := c.options
	c.mu.Unlock()
	msg, err := updateMessage(o)
	if err != nil {
		return err
	}
	k.writeLocked(msg)
	return nil
}

func updateMessage(o Options) ([]byte, error) {
	type payload struct {
		Collections []string `json:"wantedCollections"`
		DIDs        []string `json:"wantedDids"`
		MaxBytes    int      `json:"maxMessageSizeBytes"`
		Subjects    []string `json:"wantedSubjects,omitempty"`
		SubjectDIDs []string `json:"wantedSubjectDids,omitempty"`
		Sources     []string `json:"wantedSources,omitempty"`
	}
	return json.Marshal(struct {
		Type    string  `json:"type"`
		Payload payload `json:"payload"`
	}{"options_update", payload{append([]string{}, o.Collections...), append([]string{}, o.DIDs...), o.MaxMessageBytes,
		o.Subjects, o.SubjectDIDs, o.Sources}})
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
	b := newBackoff(c.cfg.MinBackoff, c.cfg.MaxBackoff)
	refusedSince, unreadableAt := time.Time{}, "never"
	for {
		began := time.Now()
		messages, err := c.connection(ctx, yield)
		switch {
		case errors.Is(err, errLeft):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case c.cfg.NoReconnect:
			return err
		}
		if messages > 0 || time.Since(began) > healthyAfter {
			b.reset()
			refusedSince = time.Time{}
		}
		if errors.Is(err, ErrUnreadable) {
			if at := c.Cursor(); at != unreadableAt {
				unreadableAt = at
			} else {
				return err // it was no accident
			}
		}
		if isPermanent(err) {
			if refusedSince.IsZero() {
				refusedSince = time.Now()
			}
			if !c.served || !isRefusal(err) || time.Since(refusedSince) >= c.patience {
				return err
			}
		}
		wait := max(b.wait(), retryAfter(err))
		c.cfg.OnWait()
		c.cfg.OnDisconnect(err, wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// connection reads one connection to its end. It returns how many messages came.
func (c *Client) connection(ctx context.Context, yield func(Event, error) bool) (messages int, err error) {
	k, err := c.connect(ctx)
	if k == nil {
		c.counts.failures.Add(1)
		return 0, err
	}
	c.counts.connects.Add(1)
	defer func() {
		c.mu.Lock()
		c.conn = nil
		c.mu.Unlock()
		k.close()
		c.counts.disconnects.Add(1)
	}()
	defer context.AfterFunc(ctx, func() { k.ws.Close() })()
	if err != nil {
		return 0, err
	}
	for {
		kind, msg, err := k.read()
		if err != nil {
			return k.live.messages, err
		}
		c.served = true
		c.counts.bytes.Add(int64(len(msg)))
		var own []byte
		if kind == websocket.BinaryMessage {
			if own, err = c.decoder.decode(ctx, msg); err != nil {
				return k.live.messages, err
			}
		} else {
			own = slices.Clone(msg)
		}
		if err := c.give(k, own, yield); err != nil {
			return k.live.messages, err
		}
	}
}

// connect makes a connection that has the newest options. One that is returned with an error must
// be closed, too.
func (c *Client) connect(ctx context.Context) (*conn, error) {
	c.mu.Lock()
	o, version := c.options, c.version
	c.mu.Unlock()
	query, hello, err := c.query(ctx, o)
	if err != nil {
		return nil, err
	}
	k, err := c.dial(ctx, query)
	if err != nil {
		if c.yields(err) {
			return c.connect(ctx)
		}
		return nil, err
	}
	if !c.v2 { // whose events do not say whether the server is the same still
		k.live.heartbeat = c.heartbeat
	}
	c.decoder.refused = false
	c.mu.Lock()
	c.conn = k
	changed := c.version != version
	c.mu.Unlock()
	switch {
	case changed && c.v2:
		k.ws.Close() // as Update does
	case hello || changed:
		return k, c.tell(k)
	}
	return k, nil
}

// query returns what the next connection asks for. If hello is set an update with the options must
// be sent first.
func (c *Client) query(ctx context.Context, o Options) (query string, hello bool, err error) {
	base := c.subscribe.Query()
	switch {
	case c.v2:
		if c.cfg.Compress && !base.Has(dictionaryParameter) {
			id, err := c.decoder.current(ctx)
			if err != nil {
				return "", false, err
			}
			base.Set(dictionaryParameter, strconv.FormatUint(uint64(id), 10))
		}
		return c.cfg.queryV2(base, o, c.progress.resume()), false, nil
	case c.builtIn:
		base.Set(dictionaryParameter, strconv.Itoa(builtInDictionary))
	}
	query, hello = c.cfg.query(base, o, c.progress.resume())
	return query, hello, nil
}

// yields says whether the client asks for less, at once, since the server refused what it asked.
func (c *Client) yields(err error) bool {
	switch {
	case c.builtIn && lacksDictionary(err):
		c.builtIn = false // an older millrace, which lacks the built-in one
		return true
	case c.v2 && refusedAs(err, v2UnknownDictionary):
		return c.decoder.outdated()
	case c.v2 && !c.cfg.Strict && refusedAs(err, v2CursorTooOld):
		return c.progress.clamp()
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
	c.heartbeat = 0
	if yes {
		c.heartbeat = c.cfg.Heartbeat
	}
	k.live.heartbeat = c.heartbeat
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
