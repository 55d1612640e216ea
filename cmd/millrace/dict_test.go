package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	"github.com/klauspost/compress/zstd"

	"millrace/dict"
	"millrace/dict/jetstream"
)

// dictEvents returns n made-up likes by a hundred authors.
func dictEvents(n int) []string {
	rng := rand.New(rand.NewPCG(1, 2))
	letters := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abcdefghijklmnopqrstuvwxyz234567"[rng.IntN(32)]
		}
		return string(b)
	}
	dids := make([]string, 100)
	for i := range dids {
		dids[i] = letters(24)
	}
	var events []string
	for i := range n {
		events = append(events, fmt.Sprintf(
			`{"did":"did:plc:%s","time_us":1783175888%06d,"kind":"commit","commit":{"rev":"3mp%s","operation":"create","collection":"app.bsky.feed.like","rkey":"3mp%s","record":{"$type":"app.bsky.feed.like","createdAt":"2026-07-04T14:38:08.999Z","subject":{"cid":"bafyrei%s","uri":"at://did:plc:%s/app.bsky.feed.post/3mp%s"}},"cid":"bafyrei%s"}}`,
			dids[rng.IntN(len(dids))], i, letters(10), letters(10), letters(52), letters(24), letters(10), letters(52)))
	}
	return events
}

// runDict is millrace dict.
func runDict(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	return dispatch(ctx, append([]string{"dict"}, args...), stdout, stderr)
}

func runDictOK(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if err := runDict(t.Context(), args, &out, &errs); err != nil {
		t.Fatalf("millrace dict %s: %v\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), errs.String()
}

func wantAll(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

func TestDictTrainFromFiles(t *testing.T) {
	dir := t.TempDir()
	lines := []byte(strings.Join(dictEvents(1200), "\n"))
	plain, packed, out := filepath.Join(dir, "a.ndjson"), filepath.Join(dir, "b.ndjson.zst"), filepath.Join(dir, "new.zdict")
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for path, data := range map[string][]byte{plain: lines, packed: enc.EncodeAll(lines, nil), filepath.Join(dir, "old.zdict"): dict.BuiltIn().Bytes()} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stdout, stderr := runDictOK(t, "train", "--samples", "2000", "--size", "8KiB", "--id", "40404", "--out", out, "--compare", filepath.Join(dir, "old.zdict"), plain, packed)
	wantAll(t, stderr, "2000 events", "1 of ")
	wantAll(t, stdout, "no dictionary", "built-in", "1612007021", "Jetstream's", "old.zdict", "40404", "millrace serve --zstd-dictionary "+out)
	raw, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := dict.Parse(raw); err != nil || d.ID() != 40404 || len(raw) > 8<<10 {
		t.Errorf("%d bytes, error %v", len(raw), err)
	}

	for _, id := range []string{"51001", strconv.Itoa(dict.JetstreamID)} {
		err := runDict(t.Context(), []string{"train", "--id", id, "--out", filepath.Join(dir, id), plain}, &bytes.Buffer{}, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), "kept for dictionaries that millrace ships") {
			t.Errorf("--id %s: %v", id, err)
		}
	}
	// A second run does not replace it.
	err = runDict(t.Context(), []string{"train", "--size", "8KiB", "--out", out, plain}, &bytes.Buffer{}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "--out") {
		t.Errorf("error %v", err)
	}

	theirs := filepath.Join(dir, "jetstream.zdict")
	if err := os.WriteFile(theirs, jetstream.Dictionary(), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, _ = runDictOK(t, "inspect", out, filepath.Join(dir, "old.zdict"), theirs)
	wantAll(t, stdout, "ID        40404 (2 bytes of each frame)", "ID        1612007021 (4 bytes of each frame; shipped with millrace)",
		fmt.Sprintf("ID        %d (2 bytes of each frame; shipped with millrace)", dict.BuiltInID),
		fmt.Sprintf("SHA-256   %x", dict.BuiltIn().SHA256()))
}

// TestWriteNewFile: a file that exists stays as it is, also one that came during minutes of work.
// What a run that was killed left is not in the way.
func TestWriteNewFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new.zdict")
	left := filepath.Join(filepath.Dir(path), ".new.zdict.tmp")
	writeFile(t, left, "half")
	for i, want := range []string{"", "exists already", "exists already"} {
		if err := writeNewFile(path, []byte{byte(i)}); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("write %d: %v", i, err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, []byte{0}) {
			t.Errorf("after write %d the file has %q, %v", i, got, err)
		}
	}
	if _, err := os.Lstat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it was written in place: %v", err)
	}
	if err := writeNewFile(filepath.Join(path, "x"), nil); err == nil || !strings.Contains(err.Error(), "write dictionary: ") {
		t.Errorf("where no file can be: %v", err)
	}
}

// TestDictTrainFromServer: the events come over a websocket, on as many connections as it takes.
func TestDictTrainFromServer(t *testing.T) {
	events := dictEvents(600)
	var cursor string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		cursor = r.URL.Query().Get("cursor")
		upgrader := websocket.Upgrader{}
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer conn.Close()
		for _, e := range events {
			if conn.WriteMessage(websocket.TextMessage, []byte(e)) != nil {
				return
			}
		}
		_, _, _ = conn.ReadMessage() // until the client goes
	}))
	defer server.Close()
	out := filepath.Join(t.TempDir(), "new.zdict")
	stdout, stderr := runDictOK(t, "train", "--url", server.URL, "--cursor", "0", "--samples", "500", "--size", "4KiB", "--out", out)
	wantAll(t, stderr, "500 events")
	wantAll(t, stdout, out)
	if cursor != "0" {
		t.Errorf("the server was asked for cursor %q", cursor)
	}
}

