package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/replay"
	"millrace/replay/verify"
	"millrace/translate"
)

// TestReplay runs every part of the measurement on a small log. A second run with the same flags
// uses that log again; a run with other flags makes a new one.
func TestReplay(t *testing.T) {
	if os.Getenv("MILLRACE_TEST_LONG") == "" {
		t.Skip("runs every row of a benchmark: MILLRACE_TEST_LONG=1")
	}
	dir := t.TempDir()
	var out bytes.Buffer
	args := []string{"-dir", dir, "-events", "5000", "-repeat", "1", "-cold", "1", "-readers", "4",
		"-live-rate", "500", "-live", "2s", "-memory", "64MiB"}
	if err := run(t.Context(), append([]string{"replay"}, args...), &out); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"all, plain", "all, compressed", "all, extended", "much of the log, cold", "one DID (10 events)", "1,000 DIDs", "one collection (",
		"app.bsky.feed.post (1", "4 cold replays", "start of the server", "disk, bytes"} {
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
	if m, err := readManifest(dir, replayParams{Generator: replayGenerator, FormatVersion: replay.FormatVersion, Events: 6000}); m != nil || err != nil {
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
	for _, args := range [][]string{{"-events", "999"}, {"-only", "nope"}, {"extra"},
		{"-repeat", "0"}, {"-live", "0s"}} {
		if err := runReplay(t.Context(), append([]string{"-dir", t.TempDir()}, args...), io.Discard); err == nil {
			t.Errorf("%v is taken", args)
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
