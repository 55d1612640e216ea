package main

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/dict/jetstream"
	"millrace/public/client"
	"millrace/replay"
)

// defaultServer is where a server listens by default.
const defaultServer = "ws://localhost:6008"

const tailAbout = `It follows a millrace, or any Jetstream, from now on, or from --cursor, --since or --cursor-file on. A connection
that breaks is made again, with growing pauses, and goes on exactly where it was: nothing is missing and nothing comes
twice, also if the server was started again or another instance answers. (A Jetstream that is no millrace has only times to
go by: what comes twice after a break is dropped, but what it loses is lost.)

  millrace tail --collections app.bsky.feed.post                       new posts, as they come
  millrace tail --since 2h --until now --collections app.bsky.graph.*  the last two hours of follows, blocks and lists
  millrace tail --dids did:plc:… --cursor 0 | jq .commit.record        all there is of one account
  millrace tail --subject-dids did:plc:… --references                  what others do about it: likes, replies, follows; also undone
  millrace tail --cursor-file at.cursor >>events.jsonl                 on from where the last run ended
  millrace tail --url wss://jetstream2.us-east.bsky.network            somebody else's server
  millrace tail --url wss://a.example --url wss://b.example            two instances behind one relay

Output is a line of JSON for each event, byte for byte what a subscriber gets; on a terminal a readable line, unless
--json is given. Colours are left out if NO_COLOR is set. While old events are read and standard error is a
terminal, a line there says how far that is.

--since, --until and a time in general: 2h, 90m, 3d (so long ago), 2026-11-20, "2026-11-20 21:30", 2026-11-20T21:30:00Z, or Unix
microseconds. By this machine's clock; without a zone, in its time zone. Both ends are inclusive. Each server has times of
its own: windows that must adjoin need the same single --url, or positions (--cursor).

With a pipe, --cursor-file says how far the pipe took the output: what a reader that ends had not handled is lost to the
next run. Such a reader stores the cursor of the last --extended event that it handled, and gives it as --cursor.

Exit codes: 0 done, or interrupted when there was no end to wait for, or the reader of the pipe has left;
130 interrupted before --count or --until was reached; 1 an error, with the server's reason; 2 wrong usage.`

func tailCommand() *command { return (&tailConfig{now: time.Now()}).command() }

// command is the one that sets c and prints events.
func (c *tailConfig) command() *command {
	fs := newFlags("tail")
	c.register(fs)
	fs.Lookup("dictionary-cache").DefValue = "the user's" // where that is differs
	return &command{
		name: "millrace tail", summary: "print events of a running server, or of any Jetstream, a line each", about: tailAbout,
		flags: fs,
		groups: []flagGroup{
			{"What to read", []string{"url", "v2", "collections", "dids", "kinds", "subjects", "subject-dids", "sources", "max-message-bytes"}},
			{"Where to start and end", []string{"since", "until", "cursor", "cursor-file", "strict", "count", "once"}},
			{"What to print", []string{"json", "pretty", "extended", "references"}},
			{"Compression", []string{"compress", "zstd-dictionary", "dictionary-cache"}},
		},
		check: c.check, run: c.run,
	}
}

// tailConfig is what the flags of `millrace tail` set.
type tailConfig struct {
	now time.Time // times count from then

	client     client.Config // what its fields are named for; Cursor may come of --since
	v2         bool
	kinds      list
	since      string
	until      string
	cursorFile string
	dictionary string
	extended   bool
	json       bool
	pretty     bool
	count      int64

	end end // what --until says
}

