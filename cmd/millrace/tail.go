package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/websocket"

	"millrace/dict"
)

const (
	maxTailMessage = 8 << 20          // bytes; the largest event is a 1 MiB record with every byte escaped
	tailDial       = 15 * time.Second // to connect and shake hands
	tailSilence    = 90 * time.Second // the server pings every 30 s
	maxTailBackoff = 30 * time.Second
)

// tailConfig is what `millrace tail` can be told.
type tailConfig struct {
	url         string
	collections list
	dids        list
	kinds       list
	cursor      string
	compress    bool
	dictionary  string
	extended    bool
	count       int64
	once        bool
}

func newTailFlags() (*flag.FlagSet, *tailConfig) {
	c := &tailConfig{}
	fs := flag.NewFlagSet("tail", flag.ContinueOnError)
	fs.StringVar(&c.url, "url", "ws://127.0.0.1:6008", "server `URL`; the path /subscribe is added where it is missing")
	fs.Var(&c.collections, "collections", "only these (`NSID`s or prefix.*, separated by commas, may be repeated)")
	fs.Var(&c.dids, "dids", "only these `DID`s (separated by commas, may be repeated)")
	fs.Var(&c.kinds, "kinds", "only these `kinds`: commit, identity, account (millrace only)")
	fs.StringVar(&c.cursor, "cursor", "", "start at this time_us, or after this position (`cursor`); 0: the oldest event; left out: live")
	fs.BoolVar(&c.compress, "compress", false, "ask for zstd with the server's dictionary, which is fetched from it")
	fs.StringVar(&c.dictionary, "zstd-dictionary", "", "dictionary `file` for --compress, for servers that do not serve theirs")
	fs.BoolVar(&c.extended, "extended", false, "events with position and UIDs, info messages, reasons for endings (millrace only)")
	fs.Int64Var(&c.count, "count", 0, "end after this `number` of events; 0: never")
	fs.BoolVar(&c.once, "once", false, "end when the connection ends instead of connecting again")
	return fs, c
}

func runTail(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	fs, cfg := newTailFlags()
	err := parseFlags(fs, args, nil)
	if isHelp(err) {
		fmt.Fprint(stdout, "millrace tail: print a server's events, a line each\n\n")
		printFlags(stdout, fs, false)
		return nil
	}
	if err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return usageError{fmt.Errorf("millrace tail takes no argument %q; see millrace tail --help", fs.Arg(0))}
	}
	if cfg.count < 0 {
		return usageError{fmt.Errorf("--count %d is negative", cfg.count)}
	}
	t := &tailer{cfg: cfg, out: bufio.NewWriterSize(stdout, 64<<10), stderr: stderr, cursor: cfg.cursor}
	if t.base, err = subscribeURL(cfg.url); err != nil {
		return usageError{fmt.Errorf("--url: %w", err)}
	}
	return t.run(ctx)
}

// subscribeURL completes what a person types: a host, a base URL, or the whole of it.
func subscribeURL(s string) (*url.URL, error) {
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
	if u.Path == "" || u.Path == "/" {
		u.Path = "/subscribe"
	}
	return u, nil
}

// tailer prints one subscription, over as many connections as it takes.
type tailer struct {
	cfg    *tailConfig
	base   *url.URL
	out    *bufio.Writer
	stderr io.Writer

	cursor  string // where the next connection starts
	last    string // the last line printed, to drop what an inclusive cursor repeats
	printed int64
	dict    *dict.Decoder // of the current connection, nil if plain
	line    []byte
}

// errRefused is an answer that a second try would not change.
var errRefused = errors.New("refused")

func (t *tailer) run(ctx context.Context) error {
	defer t.closeDecoder()
	backoff := time.Second
	for {
		began := time.Now()
		err := t.connection(ctx)
		if flushErr := t.out.Flush(); flushErr != nil {
			return fmt.Errorf("write: %w", flushErr)
		}
		switch {
		case ctx.Err() != nil, errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errRefused), t.cfg.once:
			return err
		}
		if time.Since(began) > time.Minute {
			backoff = time.Second
		}
		wait := backoff/2 + rand.N(backoff)
		fmt.Fprintf(t.stderr, "millrace tail: %v; connecting again in %.1f s\n", err, wait.Seconds())
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
		backoff = min(2*backoff, maxTailBackoff)
	}
}

