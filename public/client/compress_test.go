package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gorilla/websocket"

	"millrace/dict"
	jetstreamv1 "millrace/dict/jetstream"
	"millrace/public/client"
)

// jetstreams returns the dictionary that Jetstream's clients carry.
func jetstreams(t testing.TB) *dict.Dictionary {
	t.Helper()
	d, err := dict.Parse(jetstreamv1.Dictionary())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// asked serves a log, and passes on the parameters of each request for events.
func asked(t *testing.T, l *eventLog, refuse string) (url string, queries chan string) {
	t.Helper()
	s := serve(t, l)
	queries = make(chan string, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/subscribe" {
			q := r.URL.Query()
			queries <- "compress=" + q.Get("compress") + " zstdDictionary=" + q.Get("zstdDictionary")
			if refuse != "" && q.Get("zstdDictionary") == refuse {
				http.Error(w, "invalid subscriber options: unknown zstdDictionary "+refuse+": the stored one is 1", http.StatusBadRequest)
				return
			}
		}
		s.public.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, queries
}

// TestBuiltInDictionary: a millrace is asked for its built-in dictionary, or for the one that the
// URL names. One that does not have it is asked without an ID.
func TestBuiltInDictionary(t *testing.T) {
	t.Parallel()
	l := newEventLog(t)
	for n := range 20 {
		l.add(identity(didN(n)))
	}
	all := l.all()
	for name, tc := range map[string]struct {
		query, refuse string
		want          []string
	}{
		"built-in":      {"", "", []string{"compress=true zstdDictionary=51001"}},
		"the URL's":     {"/subscribe?zstdDictionary=1612007021", "", []string{"compress=true zstdDictionary=1612007021"}},
		"not there":     {"", "51001", []string{"compress=true zstdDictionary=51001", "compress=true zstdDictionary="}},
		"never refused": {"", "7", []string{"compress=true zstdDictionary=51001"}},
	} {
		url, queries := asked(t, l, tc.refuse)
		c := newClient(t, client.Config{URL: url + tc.query, Cursor: "0", Compress: true, NoReconnect: true})
		for i, e := range read(t, c, len(all)) {
			if got := string(e.AppendPlain(nil)); got != all[i].json {
				t.Fatalf("%s: event %d is %s, want %s", name, i, got, all[i].json)
			}
		}
		var got []string
		for len(queries) > 0 {
			got = append(got, <-queries)
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: asked with %q, want %q", name, got, tc.want)
		}
		if got := c.Stats(); got.Events != int64(len(all)) || got.Connects != 1 || got.Fetches != 1 || got.Bytes == 0 || got.Disconnects != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestBuiltInDictionaryID: the ID that the client asks for is that of the built-in dictionary.
func TestBuiltInDictionaryID(t *testing.T) {
	if client.BuiltInDictionary != dict.BuiltInID {
		t.Errorf("the client asks for %d, the built-in one is %d", client.BuiltInDictionary, dict.BuiltInID)
	}
}

// TestCompressedJetstream: a plain Jetstream ignores the ID, uses its own dictionary, and does not
// serve it.
func TestCompressedJetstream(t *testing.T) {
	t.Parallel()
	enc, err := dict.NewEncoder(jetstreams(t))
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	url, _ := fake(t, func(_ int, ws *websocket.Conn) {
		_ = ws.WriteMessage(websocket.BinaryMessage, enc.Append(nil, []byte(oneEvent)))
	})
	c := newClient(t, client.Config{URL: url, Compress: true, Dictionaries: [][]byte{jetstreamv1.Dictionary()}})
	if got := read(t, c, 1); string(got[0].Raw) != oneEvent {
		t.Errorf("got %s", got[0].Raw)
	}
	err = firstError(t, newClient(t, client.Config{URL: url, Compress: true}))
	if !errors.Is(err, client.ErrDictionary) || !strings.Contains(err.Error(), "1612007021") {
		t.Errorf("without the file: %v", err)
	}
}

// records is a log handler that passes on its records.
type records struct {
	slog.Handler
	got chan slog.Record
}

func (r records) Enabled(context.Context, slog.Level) bool { return true }

func (r records) Handle(_ context.Context, rec slog.Record) error {
	select {
	case r.got <- rec:
	default: // the test has seen enough
	}
	return nil
}

// TestDeadURLIsReported: a client that has nothing but a URL says in the program's log that it
// cannot connect, each time.
func TestDeadURLIsReported(t *testing.T) { // not parallel: it replaces the default logger
	log := records{slog.DiscardHandler, make(chan slog.Record, 2)}
	was := slog.Default()
	slog.SetDefault(slog.New(log))
	defer slog.SetDefault(was)
	c, err := client.New(client.Config{URL: "dead.test", MinBackoff: 1, MaxBackoff: 1})
	if err != nil {
		t.Fatal(err)
	}
	// A port that a listener gave back may be another process's by now.
	c.DialBy(func(context.Context, string, string) (net.Conn, error) { return nil, syscall.ECONNREFUSED })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ended := make(chan error, 1)
	go func() { // ends with ctx
		for _, err := range c.Events(ctx) {
			ended <- err
		}
	}()
	for range 2 {
		select {
		case rec := <-log.got:
			attrs := map[string]string{}
			rec.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value.String(); return true })
			if rec.Level != slog.LevelWarn || attrs["url"] != "ws://dead.test/subscribe" || !strings.Contains(attrs["err"], "refused") || attrs["retry_in"] == "" {
				t.Errorf("%v %s %v", rec.Level, rec.Message, attrs)
			}
		case err := <-ended:
			t.Fatalf("it ended: %v", err)
		}
	}
	cancel()
	<-ended
	if got := c.Stats(); got.Failures < 2 || got.Connects != 0 {
		t.Errorf("%+v", got)
	}
}

// TestDependencies: a program that imports this package gets a websocket library and a zstd decoder
// in Go, and nothing else.
func TestDependencies(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "millrace/public/client").Output()
	if err != nil {
		t.Fatal(err)
	}
	for path := range strings.FieldsSeq(string(out)) {
		switch {
		case path == "millrace/public/client", path == "github.com/gorilla/websocket":
		case strings.HasPrefix(path+"/", "github.com/klauspost/compress/"):
		default:
			t.Errorf("it imports %s", path)
		}
	}
}
