package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	jetstreamclient "github.com/bluesky-social/jetstream/pkg/client"
	"github.com/bluesky-social/jetstream/pkg/models"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"millrace/dict"
	"millrace/dict/jetstream"
	"millrace/public/client"
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
	n := 300
	for _, f := range identities(t, 1, 300) {
		relay.send <- f
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

// jetstreams returns the dictionary that Jetstream's clients carry.
func jetstreams(t *testing.T) *dict.Dictionary {
	t.Helper()
	d, err := dict.Parse(jetstream.Dictionary())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestCompressedClients: the example in Go, and millrace tail, decode every event, whichever
// dictionary is stored.
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
		err := dispatch(t.Context(), []string{"tail", "--url", addr, "--cursor", "0", "--compress", "--dictionary-cache", "", "--count", fmt.Sprint(len(want))}, &out, &errs)
		if err != nil {
			t.Fatalf("%s: millrace tail: %v\n%s", name, err, errs.String())
		}
		if diff := cmp.Diff(want, strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")); diff != "" {
			t.Errorf("%s: millrace tail: -want +got\n%s", name, diff)
		}
	}
	check("the default")
	check("built-in", "--zstd-dictionary", "builtin")
}

// identities returns frames of identity events.
func identities(t *testing.T, from, to int64) (frames [][]byte) {
	t.Helper()
	for seq := from; seq <= to; seq++ {
		frames = append(frames, frameOf(t, seq, "#identity", &comatproto.SyncSubscribeRepos_Identity{
			Did: "did:plc:ewvi7nxzyoun6zhxrhs64oiz", Seq: seq, Time: "2026-11-20T00:00:00Z",
		}).Data)
	}
	return frames
}

// TestStoredDictionaryChanges: --zstd-dictionary may name another dictionary at each start. New
// events are stored with it, and subscribers of any dictionary read across the change.
func TestStoredDictionaryChanges(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "operator.zdict")
	own, err := dict.WithID(dict.BuiltIn().Bytes(), 40_002)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, own.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	relay, dir := newTestRelay(t), t.TempDir()
	var want []string
	inLog := make(map[uint32]bool)
	for i, start := range []struct {
		flags  []string
		stored uint32
	}{
		{nil, dict.JetstreamID},
		{[]string{"--zstd-dictionary", "builtin"}, dict.BuiltInID},
		{[]string{"--zstd-dictionary", file}, own.ID()},
		{[]string{"--zstd-dictionary", "jetstream"}, dict.JetstreamID},
	} {
		d := startDaemon(t, relay.url, dir, start.flags...)
		live := subscribe(t, d.addr, "")
		for _, f := range identities(t, int64(10*i+1), int64(10*i+10)) {
			relay.send <- f
		}
		want = append(want, live.lines(t, 10)...)
		inLog[start.stored] = true
		if diff := cmp.Diff(start.stored, d.dicts.Stored().ID()); diff != "" {
			t.Errorf("%v: stored: -want +got\n%s", start.flags, diff)
		}
		got := make(map[uint32]bool)
		for _, u := range d.log.Dictionaries() {
			got[u.ID] = true
		}
		if diff := cmp.Diff(inLog, got); diff != "" {
			t.Errorf("%v: in the log: -want +got\n%s", start.flags, diff)
		}
		for query, with := range map[string]*dict.Dictionary{
			"compress=true": jetstreams(t), "zstdDictionary=51001": dict.BuiltIn(), "zstdDictionary=40002": own,
		} {
			if with == own && i < 2 {
				continue // nobody has named it yet
			}
			decoder, err := dict.NewDecoder(1<<20, with)
			if err != nil {
				t.Fatal(err)
			}
			s := subscribe(t, d.addr, "cursor=0&"+query)
			s.decode = func(b []byte) ([]byte, error) { return decoder.Append(nil, b) }
			if diff := cmp.Diff(want, s.lines(t, len(want))); diff != "" {
				t.Errorf("%v: %s: -want +got\n%s", start.flags, query, diff)
			}
			decoder.Close()
		}
		d.mustStop(t)
		relay.left(t)
	}
}

// errEnough ends Jetstream's client when it has received what the test wants.
var errEnough = errors.New("enough")

// collector is the handler of a client of Jetstream's: it keeps events up to a number.
type collector struct {
	events []*models.Event
	want   int
}

func (c *collector) AddWork(_ context.Context, _ string, e *models.Event) error {
	if c.events = append(c.events, e); len(c.events) == c.want {
		return errEnough
	}
	return nil
}

func (c *collector) Shutdown() {}

// TestJetstreamClient: Jetstream's own Go client, compressed, gets every event of a server with
// default flags, from the log and live. So does, beside it, a client of ours with our dictionary.
func TestJetstreamClient(t *testing.T) {
	t.Parallel()
	relay := newTestRelay(t)
	d := startDaemon(t, relay.url, t.TempDir())
	plain := subscribe(t, d.addr, "")
	const total = 600
	send := func(from, to int64) {
		for _, f := range identities(t, from, to) {
			relay.send <- f
		}
	}
	send(1, total/2)
	want := plain.lines(t, total/2)

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	theirs := &collector{want: total}
	cfg := jetstreamclient.DefaultClientConfig()
	cfg.WebsocketURL = "ws://" + d.addr + "/subscribe"
	c, err := jetstreamclient.NewClient(cfg, slog.New(slog.DiscardHandler), theirs)
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	var g errgroup.Group
	g.Go(func() error {
		oldest := int64(0)
		if err := c.ConnectAndRead(ctx, &oldest); !errors.Is(err, errEnough) {
			return fmt.Errorf("Jetstream's client, after %d events: %w", len(theirs.events), err)
		}
		return nil
	})
	g.Go(func() error {
		c, err := client.New(client.Config{URL: d.addr, Cursor: "0", Compress: true})
		if err != nil {
			return err
		}
		for e, err := range c.Events(ctx) {
			if err != nil {
				return fmt.Errorf("our client, after %d events: %w", len(ours), err)
			}
			if ours = append(ours, string(e.AppendPlain(nil))); len(ours) == total {
				break
			}
		}
		return nil
	})
	send(total/2+1, total)
	want = append(want, plain.lines(t, total/2)...)
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, ours); diff != "" {
		t.Errorf("our client: -want +got\n%s", diff)
	}
	for i, line := range want {
		var e models.Event
		fromJSON(t, line, &e)
		if diff := cmp.Diff(&e, theirs.events[i]); diff != "" {
			t.Fatalf("Jetstream's client: event %d: -want +got\n%s", i, diff)
		}
	}
}

// TestJavaScriptClient runs the example for Node, with the packages from the registry that npm is
// set to.
func TestJavaScriptClient(t *testing.T) {
	needsClients(t)
	t.Parallel()
	dir := npmInstall(t, exampleDir)
	addr, want := compressedServer(t)
	if diff := cmp.Diff(want, output(t, dir, "node", "client.mjs", "ws://"+addr, fmt.Sprint(len(want)))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