func (t *tailer) query() string {
	q := t.base.Query()
	for _, c := range t.cfg.collections {
		q.Add("wantedCollections", c)
	}
	for _, d := range t.cfg.dids {
		q.Add("wantedDids", d)
	}
	if len(t.cfg.kinds) > 0 {
		q.Set("wantedKinds", strings.Join(t.cfg.kinds, ","))
	}
	if t.cursor != "" {
		q.Set("cursor", t.cursor)
	}
	if t.cfg.compress {
		q.Set("compress", "true")
	}
	if t.cfg.extended {
		q.Set("extended", "true")
	}
	return q.Encode()
}

// connection prints one connection's events. io.EOF means that --count is reached.
func (t *tailer) connection(ctx context.Context) error {
	u := *t.base
	u.RawQuery = t.query()
	dialer := websocket.Dialer{HandshakeTimeout: tailDial, ReadBufferSize: 64 << 10, Proxy: http.ProxyFromEnvironment}
	conn, resp, err := dialer.DialContext(ctx, u.String(), http.Header{"User-Agent": {"millrace-tail/" + version}})
	if err != nil {
		return dialError(resp, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if t.cfg.compress {
		if err := t.openDecoder(ctx, resp.Header.Get(headerDictionary)); err != nil {
			return err
		}
	}
	conn.SetReadLimit(maxTailMessage)
	ping := conn.PingHandler()
	conn.SetPingHandler(func(data string) error {
		_ = conn.SetReadDeadline(time.Now().Add(tailSilence))
		return ping(data)
	})
	for {
		_ = conn.SetReadDeadline(time.Now().Add(tailSilence))
		kind, msg, err := conn.ReadMessage()
		if err != nil {
			return err
		}
		if err := t.print(kind, msg); err != nil {
			return err
		}
	}
}

// dialError says what the server answered, if it did.
func dialError(resp *http.Response, err error) error {
	if resp == nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	text := strings.TrimSpace(string(body))
	if text == "" {
		text = err.Error()
	}
	if resp.StatusCode >= 400 && resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests {
		return fmt.Errorf("the server %w: %s: %s", errRefused, resp.Status, text)
	}
	return fmt.Errorf("connect: %s: %s", resp.Status, text)
}

func (t *tailer) print(kind int, msg []byte) error {
	line := msg
	if kind == websocket.BinaryMessage {
		if t.dict == nil {
			return fmt.Errorf("the server %w the wire: a binary message on a plain connection", errRefused)
		}
		var err error
		if t.line, err = t.dict.Append(t.line[:0], msg); err != nil {
			return fmt.Errorf("decompress: %w: %w (without --zstd-dictionary the server's own is fetched)", errRefused, err)
		}
		line = t.line
	}
	event := isEvent(line)
	if event {
		if string(line) == t.last {
			return nil // the event at an inclusive cursor, seen before the break
		}
		t.last = string(line)
		t.cursor = nextCursor(line)
	}
	_, _ = t.out.Write(line) // a failed write is kept and told by Flush
	_ = t.out.WriteByte('\n')
	if err := t.out.Flush(); err != nil {
		return fmt.Errorf("write: %w: %w", errRefused, err)
	}
	if !event {
		return nil
	}
	if t.printed++; t.cfg.count > 0 && t.printed >= t.cfg.count {
		return io.EOF
	}
	return nil
}

// openDecoder gets the dictionary: from --zstd-dictionary, or from the server by its ID.
func (t *tailer) openDecoder(ctx context.Context, id string) error {
	t.closeDecoder()
	var raw []byte
	var err error
	if t.cfg.dictionary == "" {
		raw, err = t.fetchDictionary(ctx, id)
	} else if raw, err = os.ReadFile(t.cfg.dictionary); err != nil {
		err = fmt.Errorf("--zstd-dictionary %w: %w", errRefused, err)
	}
	if err != nil {
		return err
	}
	d, err := dict.Parse(raw)
	if err != nil {
		return fmt.Errorf("the dictionary: %w: %w", errRefused, err)
	}
	t.dict, err = dict.NewDecoder(maxTailMessage, d)
	return err
}

func (t *tailer) fetchDictionary(ctx context.Context, id string) ([]byte, error) {
	if _, err := strconv.ParseUint(id, 10, 32); err != nil {
		return nil, fmt.Errorf("the server %w to name its dictionary; give its file with --zstd-dictionary", errRefused)
	}
	u := *t.base
	u.Scheme = strings.Replace(u.Scheme, "ws", "http", 1)
	u.Path, u.RawQuery = strings.TrimSuffix(u.Path, "/subscribe")+"/dictionaries/"+id, ""
	ctx, cancel := context.WithTimeout(ctx, tailDial)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetch the dictionary: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetch the dictionary: %s: %s", u.String(), resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, 4<<20))
}

func (t *tailer) closeDecoder() {
	if t.dict != nil {
		t.dict.Close()
		t.dict = nil
	}
}
