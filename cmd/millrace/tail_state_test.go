package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"millrace/dict/jetstream"
	"millrace/public/client"
)

// TestTailAdvise advises on the cursor file when a server does not take its cursor, and only then.
func TestTailAdvise(t *testing.T) {
	file := &cursorFile{name: "at.cursor"}
	refused := func(status int, reason string) error {
		return fmt.Errorf("client: %w", &client.RefusedError{Status: status, Reason: reason})
	}
	for _, tc := range []struct {
		file *cursorFile
		err  error
		want bool
	}{
		{file, refused(400, "the cursor's stream is unknown"), true},
		{nil, refused(400, "the cursor's stream is unknown"), false},
		{file, refused(500, "the cursor's stream is unknown"), false},
		{file, refused(400, "too many DIDs"), false},
		{file, errors.New("400 cursor"), false},
	} {
		got := (&tailer{file: tc.file}).advise(tc.err)
		advised := strings.HasSuffix(got.Error(), "; if at.cursor is of another server's log, remove it, or name another --cursor-file")
		if !errors.Is(got, tc.err) || advised != tc.want {
			t.Errorf("%v, file %v: %v", tc.err, tc.file, got)
		}
	}
}

// newTailer returns one that prints into out and says into said.
func newTailer(cfg *tailConfig) (tl *tailer, out, said *bytes.Buffer) {
	out, said = &bytes.Buffer{}, &bytes.Buffer{}
	tl = &tailer{cfg: cfg, out: lineWriter{out: out}, stderr: said, end: end{timeUS: math.MaxInt64}, at: func() string { return "" }, done: func(error) {}}
	return tl, out, said
}

