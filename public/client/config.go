package client

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits of the wire: a server refuses more.
const (
	MaxCollections = 100
	MaxDIDs        = 10_000
	MaxSubjects    = 10_000 // and as many SubjectDIDs
	MaxSources     = 100
)

// Options is the part of a subscription that Client.Update replaces while it runs.
type Options struct {
	Collections     []string // exact NSIDs or "prefix.*", at most MaxCollections; empty: all
	DIDs            []string // at most MaxDIDs; empty: all
	MaxMessageBytes int      // events that are larger as sent are left out; 0: no limit

	// Commits are wanted that refer to one of Subjects, or to one of SubjectDIDs or a record of
	// theirs, and from one of Sources. A delete is wanted by what it deletes. Empty: all. A
	// millrace that has references knows them; a plain Jetstream ignores them, and sends all.
	Subjects    []string // DIDs and AT URIs, at most MaxSubjects
	SubjectDIDs []string // at most MaxSubjects
	Sources     []string // "app.bsky.feed.like:subject.uri", at most MaxSources
}

func (o Options) validate() error {
	switch {
	case len(o.Collections) > MaxCollections:
		return fmt.Errorf("%d collections, a server takes %d", len(o.Collections), MaxCollections)
	case len(o.DIDs) > MaxDIDs:
		return fmt.Errorf("%d DIDs, a server takes %d", len(o.DIDs), MaxDIDs)
	case len(o.Subjects) > MaxSubjects:
		return fmt.Errorf("%d subjects, a server takes %d", len(o.Subjects), MaxSubjects)
	case len(o.SubjectDIDs) > MaxSubjects:
		return fmt.Errorf("%d DIDs of subjects, a server takes %d", len(o.SubjectDIDs), MaxSubjects)
	case len(o.Sources) > MaxSources:
		return fmt.Errorf("%d sources, a server takes %d", len(o.Sources), MaxSources)
	case o.MaxMessageBytes < 0:
		return fmt.Errorf("MaxMessageBytes is negative: %d", o.MaxMessageBytes)
	}
	return nil
}

func (o Options) clone() Options {
	for _, list := range []*[]string{&o.Collections, &o.DIDs, &o.Subjects, &o.SubjectDIDs, &o.Sources} {
		*list = slices.Clone(*list)
	}
	return o
}

// Config is what New needs. URL or URLs must be set; zeros elsewhere stand for the defaults named.
type Config struct {
	// URL is of ws, wss, http or https; a missing scheme is ws, a missing path /subscribe. If it
	// ends with V2Path the wire is Jetstream v2's.
	URL string
	// URLs are further servers, of the same wire: the client reads one, and goes to another when
	// that fails, is silent, or lags. Without URL they are all there are.
	URLs []string
	// Lag is for several servers: one that has not reached a position that another reported so long
	// ago is left. All are asked four times in Lag, at /cursors. 10 s.
	Lag time.Duration

	Options Options // what is asked for first
	// Kinds is which kinds come. Empty: commit, identity and account, on v2's wire sync, too.
	Kinds []Kind
	// References asks for Event.References and DeletedReferences, of a millrace that has them.
	References bool

	// Cursor is where to start: a position ("<stream>-<seq>-<op>", exclusive; on Jetstream v2's
	// wire a seq), Unix microseconds (inclusive; "0": the oldest event), or "" for what comes from
	// now on.
	Cursor string
	// Strict makes a cursor that is older than the server's log, or than the references that are
	// wanted, an error; "0" only than the references. Else the subscription starts at the oldest
	// event, and OnInfo gets an InfoClamped. Jetstreams send no message.
	Strict bool

	// Compress asks for zstd: of a millrace with its built-in dictionary, on v2's wire with the
	// server's, unless the URL names another in zstdDictionary=<id>. Dictionaries are fetched from
	// the server by their IDs, once, and kept: in memory, and in DictionaryDir if that is set (made
	// if absent). Dictionaries are files of those that are known beforehand. A plain Jetstream uses
	// its own, and does not serve it: package millrace/dict/jetstream has the file.
	Compress      bool
	DictionaryDir string
	Dictionaries  [][]byte

	// OnInfo gets info messages and heartbeats, in their place among the events. OnWait is called
	// before the client waits for the network, if events have come since the last wait; output can
	// be flushed then. OnDisconnect is called each time a connection ends or cannot be made, with
	// the reason and the wait before the next attempt. Of several servers the reason begins with
	// the URL. nil logs both to Logger as a warning. All three run within the iteration, which goes
	// on when they return.
	OnInfo       func(Info)
	OnWait       func()
	OnDisconnect func(err error, wait time.Duration)

	// NoReconnect ends the iteration with the first connection, and its error.
	NoReconnect bool
	// MinBackoff is the wait before the second attempt, 500 ms; it doubles up to MaxBackoff, 30 s.
	// Each is on average: a wait takes half to one and a half of it. A server's Retry-After may ask
	// for more.
	MinBackoff time.Duration
	MaxBackoff time.Duration

	// Heartbeat is an info message that is asked of the server, in whole seconds: 10 s; 2 s of
	// several servers. With nothing heard for Silence a connection is given up: 45 s; with several
	// servers three heartbeats.
	Heartbeat time.Duration
	Silence   time.Duration
	// Overlap is how far before the last event a plain Jetstream is asked to go back after a break.
	// Another instance may have stamped the same events a little later. What comes twice is
	// dropped. 5 s.
	Overlap time.Duration

	TLS       *tls.Config // nil: the defaults
	Header    http.Header // sent with each handshake
	UserAgent string      // "millrace-client"

	Logger *slog.Logger // of disconnects, without OnDisconnect; nil: slog.Default()
}

