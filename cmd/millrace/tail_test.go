package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/public/client"
)

func TestTailFlags(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string // part of the complaint; "": none
	}{
		{nil, ""},
		{[]string{"--url", "example.test", "--collections", "a.b.c,d.e.*", "--kinds", "commit"}, ""},
		{[]string{"--cursor", "1", "--since", "2h"}, "--cursor and --since"},
		{[]string{"--json", "--pretty"}, "--json and --pretty"},
		{[]string{"--zstd-dictionary", "file"}, "--zstd-dictionary is for --compress"},
		{[]string{"--kinds", "post"}, "none of [commit"},
		{[]string{"--kinds", "sync,commit"}, ""},
		{[]string{"--count", "-1"}, "negative"},
		{[]string{"--max-message-bytes", "-1"}, "negative"},
		{[]string{"--subjects", manyOf("did:web:x", client.MaxSubjects+1)}, "--subjects has 10001"},
		{[]string{"--subject-dids", manyOf("did:web:x", client.MaxSubjects+1)}, "--subject-dids has 10001"},
		{[]string{"--sources", manyOf("a.b.c:d", client.MaxSources+1)}, "--sources has 101"},
		{[]string{"--sources", manyOf("a.b.c:d", client.MaxSources)}, ""},
		{[]string{"--subjects", manyOf("did:web:x", client.MaxSubjects), "--subject-dids", manyOf("did:web:x", client.MaxSubjects)}, ""},
		{[]string{"--collections", manyOf("a.b.c", client.MaxCollections), "--dids", manyOf("did:web:x", client.MaxDIDs)}, ""},
		{[]string{"--collections", manyOf("a.b.c", client.MaxCollections+1)}, "--collections has"},
		{[]string{"--dids", manyOf("did:web:x", client.MaxDIDs+1)}, "--dids has"},
		{[]string{"--count", "0", "--max-message-bytes", "0"}, ""},
		{[]string{"now"}, "takes no argument"},
		{[]string{"--url", "ftp://x"}, "--url"},
		{[]string{"--server", "example.test"}, "no flag --server"},
		{[]string{"--cursor", "x"}, `--cursor "x" is neither`},
		{[]string{"--cursor", "b7e1c0-1-0", "--until", "1h"}, ""},
		{[]string{"--v2", "--url", "https://example.test/", "--cursor", "12345"}, ""},
		{[]string{"--since", "2h", "--until", "1h"}, ""},
		{[]string{"--since", "0s", "--until", "now"}, ""},
		{[]string{"--since", "1h", "--until", "2h"}, "which is earlier"},
		{[]string{"--cursor", "1795210200000000", "--until", "2025-01-01"}, "which is earlier"},
		{[]string{"--since", "2100-01-01", "--until", "now"}, "which is earlier"},
	} {
		_, err := parseTail(tc.args, time.Now())
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%v: %v, want %q", tc.args, err, tc.want)
		}
	}
	for _, args := range [][]string{{"--since", "yesterday"}, {"--until", "then"}, {"--cursor", "x"}} {
		var out bytes.Buffer
		if code := run(t.Context(), append([]string{"tail"}, args...), &out, &out); code != exitUsage {
			t.Errorf("%v: exit code %d\n%s", args, code, &out)
		}
	}
}

// parseTail returns what tail makes of its arguments; times count from now.
func parseTail(args []string, now time.Time) (*tailConfig, error) {
	c := &tailConfig{now: now}
	_, err := c.command().parse(args, nil)
	return c, err
}

// --v2 takes every URL that names a server of v1's wire.
func TestTailV2URL(t *testing.T) {
	const want = "://example.test" + client.V2Path
	for url, want := range map[string]string{
		"example.test": "ws" + want, "https://example.test/": "wss" + want, "ws://example.test/subscribe": "ws" + want,
		"example.test/subscribe?zstdDictionary=7": "ws" + want + "?zstdDictionary=7",
		"wss://example.test/?a=b":                 "wss" + want + "?a=b",
		"ws" + want:                               "ws" + want,
		"example.test/a/subscribe/":               "ws://example.test/a" + client.V2Path,
	} {
		c, err := parseTail([]string{"--v2", "--url", url}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		u, err := client.SubscribeURL(c.client.URLs[0])
		if err != nil || u.String() != want || !c.v2 {
			t.Errorf("%s is %s, %v, want %s", url, u, err, want)
		}
	}
}

// TestTailSinceLongAgo: on v2's wire a time before 2001-09-09 would be a seq.
func TestTailSinceLongAgo(t *testing.T) {
	for wire, want := range map[string]string{"--v2": "1000000000000000", "--v2=false": "946684800000000"} {
		c, err := parseTail([]string{wire, "--since", "2000-01-01T00:00:00Z"}, time.Now())
		if err != nil || c.client.Cursor != want {
			t.Errorf("%s: cursor %s, %v, want %s", wire, c.client.Cursor, err, want)
		}
	}
}

// manyOf returns n words, separated by commas.
func manyOf(word string, n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint(word, i))
	}
	return strings.Join(all, ",")
}