// TestTailInform: what a server says besides events moves the cursor, is printed or said, and may
// be the end.
func TestTailInform(t *testing.T) {
	const from = "a1b2c3-7-0"
	oldest := time.UnixMicro(1795210200000000)
	for name, tc := range map[string]struct {
		cfg    tailConfig
		end    end
		info   client.Info
		cursor string // after it
		out    string
		said   string
		done   bool
		live   bool
	}{
		"heartbeat":              {info: client.Info{Name: client.InfoHeartbeat, TimeUS: 5, Cursor: "x"}, cursor: "x"},
		"heartbeat, extended":    {cfg: tailConfig{extended: true}, info: client.Info{Name: client.InfoHeartbeat, Cursor: "x", Raw: []byte("{}")}, cursor: "x"},
		"heartbeat after end":    {end: end{timeUS: 4}, info: client.Info{Name: client.InfoHeartbeat, TimeUS: 5, Cursor: "x"}, cursor: from, done: true},
		"heartbeat at end":       {end: end{timeUS: 5}, info: client.Info{Name: client.InfoHeartbeat, TimeUS: 5, Cursor: "x"}, cursor: "x", done: true},
		"heartbeat without time": {end: end{timeUS: -1}, info: client.Info{Name: client.InfoHeartbeat}, cursor: from},
		"live":                   {info: client.Info{Name: client.InfoLive, TimeUS: 5, Cursor: "x"}, cursor: "x", live: true},
		"live is the end":        {end: end{timeUS: math.MaxInt64, live: true}, info: client.Info{Name: client.InfoLive, TimeUS: 5, Cursor: "x"}, cursor: "x", live: true, done: true},
		"going away":             {info: client.Info{Name: client.InfoGoingAway, TimeUS: 5, Cursor: "x"}, cursor: "x"},
		"gap": {info: client.Info{Name: client.InfoGap, TimeUS: 5, Cursor: "x", From: "f", To: "g"}, cursor: from,
			said: "millrace tail: the relay may have lost events between f and g\n"},
		"gap, extended": {cfg: tailConfig{extended: true}, info: client.Info{Name: client.InfoGap, Raw: []byte(`{"gap":1}`)}, cursor: from, out: "{\"gap\":1}\n"},
		"references": {info: client.Info{Name: client.InfoReferencesBegin, Cursor: "x"}, cursor: from,
			said: "millrace tail: what records point at is known from x on: events before that do not match\n"},
		"references that begin after the end": {end: end{timeUS: 5}, info: client.Info{Name: client.InfoReferencesBegin, TimeUS: 9, Cursor: "x"}, cursor: from,
			said: "millrace tail: what records point at is known from x on: events before that do not match\n"},
		"gap after the end": {end: end{timeUS: 5}, info: client.Info{Name: client.InfoGap, TimeUS: 9, From: "f", To: "g"}, cursor: from, done: true},
		"gap after the end, extended": {cfg: tailConfig{extended: true}, end: end{timeUS: 5}, info: client.Info{Name: client.InfoGap, TimeUS: 9, Raw: []byte(`{"gap":1}`)},
			cursor: from, done: true},
		"gap at the end, extended": {cfg: tailConfig{extended: true}, end: end{timeUS: 9}, info: client.Info{Name: client.InfoGap, TimeUS: 9, Raw: []byte(`{"gap":1}`)},
			cursor: from, done: true, out: "{\"gap\":1}\n"},
		"clamped": {info: client.Info{Name: client.InfoClamped, Requested: "17", OldestUS: oldest.UnixMicro()}, cursor: from,
			said: "millrace tail: the server's log begins at " + oldest.Format(time.DateTime) + " (1795210200000000), after 17: what was before is not there\n"},
		"clamped to nothing": {info: client.Info{Name: client.InfoClamped, Requested: "17"}, cursor: from,
			said: "millrace tail: the server's log is empty: its first event will be the first here\n"},
		"clamped on v2's wire": {info: client.Info{Name: client.InfoClamped, Message: "so it says"}, cursor: from, said: "millrace tail: so it says\n"},
		"unknown":              {info: client.Info{Name: "news", TimeUS: 5, Cursor: "x"}, cursor: from},
	} {
		t.Run(name, func(t *testing.T) {
			tl, out, said := newTailer(&tc.cfg)
			tl.cursor, tl.at = from, func() string { return tc.info.Cursor }
			if tc.end != (end{}) {
				tl.end = tc.end
			}
			done := false
			tl.done = func(err error) { done = errors.Is(err, errTailDone) }
			tl.inform(tc.info)
			if _, err := tl.out.flush(); err != nil {
				t.Fatal(err)
			}
			if tl.cursor != tc.cursor || out.String() != tc.out || said.String() != tc.said || done != tc.done || tl.live.Load() != tc.live || !tl.millrace.Load() {
				t.Errorf("cursor %s, out %q, said %q, done %t, live %t", tl.cursor, out, said, done, tl.live.Load())
			}
		})
	}
}

// TestTailKnowsMillracesOfV2: on v2's wire Jetstream sends some of the same info messages.
func TestTailKnowsMillracesOfV2(t *testing.T) {
	for name, want := range map[string]bool{client.InfoHeartbeat: true, client.InfoReferencesBegin: true, client.InfoClamped: false} {
		tl, _, _ := newTailer(&tailConfig{v2: true})
		if tl.inform(client.Info{Name: name}); tl.millrace.Load() != want {
			t.Errorf("after %s: %t, want %t", name, !want, want)
		}
	}
}

// TestTailDisconnected: a connection that ends is reported, and what was live need not be.
func TestTailDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl, _, said := newTailer(&tailConfig{})
		tl.live.Store(true)
		tl.quietSince.Store(1)
		tl.disconnected(errors.New("it broke"), 1500*time.Millisecond)
		if tl.live.Load() || tl.quietSince.Load() != 0 || said.String() != "millrace tail: it broke; connecting again in 1.5 s\n" {
			t.Errorf("live %t, %v, %q", tl.live.Load(), tl.quietSince.Load(), said)
		}
	})
}

// TestTailWait: quiet counts from the first wait of a connection, or after an event.
func TestTailWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tl, _, _ := newTailer(&tailConfig{})
		want := time.Now().UnixNano()
		for range 2 {
			tl.wait()
			if got := tl.quietSince.Load(); got != want {
				t.Errorf("quiet since %d, want %d", got, want)
			}
			time.Sleep(time.Second) // of the bubble
		}
	})
}

