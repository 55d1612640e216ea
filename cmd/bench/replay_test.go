package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/verify"
	"millrace/translate"
)

// TestReplay runs every part of the measurement on a small log, which a second run finds and others
// make anew.
func TestReplay(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	args := []string{"-dir", dir, "-events", "5000", "-baseline-events", "1000", "-repeat", "1", "-cold", "1", "-readers", "4",
		"-live-rate", "500", "-live", "700ms", "-drive", "2000", "-memory", "64MiB"}
	if err := runReplay(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"all, plain", "all, compressed", "all, extended", "much of the log, cold", "one DID (10 events)", "1,000 DIDs", "wantedKinds=commit (100 events)",
		"v1 wire", "app.bsky.feed.post (1", "4 cold replays", "start of the server", "disk, bytes", "at full speed", "at 1,500 events/s", "under 10 slow readers"} {
		if strings.Count(out.String(), row) != 1 {
			t.Errorf("no row of %q", row)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
	r, err := verify.Run(t.Context(), verify.Config{Dir: filepath.Join(dir, logDirectory)})
	if err != nil || !r.Sound() || r.Events < 5000 {
		t.Errorf("the kept log: %+v, %v", r, err)
	}
	before := manifestTime(t, dir)
	again := append(args, "-only", "start")
	if err := runReplay(t.Context(), again, io.Discard); err != nil || manifestTime(t, dir) != before {
		t.Errorf("a second run: %v; the log is another: %t", err, manifestTime(t, dir) != before)
	}
	if m, err := readManifest(dir, replayParams{Generator: replayGenerator, Events: 5000, Seed: 2}); m != nil || err != nil {
		t.Errorf("a log of other parameters: %v, %v", m, err)
	}
	entries, err := filepath.Glob(filepath.Join(dir, "run-*"))
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func manifestTime(t *testing.T, dir string) int64 {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, manifestFile))
	if err != nil {
		t.Fatal(err)
	}
	return info.ModTime().UnixNano()
}

func TestReplayFlags(t *testing.T) {
	for _, args := range [][]string{{"-events", "10"}, {"-events", "2000", "-baseline-events", "3000"}, {"-only", "nope"}, {"extra"},
		{"-repeat", "0"}, {"-live", "0s"}} {
		if err := runReplay(t.Context(), append([]string{"-dir", t.TempDir()}, args...), io.Discard); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

// TestFrameClient cuts a stream of frames anywhere; the client finds the same frames.
func TestFrameClient(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var wire []byte
	for _, n := range []int{0, 1, 125, 126, 300, 65_535, 65_536, 90_000, 7} {
		payload := bytes.Repeat([]byte{0x81}, n)
		switch {
		case n < 126:
			wire = append(wire, 0x81, byte(n))
		case n < 1<<16:
			wire = append(wire, 0x82, 126, byte(n>>8), byte(n))
		default:
			wire = append(wire, 0x82, 127, 0, 0, 0, 0, 0, byte(n>>16), byte(n>>8), byte(n))
		}
		wire = append(append(wire, payload...), 0x89, 2, 'h', 'i') // a ping after each
	}
	wire = append(wire, 0x88, 2, 0x0f, 0xa1)
	for range 200 {
		var c frameClient
		for rest := wire; len(rest) > 0; {
			n := min(len(rest), 1+rng.IntN(1<<rng.IntN(18)))
			c.skim(rest[:n])
			rest = rest[n:]
		}
		if c.frames != 9 || c.bytes != int64(len(wire)) || !c.closed || c.skip != 0 || len(c.head) != 0 {
			t.Fatalf("%d frames, %d bytes, closed %t, %d and %d bytes left", c.frames, c.bytes, c.closed, c.skip, len(c.head))
		}
	}
	var c frameClient
	if c.skim(wire); c.code != 4001 {
		t.Errorf("close code %d", c.code)
	}
}

// TestSlowReader: it notices an event that is missing, one that comes twice, a cut frame, and the
// wrong ending.
func TestSlowReader(t *testing.T) {
	event := func(n int64) []byte {
		payload := fmt.Sprintf(`{"did":"did:plc:x","time_us":%d,"kind":"commit"}`, 1_780_000_000_000_000+n*eventStepUS)
		return append([]byte{0x81, byte(len(payload))}, payload...)
	}
	for _, tc := range []struct {
		name     string
		wire     []byte
		extended bool
		want     string
	}{
		{"plain", bytes.Join([][]byte{event(0), event(1), event(2)}, nil), false, ""},
		{"extended", bytes.Join([][]byte{event(0), event(1), {0x88, 2, 0x0f, 0xa1}}, nil), true, ""},
		{"missing", bytes.Join([][]byte{event(0), event(2)}, nil), false, "not the next"},
		{"twice", bytes.Join([][]byte{event(0), event(0)}, nil), false, "not the next"},
		{"cut", event(0)[:20], false, "got no event"},
		{"cut later", append(event(0), event(1)[:45]...), false, "is cut"},
		{"nothing", nil, false, "no event"},
		{"plain with a code", append(event(0), 0x88, 2, 0x0f, 0xa1), false, "close code 4001"},
		{"extended without", event(0), true, "code 0"},
	} {
		ours, theirs := net.Pipe()
		go func() { _, _ = theirs.Write(tc.wire); theirs.Close() }()
		r := &slowReader{client: &frameClient{conn: ours, buf: make([]byte, clientBuffer)}, extended: tc.extended, hurry: make(chan struct{})}
		r.client.payload = r.event
		close(r.hurry)
		err := r.run()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

// TestPlantedIdentity: a frame that was made an identity is one that translate takes.
func TestPlantedIdentity(t *testing.T) {
	tr, err := translate.New(translate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, seq := range []int64{1, 23, 24, 255, 256, 70_000, 1 << 33} {
		var b translate.Batch
		tr.AppendFrame(&b, appendIdentity(nil, []byte(rareDID), seq))
		if len(b.Events) != 1 || b.Events[0].Kind != translate.KindIdentity || b.Events[0].Seq != seq || string(b.DID(0)) != rareDID {
			t.Errorf("seq %d: %+v", seq, b.Events)
		}
	}
}

// TestBareSocket and the baseline's scan end.
func TestBareSocket(t *testing.T) {
	frames := bytes.Repeat(append([]byte{0x81, 126, 1, 0}, make([]byte, 256)...), 1000)
	const times = 12
	got, err := bareSocket(t.Context(), frames, times*int64(len(frames))+17)
	if err != nil || got.took <= 0 || got.events != times*1000 || got.bytes != times*int64(len(frames))+17 {
		t.Errorf("%+v, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := bareSocket(ctx, frames, 1<<40); err == nil {
		t.Error("it does not hear that its context is done")
	}
}

// TestCountingFS: what is counted is what Pebble says that it wrote.
func TestCountingFS(t *testing.T) {
	files := newCountingFS(true)
	db, err := pebble.Open(t.TempDir(), &pebble.Options{FS: files, MemTableSize: 256 << 10, Logger: quietPebble{}})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	value := make([]byte, 1000)
	for range 5000 {
		for i := range value {
			value[i] = byte(rng.Uint32())
		}
		if err := db.Set(value[:8], value, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(db.Flush(), db.Compact(t.Context(), []byte{0}, []byte{255}, false)); err != nil {
		t.Fatal(err)
	}
	restOf(files)
	m := db.Metrics()
	var tables int64
	for _, l := range m.Levels {
		tables += int64(l.TableBytesFlushed + l.TableBytesCompacted)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	got := files.written()
	near := func(a, b int64) bool { return float64(a) > 0.98*float64(b) && float64(a) < 1.02*float64(b) }
	if !near(got.Tables, tables) || !near(got.WAL, int64(m.WAL.BytesWritten)) || tables < 10_000_000 {
		t.Errorf("counted %+v; Pebble wrote %d to tables and %d to write-ahead logs", got, tables, m.WAL.BytesWritten)
	}
}