// The manual names every flag, and says what a person needs first.
func TestTailManual(t *testing.T) {
	var out bytes.Buffer
	if code := run(t.Context(), []string{"tail", "--help"}, &out, &out); code != exitOK {
		t.Fatal(code)
	}
	for _, want := range []string{"--url", "--since", "--cursor-file", "NO_COLOR", "inclusive", "With a pipe", "Exit codes", "| jq", "the user's"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, &out)
		}
	}
}

func TestParseMoment(t *testing.T) {
	zone := time.FixedZone("there", 2*3600)
	now := time.Date(2026, 11, 20, 21, 30, 0, 0, zone)
	for s, want := range map[string]time.Time{
		"2h": now.Add(-2 * time.Hour), "90m": now.Add(-90 * time.Minute), "1.5d": now.Add(-36 * time.Hour), "0s": now,
		"2026-11-20": time.Date(2026, 11, 20, 0, 0, 0, 0, zone), "2026-11-20 21:15": now.Add(-15 * time.Minute),
		"2026-11-20T21:15": now.Add(-15 * time.Minute), "2026-11-20 21:29:59": now.Add(-time.Second),
		"2026-11-20T19:30:00Z": now, "2026-11-20T21:30:00.5+02:00": now.Add(time.Second / 2), "1795210200000000": time.UnixMicro(1795210200000000),
	} {
		if us, err := parseMoment(s, now); err != nil || us != want.UnixMicro() {
			t.Errorf("%s: %v, %v, want %v", s, time.UnixMicro(us).In(zone), err, want)
		}
	}
	for _, s := range []string{"", "-2h", "d", "-1d", "noon", "2026-13-01", "17952102", "1795210200000"} {
		if us, err := parseMoment(s, now); err == nil || !strings.Contains(err.Error(), "nor Unix microseconds") {
			t.Errorf("%q: %v, %v", s, time.UnixMicro(us), err)
		}
	}
}

func TestCursorFile(t *testing.T) { synctest.Test(t, testCursorFile) }

func testCursorFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "at")
	if s, err := readCursorFile(name); s != "" || err != nil {
		t.Errorf("no file: %q, %v", s, err)
	}
	f := &cursorFile{name: name}
	for _, cursor := range []string{"", "b7e1c0-1-0", "b7e1c0-2-0"} {
		if err := f.note(cursor); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(name); err == nil {
		t.Error("it is written at once, and so each time")
	}
	waitFor(t, "the file", func() bool { s, _ := readCursorFile(name); return s == "b7e1c0-2-0" })
	if err := f.note("b7e1c0-3-0"); err != nil {
		t.Fatal(err)
	}
	if err := f.close(); err != nil {
		t.Fatal(err)
	}
	if s, err := readCursorFile(name); s != "b7e1c0-3-0" || err != nil {
		t.Errorf("after close: %q, %v", s, err)
	}
	if files, _ := os.ReadDir(filepath.Dir(name)); len(files) != 1 {
		t.Errorf("it leaves %v", files)
	}
	for _, broken := range []string{"", "two words", "word", "b7e1c0-1"} {
		writeFile(t, name, broken)
		if _, err := readCursorFile(name); err == nil || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("%q: %v", broken, err)
		}
	}
	if _, err := readCursorFile(os.DevNull); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a device: %v", err)
	}
	nowhere := &cursorFile{name: filepath.Join(name, "below", "a", "file"), pending: "x"}
	if err := nowhere.close(); err == nil {
		t.Error("a file that cannot be written is no error")
	}
}