// TestTailEnded: how the process ends, by what ended the output.
func TestTailEnded(t *testing.T) {
	broken := errors.New("broken")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, tc := range []struct {
		name   string
		ctx    context.Context
		cfg    tailConfig
		failed error
		err    error
		want   error
	}{
		{"the pipe's reader left", t.Context(), tailConfig{}, fmt.Errorf("write: %w", syscall.EPIPE), broken, nil},
		{"the output failed", t.Context(), tailConfig{}, broken, nil, broken},
		{"nothing", t.Context(), tailConfig{}, nil, nil, nil},
		{"all is printed", stopped, tailConfig{count: 1}, nil, errTailDone, nil},
		{"an error", t.Context(), tailConfig{}, nil, broken, broken},
		{"interrupted", stopped, tailConfig{}, nil, broken, nil},
		{"interrupted before --count", stopped, tailConfig{count: 1}, nil, broken, exitCode(exitInterrupted)},
		{"interrupted before --until", stopped, tailConfig{until: "live"}, nil, broken, exitCode(exitInterrupted)},
	} {
		if got := (&tailer{cfg: &tc.cfg, failed: tc.failed}).ended(tc.ctx, tc.err); !errors.Is(got, tc.want) || (got == nil) != (tc.want == nil) {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

// failingWriter takes so many bytes, and then fails.
type failingWriter struct {
	left int
	err  error
}

func (w *failingWriter) Write(p []byte) (n int, err error) {
	if n = min(len(p), w.left); n < len(p) {
		err = w.err
	}
	w.left -= n
	return n, err
}

// TestTailFlush notes the cursor of what is written, and of nothing else.
func TestTailFlush(t *testing.T) {
	for name, tc := range map[string]struct {
		left  int // bytes that the output takes; a line has 5
		err   error
		noted string
		torn  bool
	}{
		"all":                    {15, nil, "c", false},
		"within the last":        {12, syscall.ENOSPC, "b", true},
		"between two":            {10, syscall.ENOSPC, "b", false},
		"within the first":       {4, syscall.ENOSPC, "", true},
		"the pipe's reader left": {12, syscall.EPIPE, "", true},
	} {
		for _, at := range []string{"the end", "each line"} {
			t.Run(name+", flushed at "+at, func(t *testing.T) {
				tl, _, _ := newTailer(&tailConfig{})
				tl.out.out = &failingWriter{tc.left, tc.err}
				tl.file = &cursorFile{name: filepath.Join(t.TempDir(), "at")}
				var ended error
				tl.done = func(err error) { ended = err }
				for _, cursor := range []string{"a", "b", "c"} {
					if tl.write([]byte("1234\n"), cursor); at == "each line" {
						tl.flush()
					}
				}
				tl.flush()
				noted := tc.noted
				if at == "each line" && tc.err == syscall.EPIPE {
					noted = "b" // the reader was there
				}
				if tl.file.pending != noted || tl.noted != noted || tl.out.torn != tc.torn {
					t.Errorf("%q is pending, %q is noted, torn %t", tl.file.pending, tl.noted, tl.out.torn)
				}
				if !errors.Is(tl.failed, tc.err) || !errors.Is(ended, tc.err) {
					t.Errorf("failed with %v, ended by %v", tl.failed, ended)
				}
				if err := tl.ended(t.Context(), nil); tc.err == syscall.ENOSPC && strings.Contains(err.Error(), "cut it after its last newline") != tc.torn {
					t.Errorf("it ends with %v", err)
				}
				if err := tl.file.close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
	tl, _, _ := newTailer(&tailConfig{})
	tl.file = &cursorFile{err: syscall.EROFS}
	var ended error
	tl.done, tl.cursor = func(err error) { ended = err }, "d"
	if tl.flush(); !errors.Is(tl.failed, syscall.EROFS) || !errors.Is(ended, syscall.EROFS) {
		t.Errorf("a cursor file that cannot be written: failed with %v, ended by %v", tl.failed, ended)
	}
}

// TestTailHolds: lines that cannot all be held are written, and the cursor is that of what was
// written.
func TestTailHolds(t *testing.T) {
	tl, out, _ := newTailer(&tailConfig{})
	tl.file = &cursorFile{name: filepath.Join(t.TempDir(), "at")}
	line := bytes.Repeat([]byte("x"), tailBuffer/2)
	for i, want := range []int{0, 0, tailBuffer} {
		tl.write(line, string(rune('a'+i)))
		if out.Len() != want {
			t.Errorf("after %d lines %d bytes are written, want %d", i+1, out.Len(), want)
		}
	}
	if tl.noted != "b" {
		t.Errorf("noted %q", tl.noted)
	}
	if tl.flush(); out.Len() != 3*len(line) || tl.noted != "c" {
		t.Errorf("%d bytes are written, noted %q", out.Len(), tl.noted)
	}
	if err := tl.file.close(); err != nil {
		t.Error(err)
	}
}

// TestTailWatchEnd: without an event that says so, the output ends when --until has passed and no
// more can come.
func TestTailWatchEnd(t *testing.T) {
	const never = time.Hour
	for name, tc := range map[string]struct {
		until    time.Duration // from the start; 0: live
		live     bool          // the server says so
		millrace bool
		quiet    time.Duration // since then; 0: there is no connection
		want     time.Duration // at about that time it ends
	}{
		"live at once":         {live: true, want: 0},
		"live, --until later":  {until: 10 * time.Second, live: true, want: 10*time.Second + endGrace},
		"live, printing later": {until: 10 * time.Second, live: true, quiet: time.Minute, want: time.Minute + endGrace},
		"never live":           {millrace: true, quiet: 1, want: never},
		"no connection":        {want: never},
		"quiet":                {quiet: 1, want: endQuiet},
		"quiet later":          {quiet: time.Minute, want: time.Minute + endQuiet},
		"quiet, --until later": {until: time.Minute, quiet: 1, want: time.Minute + endGrace},
		"no end":               {until: never, want: never},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				tl, _, _ := newTailer(&tailConfig{})
				switch tl.end = (end{timeUS: begun.Add(tc.until).UnixMicro(), live: tc.until == 0}); {
				case tc.until == never:
					tl.end = end{timeUS: math.MaxInt64}
				case tc.until == 0:
					tl.end.timeUS = math.MaxInt64
				}
				tl.live.Store(tc.live)
				tl.millrace.Store(tc.millrace)
				if tc.quiet > 0 {
					tl.quietSince.Store(begun.Add(tc.quiet).UnixNano())
				}
				var ended time.Duration = never
				ctx, cancel := context.WithTimeout(t.Context(), never)
				defer cancel()
				tl.done = func(err error) {
					if ended = time.Since(begun); !errors.Is(err, errTailDone) {
						t.Errorf("ended with %v", err)
					}
				}
				if tl.watchEnd(ctx); ended < tc.want || ended > tc.want+endGrace/4 && tc.want != never {
					t.Errorf("it ends after %v, want %v", ended, tc.want)
				}
				if tc.until == never && time.Since(begun) > 0 {
					t.Error("it watches for an end that there is not")
				}
			})
		})
	}
}

// TestTailKnowsMillraces: on v1's wire a position shows that the server is a millrace, on v2's wire
// a seq does not.
func TestTailKnowsMillraces(t *testing.T) {
	const v1, v2 = `{"did":"did:plc:a","time_us":1790000000000000,"kind":"identity","identity":{}%s}`, `{"$type":"message","payload":{"$type":` +
		`"network.bsky.jetstream.subscribeEvents#identity","did":"did:plc:a","identity":{},"seq":1,"time":"2026-11-25T00:00:00.000000Z"}}`
	for _, tc := range []struct {
		path, event string
		before      bool
		want        bool
	}{
		{"", fmt.Sprintf(v1, `,"cursor":"b7e1c0-1-0"`), false, true}, {"", fmt.Sprintf(v1, ""), true, false},
		{client.V2Path, v2, false, false}, {client.V2Path, v2, true, true},
	} {
		up := websocket.Upgrader{}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if ws, err := up.Upgrade(w, r, nil); err == nil {
				_ = ws.WriteMessage(websocket.TextMessage, []byte(tc.event))
				_, _, _ = ws.ReadMessage() // until it leaves
				ws.Close()
			}
		}))
		c, err := client.New(client.Config{URL: server.URL + tc.path})
		if err != nil {
			t.Fatal(err)
		}
		tl, out, _ := newTailer(&tailConfig{count: 1, v2: tc.path != ""})
		tl.millrace.Store(tc.before)
		if err := tl.follow(t.Context(), c); err != nil || tl.millrace.Load() != tc.want || tl.quietSince.Load() != math.MaxInt64 || tl.printed != 1 {
			t.Errorf("%s: %v, a millrace %t, printed %d: %s", tc.event, err, tl.millrace.Load(), tl.printed, out)
		}
		server.Close()
	}
}