func (c *tailConfig) register(fs *flag.FlagSet) {
	fs.Func("url", "server `URL`, or host and port; the path /subscribe is added where it is missing. May be repeated, for instances behind\none relay, or Jetstreams: when one fails, is silent or lags, another takes over where it ended", func(s string) error {
		c.client.URLs = append(c.client.URLs, s)
		return nil
	})
	fs.Lookup("url").DefValue = defaultServer
	fs.BoolVar(&c.v2, "v2", false, "speak Jetstream v2's wire: --url gets its path, and a cursor is a seq. It reports no gaps: GET /cursors of\na millrace lists them")
	fs.Var((*list)(&c.client.Options.Collections), "collections", "only these (`NSID`s or prefix.*, separated by commas, may be repeated); identity and account events still come,\nsee --kinds")
	fs.Var((*list)(&c.client.Options.DIDs), "dids", "only these `DID`s (separated by commas, may be repeated)")
	fs.Var(&c.kinds, "kinds", "only these kinds (`KIND`s): commit, identity, account, sync; left out: all, but sync only with --v2")
	fs.Var((*list)(&c.client.Options.Subjects), "subjects", "only commits that point at one of these (`SUBJECT`s: DIDs or AT URIs), or whose record did before; this and the\nnext two: a millrace with --references=on only")
	fs.Var((*list)(&c.client.Options.SubjectDIDs), "subject-dids", "only commits that point at these `DID`s or at a record of theirs")
	fs.Var((*list)(&c.client.Options.Sources), "sources", "only commits with a reference of one of these `SOURCE`s, such as app.bsky.feed.like:subject.uri")
	fs.IntVar(&c.client.Options.MaxMessageBytes, "max-message-bytes", 0, "leave out events that are larger than so many `bytes` as sent; 0: no limit")
	fs.StringVar(&c.client.Cursor, "cursor", "", "start at this time_us, or after this position (`cursor`); 0: the oldest event; left out: live")
	fs.StringVar(&c.since, "since", "", "start at this `time`, see above; live if it has not come yet")
	fs.StringVar(&c.until, "until", "", "end with the last event up to this `time`, see above; now: with the newest event that the server has at the start;\nlive: once all that the server has is printed")
	fs.StringVar(&c.cursorFile, "cursor-file", "", "keep in this `file` how far the output is written, and go on from there if it exists (--cursor and --since\nare for the first time). After kill -9 what came in its last quarter of a second comes again; if the disk\nof this file is full, what came since it was written last")
	fs.BoolVar(&c.client.Strict, "strict", false, "fail if the cursor is older than the server's log, instead of starting at its oldest event (millrace only)")
	fs.BoolVar(&c.client.Compress, "compress", false, "ask for zstd: of a millrace with its built-in dictionary, which is fetched from it, of a Jetstream with\nJetstream's")
	fs.StringVar(&c.dictionary, "zstd-dictionary", "", "dictionary `file` for --compress, for servers that do not serve theirs")
	fs.StringVar(&c.client.DictionaryDir, "dictionary-cache", defaultDictionaryCache(), "`dir`ectory where fetched dictionaries are kept; empty: nowhere")
	fs.BoolVar(&c.extended, "extended", false, "events with position and UIDs, and info messages, as lines of their own (millrace only)")
	fs.BoolVar(&c.client.References, "references", false, "as --extended, and with what records point at, and pointed at (a millrace with --references=on only)")
	fs.BoolVar(&c.json, "json", false, "JSON on a terminal, too")
	fs.BoolVar(&c.pretty, "pretty", false, "the form for terminals even if standard output is none")
	fs.Int64Var(&c.count, "count", 0, "end after this `number` of events; 0: never")
	fs.BoolVar(&c.client.NoReconnect, "once", false, "end when the connection ends instead of connecting again")
}

// defaultDictionaryCache is in the user's cache directory, if there is one.
func defaultDictionaryCache() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "millrace", "dictionaries")
}

// check finds what is wrong with the flags, and completes what they leave out.
func (c *tailConfig) check([]string) error {
	switch {
	case c.count < 0:
		return fmt.Errorf("--count %d is negative", c.count)
	case c.client.Options.MaxMessageBytes < 0:
		return fmt.Errorf("--max-message-bytes %d is negative", c.client.Options.MaxMessageBytes)
	case c.client.Cursor != "" && c.since != "":
		return errors.New("--cursor and --since both say where to start; give one")
	case c.dictionary != "" && !c.client.Compress:
		return errors.New("--zstd-dictionary is for --compress: give both, or neither")
	case c.json && c.pretty:
		return errors.New("--json and --pretty both say what to print; give one")
	}
	for _, l := range []struct {
		name  string
		given []string
		most  int
	}{
		{"collections", c.client.Options.Collections, client.MaxCollections},
		{"dids", c.client.Options.DIDs, client.MaxDIDs},
		{"subjects", c.client.Options.Subjects, client.MaxSubjects},
		{"subject-dids", c.client.Options.SubjectDIDs, client.MaxSubjects},
		{"sources", c.client.Options.Sources, client.MaxSources},
	} {
		if len(l.given) > l.most {
			return fmt.Errorf("--%s has %d, a server takes %d", l.name, len(l.given), l.most)
		}
	}
	c.extended = c.extended || c.client.References
	for _, k := range c.kinds {
		if !slices.Contains(client.AllKinds(), client.Kind(k)) {
			return fmt.Errorf("--kinds %q is none of %v", k, client.AllKinds())
		}
		c.client.Kinds = append(c.client.Kinds, client.Kind(k))
	}
	if err := c.completeURLs(); err != nil {
		return fmt.Errorf("--url: %w", err)
	}
	return c.parseSpan()
}