func TestTailForm(t *testing.T) {
	at := int64(1795210200123000)
	commit := func(op, record string) *client.Event {
		return &client.Event{DID: "did:plc:x", TimeUS: at, Kind: client.KindCommit,
			Commit: &client.Commit{Operation: op, Collection: "app.bsky.feed.post", RKey: "3k", Record: json.RawMessage(record)}}
	}
	plain := form{zone: time.UTC}
	for want, e := range map[string]*client.Event{
		"21:30:00.123 create   app.bsky.feed.post      did:plc:x/3k two lines · end\n":                   commit("create", `{"text":"two\nlines \u001b end"}`),
		"21:30:00.123 create   app.bsky.feed.post      did:plc:x/3k → at://y\n":                          commit("create", `{"subject":{"cid":"c","uri":"at://y"}}`),
		"21:30:00.123 update   app.bsky.feed.post      did:plc:x/3k → did:plc:y\n":                       commit("update", `{"subject":"did:plc:y"}`),
		"21:30:00.123 create   app.bsky.feed.post      did:plc:x/3k {\"n\":1}\n":                         commit("create", `{"n":1}`),
		"21:30:00.123 delete   app.bsky.feed.post      did:plc:x/3k\n":                                   commit("delete", ""),
		"21:30:00.123 identity did:plc:x a.test\n":                                                       {DID: "did:plc:x", TimeUS: at, Kind: client.KindIdentity, Identity: &client.Identity{DID: "did:plc:x", Handle: "a.test"}},
		"21:30:00.123 account  did:plc:x inactive deleted\n":                                             {DID: "did:plc:x", TimeUS: at, Kind: client.KindAccount, Account: &client.Account{DID: "did:plc:x", Status: "deleted"}},
		"21:30:00.123 sync     did:plc:x 3kabc\n":                                                        {DID: "did:plc:x", TimeUS: at, Kind: client.KindSync, Sync: &client.Sync{DID: "did:plc:x", Rev: "3kabc"}},
		"21:30:00.123 account  did:plc:x active\n":                                                       {DID: "did:plc:x", TimeUS: at, Kind: client.KindAccount, Account: &client.Account{DID: "did:plc:x", Active: true}},
		"21:30:00.123 create   app.bsky.feed.post      did:plc:x/3k " + strings.Repeat("ü", 100) + "…\n": commit("create", `{"text":"`+strings.Repeat("ü", 101)+`"}`),
	} {
		if diff := cmp.Diff(want, string(plain.appendEvent(nil, e))); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
	}
	gone := commit("delete", "")
	gone.DeletedReferences = []client.Reference{{Source: "a.b.c:d", Subject: "at://y"}}
	if got := string(plain.appendEvent(nil, gone)); !strings.HasSuffix(got, "did:plc:x/3k → at://y\n") {
		t.Errorf("a delete that says what it deleted is %s", got)
	}
	flagged := commit("delete", "")
	flagged.Unverified = "broken_chain"
	if got := string(plain.appendEvent(nil, flagged)); !strings.HasSuffix(got, "did:plc:x/3k unverified: broken_chain\n") {
		t.Errorf("an unverified event is %s", got)
	}
	coloured := string(form{colour: true, zone: time.UTC}.appendEvent(nil, commit("delete", "")))
	if !strings.Contains(coloured, colourRed+"delete"+colourNone) || strings.Contains(printable("\x1b[31m\u202e", 10), "\x1b") {
		t.Errorf("%q", coloured)
	}
	if isTerminal(&bytes.Buffer{}) {
		t.Error("a buffer is a terminal")
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if isTerminal(null) {
		t.Error(os.DevNull, "is a terminal")
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	if !wantsColour() {
		t.Error("no colours though nobody minds")
	}
	t.Setenv("NO_COLOR", "1")
	if wantsColour() {
		t.Error("NO_COLOR is not honoured")
	}
}

func TestTailProgress(t *testing.T) {
	var out bytes.Buffer
	now := time.Date(2026, 11, 20, 21, 0, 0, 0, time.UTC)
	p := progress{w: &out, now: func() time.Time { return now }}
	p.draw()
	p.see(now.Add(-3*time.Hour).UnixMicro(), 1)
	now = now.Add(10 * time.Second)
	p.see(now.Add(-2*time.Hour).UnixMicro(), 12_345_669)
	p.draw()
	p.draw()
	// An hour and 10 s of events in 10 s: 361 times as fast as they came.
	want := eraseLine + "at 2026-11-20 19:00:10, 2 h 0 min behind, 1,234,567 events/s, live in 20 s"
	if out.String() != want {
		t.Errorf("got  %q\nwant %q", &out, want)
	}
	p.erase()
	p.draw() // again at once, since the line is gone
	if want += eraseLine + want; out.String() != want {
		t.Errorf("drawn again: %q", &out)
	}
	now = now.Add(time.Second)
	p.see(now.UnixMicro(), 1)
	p.draw()
	if out.String() != want+eraseLine {
		t.Errorf("live: %q", &out)
	}
	for d, want := range map[time.Duration]string{59 * time.Second: "59 s", 61 * time.Second: "1 min 1 s", 49 * time.Hour: "2 d 1 h"} {
		if got := roughly(d); got != want {
			t.Errorf("%v: %s", d, got)
		}
	}
	(&progress{now: time.Now}).draw()
	begun := now.Add(-10 * time.Second)
	p = progress{now: p.now, begun: begun, first: begun.Add(-720 * time.Hour), at: now.Add(-720*time.Hour + time.Microsecond)}
	if got := p.line(now, now.Sub(p.at)); strings.Contains(got, "live in") {
		t.Errorf("hardly faster than live: %s", got)
	}
}

func TestSubscribeURL(t *testing.T) {
	for in, want := range map[string]string{
		"localhost:6008":                     "ws://localhost:6008/subscribe",
		"http://h":                           "ws://h/subscribe",
		"https://h/":                         "wss://h/subscribe",
		"wss://h/jet/subscribe":              "wss://h/jet/subscribe",
		"ws://h:1/subscribe?wantedDids=did:": "ws://h:1/subscribe?wantedDids=did:",
	} {
		u, err := client.SubscribeURL(in)
		if err != nil || u.String() != want {
			t.Errorf("SubscribeURL(%q) = %v, %v; want %s", in, u, err, want)
		}
	}
	for _, in := range []string{"", "ws://", "gopher://x", "://"} {
		if u, err := client.SubscribeURL(in); err == nil {
			t.Errorf("SubscribeURL(%q) = %v, want an error", in, u)
		}
	}
}

func TestNextCursor(t *testing.T) {
	for in, want := range map[string]string{
		`{"did":"d","time_us":17,"kind":"commit"}`:                                 "17",
		`{"did":"d","time_us":17,"kind":"commit","commit":{"cursor":"x"}}`:         "17",
		`{"did":"d","time_us":17,"kind":"commit","cursor":"b7e1c0-31527015322-0"}`: "b7e1c0-31527015322-0",
	} {
		if got := nextCursor([]byte(in)); got != want {
			t.Errorf("nextCursor(%s) = %q, want %q", in, got, want)
		}
	}
}

// TestTailForeignCursorFile: a cursor file that another log made is refused with what to do.
func TestTailForeignCursorFile(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "the cursor's stream is unknown to this log", http.StatusBadRequest)
	}))
	defer server.Close()
	name := filepath.Join(t.TempDir(), "at.cursor")
	writeFile(t, name, "ddcead-8428-0\n")
	err := dispatch(t.Context(), []string{"tail", "--url", server.URL, "--cursor-file", name}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "if "+name+" is of another server's log, remove it") {
		t.Errorf("%v", err)
	}
}