// TestTailStampsAhead: on v2's wire the output ends with the server's newest event, though that is
// stamped ahead of this machine's clock.
func TestTailStampsAhead(t *testing.T) {
	up := websocket.Upgrader{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ws, err := up.Upgrade(w, r, nil); err == nil {
			_ = ws.WriteMessage(websocket.TextMessage, []byte(`{"$type":"message","payload":{"$type":"network.bsky.jetstream.subscribeEvents#identity",`+
				`"did":"did:plc:a","identity":{},"seq":1,"time":"2026-11-25T00:00:00.000000Z"}}`))
			_, _, _ = ws.ReadMessage() // until it leaves
			ws.Close()
		}
	}))
	defer server.Close()
	c, err := client.New(client.Config{URL: server.URL + client.V2Path})
	if err != nil {
		t.Fatal(err)
	}
	stamp := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	tl, _, _ := newTailer(&tailConfig{count: 1, v2: true, now: stamp.Add(-time.Minute)})
	tl.end = end{timeUS: stamp.UnixMicro(), live: true}
	if err := tl.follow(t.Context(), c); err != nil || tl.printed != 1 {
		t.Errorf("%v, printed %d", err, tl.printed)
	}
}

// TestTailPassedOnV2: on v2's wire the heartbeat of the log's end is the end once --until has
// passed.
func TestTailPassedOnV2(t *testing.T) {
	for name, tc := range map[string]struct {
		until  time.Duration // from now
		newest int64         // of the server; -1: it does not say
		wire   bool          // v2's
		want   bool
	}{
		"at the end": {-time.Minute, 5, true, true}, "its log is empty": {-time.Minute, 0, true, true}, "before the end": {-time.Minute, 6, true, false},
		"not passed": {time.Minute, 5, true, false}, "just passed": {0, 5, true, false}, "no answer": {-time.Minute, -1, true, false},
		"v1's wire": {-time.Minute, 5, false, false},
	} {
		tl, _, _ := newTailer(&tailConfig{v2: tc.wire})
		tl.end = end{timeUS: time.Now().Add(tc.until).UnixMicro()}
		tl.newest = func() (int64, error) {
			if tc.newest < 0 {
				return 0, io.EOF
			}
			return tc.newest, nil
		}
		done := false
		tl.done = func(error) { done = true }
		if tl.inform(client.Info{Name: client.InfoHeartbeat, TimeUS: 5, Cursor: "x"}); done != tc.want {
			t.Errorf("%s: done %t", name, done)
		}
	}
}