// withDefaults returns c with its zeros filled, but for OnDisconnect.
func (c Config) withDefaults() Config {
	c.MinBackoff = cmp.Or(c.MinBackoff, 500*time.Millisecond)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, max(c.MinBackoff, 30*time.Second))
	if len(c.urls()) > 1 {
		c.Heartbeat = cmp.Or(c.Heartbeat, 2*time.Second)
		c.Silence = cmp.Or(c.Silence, silentHeartbeats*c.Heartbeat)
	}
	c.Heartbeat = cmp.Or(c.Heartbeat, 10*time.Second)
	c.Silence = cmp.Or(c.Silence, 45*time.Second)
	c.Overlap = cmp.Or(c.Overlap, 5*time.Second)
	c.Lag = cmp.Or(c.Lag, 10*time.Second)
	c.UserAgent = cmp.Or(c.UserAgent, "millrace-client")
	if c.OnInfo == nil {
		c.OnInfo = func(Info) {}
	}
	if c.OnWait == nil {
		c.OnWait = func() {}
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// urls returns all servers; one without a name is what an empty configuration has.
func (c *Config) urls() []string {
	if c.URL == "" && len(c.URLs) > 0 {
		return c.URLs
	}
	return append([]string{c.URL}, c.URLs...)
}

// validate names the first field that cannot be used. New checks URL, which it parses.
func (c Config) validate() error {
	if err := c.Options.validate(); err != nil {
		return fmt.Errorf("client: field Options: %w", err)
	}
	for _, k := range c.Kinds {
		if !slices.Contains(AllKinds(), k) {
			return fmt.Errorf("client: field Kinds: %.40q is none of %v", k, AllKinds())
		}
	}
	if c.Cursor != "" && !isCursor(c.Cursor) {
		return fmt.Errorf("client: field Cursor: %.40q is neither Unix microseconds nor <stream>-<seq>-<op>", c.Cursor)
	}
	if c.Heartbeat%time.Second != 0 || c.Heartbeat > time.Hour {
		return fmt.Errorf("client: field Heartbeat: %v is not a number of seconds up to an hour", c.Heartbeat)
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"MinBackoff", c.MinBackoff}, {"MaxBackoff", c.MaxBackoff}, {"Heartbeat", c.Heartbeat},
		{"Silence", c.Silence}, {"Overlap", c.Overlap}, {"Lag", c.Lag},
	} {
		if f.value < 0 {
			return fmt.Errorf("client: field %s: %v is negative", f.name, f.value)
		}
	}
	return nil
}

// SubscribeURL completes what a person types (a host, a base URL, or the whole of it) to the URL of
// a server's subscriptions.
func SubscribeURL(s string) (*url.URL, error) {
	if !strings.Contains(s, "://") {
		s = "ws://" + s
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "ws", "wss":
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	default:
		return nil, fmt.Errorf("%q is neither ws, wss, http nor https", u.Scheme)
	}
	if u.Host == "" {
		return nil, fmt.Errorf("%q names no host", s)
	}
	if _, err := url.ParseQuery(u.RawQuery); err != nil { // of which u.Query would leave a part out
		return nil, fmt.Errorf("its query: %w", err)
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/subscribe"
	}
	return u, nil
}

// endpoint returns the URL of another of the server's endpoints.
func endpoint(subscribe *url.URL, path string) string {
	u := *subscribe
	u.Scheme = strings.Replace(u.Scheme, "ws", "http", 1)
	base := strings.TrimSuffix(strings.TrimSuffix(u.Path, "/subscribe"), V2Path)
	u.Path, u.RawQuery = base+path, ""
	return u.String()
}

// maxQueryBytes is the longest query that is sent in a URL: proxies refuse long ones. What a longer
// one asks for is sent as an options update.
const maxQueryBytes = 4 << 10

// addTo adds what both wires ask for. A Jetstream ignores what it does not know.
func (c *Config) addTo(q url.Values, kinds, cursor string) {
	q.Set("heartbeat", strconv.Itoa(int(c.Heartbeat/time.Second)))
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	if c.References {
		q.Set("references", "true")
	}
	for _, k := range c.Kinds {
		q.Add(kinds, string(k))
	}
}

// addTo adds the options, of which two have names of the wire.
func (o *Options) addTo(q url.Values, collections, dids string) {
	q[collections] = append(q[collections], o.Collections...)
	q[dids] = append(q[dids], o.DIDs...)
	q["wantedSubjects"] = append(q["wantedSubjects"], o.Subjects...)
	q["wantedSubjectDids"] = append(q["wantedSubjectDids"], o.SubjectDIDs...)
	q["wantedSources"] = append(q["wantedSources"], o.Sources...)
	if o.MaxMessageBytes > 0 {
		q.Set("maxMessageSizeBytes", strconv.Itoa(o.MaxMessageBytes))
	}
}

// query returns q, which it changes, with what a connection asks for. If hello is set the options
// are left out, and an update with them must be sent first.
func (c *Config) query(q url.Values, o Options, cursor string) (query string, hello bool) {
	q.Set("extended", "true")
	c.addTo(q, "wantedKinds", cursor)
	if c.Compress {
		q.Set("compress", "true")
	}
	if c.Strict {
		q.Set("strict", "true")
	}
	q.Del("requireHello") // of the URL: an update is sent if, and only if, hello is set
	short := q.Encode()
	o.addTo(q, "wantedCollections", "wantedDids")
	if long := q.Encode(); len(long) <= maxQueryBytes {
		return long, false
	}
	return short + "&requireHello=true", true
}