// completeURLs gives each --url the path of v2's wire if --v2 is set. A URL with that path sets it.
func (c *tailConfig) completeURLs() error {
	if len(c.client.URLs) == 0 {
		c.client.URLs = []string{defaultServer}
	}
	v2 := c.v2
	for i, given := range c.client.URLs {
		u, err := client.SubscribeURL(given)
		if err != nil {
			return err
		}
		if v2 && !strings.HasSuffix(u.Path, client.V2Path) { // in place of v1's, before a query
			u.Path = strings.TrimSuffix(strings.TrimSuffix(u.Path, "/"), "/subscribe") + client.V2Path
			c.client.URLs[i] = u.String()
		}
		c.v2 = strings.HasSuffix(u.Path, client.V2Path)
	}
	return nil
}

// firstV2Time is 2001-09-09: v2's wire takes what is less for a seq.
const firstV2Time = 1e15

// parseSpan reads where to start and where to end.
func (c *tailConfig) parseSpan() (err error) {
	if c.end, err = parseUntil(c.until, c.now); err != nil {
		return err
	}
	start := int64(math.MinInt64)
	switch {
	case c.since != "":
		if start, err = parseMoment(c.since, c.now); err != nil {
			return fmt.Errorf("--since %w", err)
		}
		if c.v2 {
			start = max(start, firstV2Time)
		}
		c.client.Cursor = strconv.FormatInt(start, 10)
	case c.client.Cursor != "":
		cursor, err := parseCursor(c.client.Cursor)
		if err != nil {
			return err
		}
		if us, ok := cursor.TimeUS(); ok {
			start = us
		}
	}
	if start > c.end.timeUS {
		return fmt.Errorf("nothing lies between the start, %s, and --until %s, %s, which is earlier", moment(start), c.until, moment(c.end.timeUS))
	}
	return nil
}

// asksServer says whether the end is what the server has when it is asked. Nothing on v2's wire
// says that all was sent, but heartbeats say up to where.
func (c *tailConfig) asksServer() bool { return c.until == "now" || c.v2 && c.end.live }

// parseCursor reads --cursor.
func parseCursor(s string) (replay.Cursor, error) {
	cursor, err := replay.ParseCursor(s)
	if err != nil {
		err = fmt.Errorf("--cursor %.80q is neither Unix microseconds nor a position, <stream>-<seq>-<op>", s)
	}
	return cursor, err
}

// moment writes Unix microseconds for people.
func moment(us int64) string { return time.UnixMicro(us).Format("2006-01-02 15:04:05") }

// clientConfig is the configuration of the client by the flags alone.
func (c *tailConfig) clientConfig() (client.Config, error) {
	cfg := c.client
	cfg.Heartbeat, cfg.UserAgent = tailHeartbeat, "millrace-tail/"+version
	if !cfg.Compress {
		return cfg, nil
	}
	cfg.Dictionaries = [][]byte{jetstream.Dictionary()}
	if c.dictionary != "" {
		d, err := readDictionary("--zstd-dictionary", c.dictionary)
		if err != nil {
			return cfg, err
		}
		cfg.Dictionaries = append(cfg.Dictionaries, d.Bytes())
	}
	return cfg, nil
}

// parseMoment reads a time, or how long ago it was, as Unix microseconds.
func parseMoment(s string, now time.Time) (int64, error) {
	if d, ok := parseAgo(s); ok {
		return now.Add(-d).UnixMicro(), nil
	}
	if us, ok := parseMicros(s); ok {
		return us, nil
	}
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02T15:04Z07:00", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05", "2006-01-02 15:04",
		"2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly,
	} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t.UnixMicro(), nil
		}
	}
	return 0, fmt.Errorf("%q is neither a time such as 2h, 2026-11-20, \"2026-11-20 21:30\" or 2026-11-20T21:30:00Z, nor Unix microseconds, which have 16 digits", s)
}