// TestTailStart starts where the last run ended, else as the flags say.
func TestTailStart(t *testing.T) {
	kept := writeFile(t, filepath.Join(t.TempDir(), "kept"), "1795210200000000\n")
	position := writeFile(t, filepath.Join(t.TempDir(), "position"), "a1b2c3-7-0\n")
	broken := writeFile(t, filepath.Join(t.TempDir(), "broken"), "\n")
	for file, want := range map[string]struct {
		from   string
		skipUS int64
	}{
		"": {"flags", 0}, filepath.Join(t.TempDir(), "none"): {"flags", 0}, kept: {"1795210200000000", 1795210200000000}, position: {"a1b2c3-7-0", 0},
	} {
		tl := &tailer{cfg: &tailConfig{cursorFile: file, client: client.Config{Cursor: "flags"}}}
		from, err := tl.start()
		if err != nil || from != want.from || tl.skipUS != want.skipUS || (tl.file == nil) != (file == "") {
			t.Errorf("file %q: from %s, skips %d, %v", file, from, tl.skipUS, err)
		}
	}
	if _, err := (&tailer{cfg: &tailConfig{cursorFile: broken}}).start(); err == nil {
		t.Error("a broken file is no error")
	}
	nowhere := filepath.Join(t.TempDir(), "missing", "at")
	if _, err := (&tailer{cfg: &tailConfig{cursorFile: nowhere}}).start(); err == nil || !strings.HasPrefix(err.Error(), "--cursor-file "+nowhere+" cannot be written: ") {
		t.Errorf("a file that cannot be written: %v", err)
	}
	if files, err := os.ReadDir(filepath.Dir(kept)); len(files) != 1 || err != nil {
		t.Errorf("the check leaves %v, %v", files, err)
	}
}