// TestTailCursorFileOfOtherWire: v2's wire does not have the positions of v1's.
func TestTailCursorFileOfOtherWire(t *testing.T) {
	name := filepath.Join(t.TempDir(), "at.cursor")
	writeFile(t, name, "ddcead-8428-0\n")
	err := dispatch(t.Context(), []string{"tail", "--v2", "--cursor-file", name}, io.Discard, io.Discard)
	if want := "--cursor-file: " + name + " holds a position"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestServersWordsSteerNoTerminal: what a server says in a refusal is printed without control
// characters, whether that ends the command or not.
func TestServersWordsSteerNoTerminal(t *testing.T) {
	t.Parallel()
	const words = "one\x1b]0;two\a three\u202e"
	var down atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		status := http.StatusBadRequest
		if down.Swap(false) {
			status = http.StatusServiceUnavailable
		}
		http.Error(w, words, status)
	}))
	defer server.Close()
	down.Store(true) // the first time
	code, said := millrace(t, "dict", "train", "--url", server.URL)
	if want := "millrace dict: the server refused: 503 Service Unavailable: one·]0;two· three·; "; code != exitFailed || !strings.HasPrefix(said, want) {
		t.Errorf("exit code %d, %q, want %q", code, said, want)
	}
	code, said = millrace(t, "tail", "--url", server.URL)
	if want := "millrace: the server refused: 400 Bad Request: one·]0;two· three·\n"; code != exitFailed || said != want {
		t.Errorf("exit code %d, %q, want %q", code, said, want)
	}
	tl, _, warned := newTailer(&tailConfig{})
	tl.disconnected(errors.New(words), time.Second)
	if got, want := warned.String(), "millrace tail: one·]0;two· three·; connecting again in 1.0 s\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