// TestDictTrainFromDataDir: the events come from the log of a server that was stopped; of one that
// runs they do not.
func TestDictTrainFromDataDir(t *testing.T) {
	t.Parallel()
	relay, dir := newTestRelay(t), t.TempDir()
	d := startDaemon(t, relay.url, dir)
	live := subscribe(t, d.addr, "")
	const frames = 600
	for seq := range int64(frames) {
		did := fmt.Sprintf("did:plc:ewvi7nxzyoun6zhxrhs64o%c%c", 'a'+seq%26, 'a'+seq/26)
		relay.send <- frameOf(t, seq+1, "#identity", &comatproto.SyncSubscribeRepos_Identity{
			Did: did, Seq: seq + 1, Time: "2026-11-20T00:00:00Z",
		}).Data
	}
	want := live.lines(t, frames)
	train := []string{"train", "--data-dir", dir, "--size", "4KiB"}
	err := runDict(t.Context(), train, &bytes.Buffer{}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "stop the server first, or take its events with --url") {
		t.Errorf("of a running server: %v", err)
	}
	d.mustStop(t)
	s := &sampler{max: 2 * frames, rng: rand.New(rand.NewPCG(1, 1)), stderr: io.Discard, say: func(uint64) {}}
	if _, err := s.fromLog(t.Context(), dir, ""); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range s.events {
		got = append(got, string(e))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events of the log: -want +got\n%s", diff)
	}

	out := filepath.Join(t.TempDir(), "new.zdict")
	stdout, stderr := runDictOK(t, append(train, "--samples", "500", "--out", out)...)
	wantAll(t, stderr, "500 events")
	wantAll(t, stdout, "built-in", out)
	last := parseTruthEvent(t, want[frames-1])
	err = runDict(t.Context(), append(train, "--cursor", fmt.Sprint(last.TimeUS)), &bytes.Buffer{}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "too few events") {
		t.Errorf("of the last event: %v", err)
	}
	err = runDict(t.Context(), append(train, "--cursor", fmt.Sprint(last.TimeUS+1)), &bytes.Buffer{}, &bytes.Buffer{})
	if err == nil || !strings.Contains(err.Error(), "it holds no events") {
		t.Errorf("of no event: %v", err)
	}
	// The server goes on where it stopped.
	d = startDaemon(t, relay.url, dir)
	if diff := cmp.Diff(want, subscribe(t, d.addr, "cursor=0").lines(t, frames)); diff != "" {
		t.Errorf("after training: -want +got\n%s", diff)
	}
}

func TestCutFrame(t *testing.T) {
	var frames []byte
	var want []string
	for _, n := range []int{0, 1, 125, 126, 1<<16 - 1, 1 << 16} {
		p := bytes.Repeat([]byte{'x'}, n)
		var out bytes.Buffer
		switch {
		case n < 126:
			out.Write([]byte{0x81, byte(n)})
		case n < 1<<16:
			out.Write(binary.BigEndian.AppendUint16([]byte{0x81, 126}, uint16(n)))
		default:
			out.Write(binary.BigEndian.AppendUint64([]byte{0x81, 127}, uint64(n)))
		}
		out.Write(p)
		frames, want = append(frames, out.Bytes()...), append(want, string(p))
		for _, cut := range []int{0, 1, out.Len() - n - 1, out.Len() - 1} {
			if _, _, err := cutFrame(out.Bytes()[:cut]); err == nil {
				t.Errorf("a payload of %d bytes, cut to %d with its header, is taken", n, cut)
			}
		}
	}
	var got []string
	for len(frames) > 0 {
		var p []byte
		var err error
		if p, frames, err = cutFrame(frames); err != nil {
			t.Fatal(err)
		}
		got = append(got, string(p))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestDictLines: lines of events are taken, info messages and empty lines passed over, and others
// refused.
func TestDictLines(t *testing.T) {
	for text, want := range map[string]string{
		"{\"did\":\"did:x\"}\n\n{\"kind\":\"info\",\"info\":{}}\n {\"a\":{\"did\":\"did:y\"}} ": "",
		"{\"did\":\"did:x\"}\n\nhello \"did\":\"did:y\"\n":                                      "line 3 is not an event",
		"{\"did\":\"did:x\"}\n{\"some\":\"JSON\"}\n":                                            "line 2 is not an event",
	} {
		s := &sampler{max: 9, stderr: io.Discard, say: func(uint64) {}}
		err := s.readLines(t.Context(), "file", strings.NewReader(text))
		if want == "" && (err != nil || s.seen != 2) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %d events, error %v, want %q", text, s.seen, err, want)
		}
	}
	cut := io.MultiReader(strings.NewReader(`{"did":"did:`), iotest.ErrReader(io.ErrUnexpectedEOF))
	if err := new(sampler).readLines(t.Context(), "file", cut); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a file that is cut: %v", err)
	}
}