// TestTailClientConfig: each flag of tail reaches the client.
func TestTailClientConfig(t *testing.T) {
	dictionary := writeFile(t, filepath.Join(t.TempDir(), "dictionary"), string(jetstream.Dictionary()))
	now := time.Now()
	cfg, err := parseTail([]string{"--url", "ws://h:1", "--collections", "a.b.c,d.e.*", "--dids", "did:web:x", "--kinds", "commit,account",
		"--subjects", "at://s", "--subject-dids", "did:web:s", "--sources", "a.b.c:d", "--max-message-bytes", "77", "--cursor", "1795210200000000",
		"--strict", "--compress", "--zstd-dictionary", dictionary, "--dictionary-cache", "cache", "--references", "--once"}, now)
	if err != nil {
		t.Fatal(err)
	}
	got, err := cfg.clientConfig()
	want := client.Config{
		URLs: []string{"ws://h:1"},
		Options: client.Options{Collections: []string{"a.b.c", "d.e.*"}, DIDs: []string{"did:web:x"}, MaxMessageBytes: 77,
			Subjects: []string{"at://s"}, SubjectDIDs: []string{"did:web:s"}, Sources: []string{"a.b.c:d"}},
		Kinds: []client.Kind{client.KindCommit, client.KindAccount}, References: true, Cursor: "1795210200000000", Strict: true,
		Compress: true, DictionaryDir: "cache", Dictionaries: [][]byte{jetstream.Dictionary(), jetstream.Dictionary()},
		NoReconnect: true, Heartbeat: tailHeartbeat, UserAgent: "millrace-tail/" + version,
	}
	if d := cmp.Diff(want, got); d != "" || err != nil || !cfg.extended {
		t.Errorf("extended %t, %v, -want +got:\n%s", cfg.extended, err, d)
	}
	if cfg, err = parseTail([]string{"--dictionary-cache", "", "--since", "1h"}, now); err != nil {
		t.Fatal(err)
	}
	want = client.Config{URLs: []string{defaultServer}, Cursor: fmt.Sprint(now.Add(-time.Hour).UnixMicro()), Heartbeat: tailHeartbeat, UserAgent: "millrace-tail/" + version}
	if got, err = cfg.clientConfig(); err != nil || cmp.Diff(want, got) != "" {
		t.Errorf("by default: %v, %s", err, cmp.Diff(want, got))
	}
	for want, file := range map[string]string{"--zstd-dictionary: open": "nowhere", "--zstd-dictionary ": writeFile(t, filepath.Join(t.TempDir(), "text"), "no dictionary")} {
		if _, err := (&tailConfig{client: client.Config{Compress: true}, dictionary: file}).clientConfig(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("dictionary %s: %v", file, err)
		}
	}
}

