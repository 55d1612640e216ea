package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/google/go-cmp/cmp"
)

// exampleDir is where the clients are that docs/dictionaries.md shows.
const exampleDir = "../../docs/examples/compressed"

// compressedServer serves some hundred events, of the captured frames too where there are any, and
// returns its address and them. Its dictionary is the built-in one, or that in the flags.
func compressedServer(t *testing.T, flags ...string) (addr string, events []string) {
	t.Helper()
	relay := newTestRelay(t)
	d := startDaemon(t, relay.url, t.TempDir(), flags...)
	live := subscribe(t, d.addr, "")
	n, seq := 300, int64(1)
	for ; seq <= 300; seq++ {
		relay.send <- frameOf(t, seq, "#identity", &comatproto.SyncSubscribeRepos_Identity{
			Did: "did:plc:ewvi7nxzyoun6zhxrhs64oiz", Seq: seq, Time: "2026-11-20T00:00:00Z",
		}).Data
	}
	if _, err := os.Stat(filepath.Join(corpusDir, "frames.bin.zst")); err == nil {
		for _, f := range corpusFrames(t) {
			relay.send <- f
		}
		n += len(corpusEvents(t))
	}
	return d.addr, live.lines(t, n)
}

// output runs a client and returns the lines that it prints.
func output(t *testing.T, dir, name string, args ...string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// TestCompressedClients: the example in Go, and millrace tail, decode every event, with the built-in
// dictionary and with the one that Jetstream's clients carry.
func TestCompressedClients(t *testing.T) {
	t.Parallel()
	example := filepath.Join(t.TempDir(), "compressed")
	if err := goBuild(example, "millrace/docs/examples/compressed"); err != nil {
		t.Fatal(err)
	}
	check := func(name string, flags ...string) {
		t.Helper()
		addr, want := compressedServer(t, flags...)
		if diff := cmp.Diff(want, output(t, "", example, "ws://"+addr, fmt.Sprint(len(want)))); diff != "" {
			t.Errorf("%s: the example: -want +got\n%s", name, diff)
		}
		var out, errs bytes.Buffer
		err := runTail(t.Context(), []string{"--url", addr, "--cursor", "0", "--compress", "--dictionary-cache", "", "--count", fmt.Sprint(len(want))}, &out, &errs)
		if err != nil {
			t.Fatalf("%s: millrace tail: %v\n%s", name, err, errs.String())
		}
		if diff := cmp.Diff(want, strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")); diff != "" {
			t.Errorf("%s: millrace tail: -want +got\n%s", name, diff)
		}
	}
	check("built-in")
	corpusFile(t, "jetstream_v1.zdict") // skips where there is none
	check("Jetstream's", "--zstd-dictionary", filepath.Join(corpusDir, "jetstream_v1.zdict"))
}

// TestJavaScriptClient runs the example for Node, with the packages from the registry that npm is set to.
func TestJavaScriptClient(t *testing.T) {
	needsClients(t)
	t.Parallel()
	dir := npmInstall(t, exampleDir)
	addr, want := compressedServer(t)
	if diff := cmp.Diff(want, output(t, dir, "node", "client.mjs", "ws://"+addr, fmt.Sprint(len(want)))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