func TestDictRefuses(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	writeFile(t, "40404.zdict", "")
	if err := os.Truncate(writeFile(t, "long", ""), 8<<20); err != nil {
		t.Fatal(err)
	}
	few, text, endless := filepath.Join(dir, "few"), filepath.Join(dir, "text"), filepath.Join(dir, "endless")
	writeFile(t, few, strings.Join(dictEvents(5), "\n"))
	writeFile(t, text, "hello\n")
	writeFile(t, endless, dictEvents(1)[0]+"\n"+strings.Repeat(" ", maxDictEvent+1))
	for _, tc := range []struct {
		args  string
		usage bool
		want  string
	}{
		{"", true, "train, inspect"},
		{"frobnicate", true, "frobnicate"},
		{"train", true, "needs events"},
		{"train --url ws://h x", true, "not from several"},
		{"train --data-dir d x", true, "not from several"},
		{"train --data-dir d --url ws://h", true, "not from several"},
		{"train --data-dir " + dir, false, "no server's data directory"},
		{"train --data-dir d --cursor x-", true, "--cursor"},
		{"train --cursor 5 x", true, "--cursor goes with --url"},
		{"train --samples 0 x", true, "--samples 0"},
		{"train --out - x", true, "name a file"},
		{"train --id 7 x", true, "32768"},
		{"train --id 4294967296 x", true, "2147483647"},
		{"train --size huge x", true, "huge"},
		{"train --url gopher://h", true, "--url"},
		{"train " + filepath.Join(dir, "absent"), false, "absent"},
		{"train " + few, false, "too few events"},
		{"train --size 1 " + few, true, "--size 1 is not 1KiB to 2MiB"},
		{"train --out " + text + " " + few, false, "exists already"},
		{"train --out absent/x " + few, false, "write dictionary: stat absent"},
		{"train --id 40404 " + few, false, "40404.zdict exists already"},
		{"train " + text, false, "line 1 is not an event"},
		{"train " + endless, false, "endless: line 2 is longer than 8388608 bytes"},
		{"train --compare " + text + " " + few, false, "not a zstd dictionary"},
		{"inspect", true, "usage: millrace dict inspect FILE…"},
		{"inspect " + text, false, "not a zstd dictionary"},
		{"inspect " + filepath.Join(dir, "absent"), false, "absent"},
		{"inspect long", false, "it has 2097153 bytes"}, // what is read of it
	} {
		err := runDict(t.Context(), strings.Fields(tc.args), &bytes.Buffer{}, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("millrace dict %s: error %v, want one with %q", tc.args, err, tc.want)
		}
		if got := errors.As(err, new(usageError)); got != tc.usage {
			t.Errorf("millrace dict %s: usage error %t", tc.args, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := runDict(ctx, []string{"train", few}, &bytes.Buffer{}, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestDictHelp(t *testing.T) {
	stdout, _ := runDictOK(t, "--help")
	wantAll(t, stdout, "millrace dict train", "millrace dict inspect")
	stdout, _ = runDictOK(t, "train", "--help")
	wantAll(t, stdout, "--samples", "--compare", "not public")
}

// TestSampler: of more events than asked for, all are as likely.
func TestSampler(t *testing.T) {
	const seen, kept, rounds = 100, 10, 2000
	var counts [seen]int
	for round := range rounds {
		s := &sampler{max: kept, rng: rand.New(rand.NewPCG(uint64(round), 1)), say: func(uint64) {}}
		for i := range seen {
			s.add([]byte{byte(i)})
		}
		if len(s.events) != kept {
			t.Fatalf("%d events", len(s.events))
		}
		for _, e := range s.events {
			counts[e[0]]++
		}
	}
	for i, n := range counts {
		if want := rounds * kept / seen; n < want*3/4 || n > want*5/4 {
			t.Errorf("event %d was kept %d times, want about %d", i, n, want)
		}
	}
}