// TestTailOfV2: --v2 and the path of its wire mean the same.
func TestTailOfV2(t *testing.T) {
	for _, tc := range []struct {
		args []string
		url  string
		v2   bool
	}{
		{[]string{"--url", "ws://h"}, "ws://h", false},
		{[]string{"--url", "ws://h/", "--v2"}, "ws://h" + client.V2Path, true},
		{[]string{"--url", "ws://h" + client.V2Path, "--v2"}, "ws://h" + client.V2Path, true},
		{[]string{"--url", "ws://h" + client.V2Path}, "ws://h" + client.V2Path, true},
	} {
		if cfg, err := parseTail(tc.args, time.Now()); err != nil || cfg.client.URLs[0] != tc.url || cfg.v2 != tc.v2 {
			t.Errorf("%v: %+v, %v", tc.args, cfg, err)
		}
	}
}

// TestAskNewest asks a server where its log ends until it says so.
func TestAskNewest(t *testing.T) {
	const now = 12345
	for name, tc := range map[string]struct {
		answers string // statuses; 200: with a newest event
		body    string
		once    bool
		want    int64
		fails   bool
	}{
		"newest":          {answers: "200", body: `{"newest":{"time_us":77},"retention_s":0}`, want: 77},
		"empty":           {answers: "200", body: `{"newest":null,"retention_s":0}`, want: 0},
		"a page":          {answers: "200", body: "<html>", want: now},
		"plain Jetstream": {answers: "404", want: now},
		"busy":            {answers: "429", once: true, fails: true},
		"broken":          {answers: "500", once: true, fails: true},
		"for a while":     {answers: "503 503 200", body: `{"newest":{"time_us":77},"retention_s":0}`, want: 77},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			answers := strings.Fields(tc.answers)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if answer := answers[asked.Add(1)-1]; answer != "200" {
					var status int
					fmt.Sscan(answer, &status)
					http.Error(w, "so it is", status)
					return
				}
				fmt.Fprint(w, tc.body)
			}))
			defer server.Close()
			c, err := client.New(client.Config{URL: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			var said bytes.Buffer
			got, err := askNewest(t.Context(), c, &said, tc.once, now)
			if got != tc.want || (err != nil) != tc.fails || int(asked.Load()) != len(answers) {
				t.Errorf("newest %d, %v, asked %d times", got, err, asked.Load())
			}
			for i, pause := range []string{"asking again in 1 s", "asking again in 2 s"} {
				if says := len(answers) > i+1; says != strings.Contains(said.String(), pause) {
					t.Errorf("it says %q", &said)
				}
			}
			if name == "for a while" {
				asked.Store(0)
				cause := errors.New("stopped")
				ctx, cancel := context.WithCancelCause(t.Context())
				cancel(cause)
				if _, err := askNewest(ctx, c, io.Discard, false, now); !errors.Is(err, cause) {
					t.Errorf("stopped: %v", err)
				}
			}
		})
	}
}

// TestCursorFileIsReplaced: a file that cannot be replaced stays, and nothing else is left.
func TestCursorFileIsReplaced(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "at")
	if err := os.MkdirAll(filepath.Join(name, "full"), 0o755); err != nil { // so rename fails
		t.Fatal(err)
	}
	err := (&cursorFile{name: name, pending: "x"}).close()
	files, _ := os.ReadDir(dir)
	if err == nil || !strings.HasPrefix(err.Error(), "--cursor-file: ") || len(files) != 1 {
		t.Errorf("%v, left %v", err, files)
	}
	f := &cursorFile{name: name, pending: "x"}
	for range 2 {
		if err := f.close(); err == nil {
			t.Error("the error of a write is lost")
		}
		f.pending = ""
	}
	if err := f.note("y"); err == nil {
		t.Error("an earlier error is lost")
	}
	if _, err := readCursorFile(dir); err == nil || !strings.HasPrefix(err.Error(), "--cursor-file: ") {
		t.Errorf("a directory: %v", err)
	}
	good := filepath.Join(dir, "good")
	if err := (&cursorFile{name: good, pending: "x"}).close(); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(good); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("%v, %v", st, err)
	}
}
