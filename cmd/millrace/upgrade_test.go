package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// unpackOld unpacks testdata/upgrade.tar.gz, which the programs of commit d9d72bb wrote. They took
// 200 frames of relaysim --generate 200 --accounts 50, stopped, took 100 more, and were killed. It
// returns the data directory, and what its server sent for extended=true&cursor=0, a line an event.
func unpackOld(t *testing.T) (dir string, sent [][]byte) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "upgrade.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	for files := tar.NewReader(unzipped); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(to, h.Name)
		if h.FileInfo().IsDir() {
			err = os.MkdirAll(name, 0o755)
		} else {
			var raw []byte
			raw, err = io.ReadAll(files)
			err = errors.Join(err, os.WriteFile(name, raw, 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(filepath.Join(to, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(to, "data"), bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
}

// TestUpgrade: the data directory of a build from before the first release, killed, opens. Each
// event is there, byte for byte, with its stamp, position and UIDs. The log goes on in the same
// stream, with the same UIDs for the same strings, and is sound.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	skipUnderRace(t)
	for name, flags := range map[string][]string{
		"as it was": nil, "with all that is new": {"--references=on", "--links", "--graph", "--graph-memory", "64MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, sent := unpackOld(t)
			seen := streams{}
			var old []truthEvent
			for _, line := range sent {
				old = append(old, seen.parse(t, string(line)))
			}
			last := old[len(old)-1].Seq
			if c := checkDoctor(t, dir, exitOK, stateUnknown); c.Log == nil || c.Log.Version != 7 || c.Log.Seq < last || c.Log.Events != int64(len(old)) {
				t.Errorf("before: log %+v, want %d events up to seq %d", c.Log, len(old), last)
			}
			// The relay is the one that the log names, with further frames of the same accounts.
			sim := startRelaysim(t, "--generate", "200", "--accounts", "50", "--first-seq", fmt.Sprint(last+1), "--frames", "100", "--wait-for-consumer")
			relay := newNetwork(t, strings.TrimPrefix(sim.url, "ws://"))
			relay.tunnel = true
			addr := freeAddr(t)
			p := startMillraceUnder(t, []string{"env", "HTTP_PROXY=http://" + relay.Addr().String()}, "ws://relay.test", dir, addr, flags...)
			sim.waitMade(t, 100)
			want := readTruth(t, sim.truth)
			waitServing(t, addr)

			s := subscribe(t, addr, "extended=true&cursor=0")
			var all []truthEvent
			for len(all) < len(old)+len(want) {
				message := s.lines(t, 1)[0]
				if i := len(all); i < len(old) && message != string(sent[i]) {
					t.Fatalf("event %d is\n%s\nand was\n%s", i, message, sent[i])
				}
				if isEvent([]byte(message)) {
					all = append(all, seen.parse(t, message))
				}
			}
			checkExact(t, "what follows", all[len(old):], want)
			uids, first := uidsOf(t, all), uidsOf(t, old)
			again := 0
			for _, e := range all[len(old):] {
				if _, known := first[e.DID]; known {
					again++
				}
			}
			if again == 0 || len(uids) == len(first) || all[len(old)].TimeUS <= old[len(old)-1].TimeUS {
				t.Errorf("%d of %d new events are of accounts from before; %d UIDs, %d before", again, len(want), len(uids), len(first))
			}
			p.terminate()
			checks := [][]string{{"verify"}, {"intern", "verify"}}
			if len(flags) > 0 {
				checks = append(checks, []string{"references", "verify"})
			}
			for _, check := range checks {
				if code, out := millrace(t, append(check, "--data-dir", dir)...); code != exitOK || !strings.Contains(out, " 0 problems") {
					t.Errorf("%v: exit code %d\n%s", check, code, out)
				}
			}
			checkDoctor(t, dir, exitOK, stateStopped)
		})
	}
}

// TestDowngrade: a store whose format is one version newer is refused by each command that opens
// it, with that version, the build that is needed, and what to do. No byte of any store changes. Of
// a newer graph snapshot the log of the process says the version, and the graph is built anew.
func TestDowngrade(t *testing.T) {
	t.Parallel()
	sim := startRelaysim(t, "--frames", "300", "--wait-for-consumer")
	served := t.TempDir()
	d := startDaemon(t, sim.url, served, "--references=on")
	sim.waitMade(t, 300)
	want := readTruth(t, sim.truth)
	readAll(t, d.addr, "cursor=0", len(want))
	d.mustStop(t)
	newer := lastRun{Version: "0.2.0+feedface0000"}
	if err := newer.write(served); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	for _, tc := range []struct {
		store, key string
		value      func(version uint32) []byte
		says       string
		commands   []string
	}{
		{"log", "format", func(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }, "the log has a newer format",
			[]string{"serve", "verify", "dict train", "backup", "references verify", "references purge", "intern compact", "doctor"}},
		{"intern", "store", func(v uint32) []byte { return append([]byte{byte(v), 14, 0}, make([]byte, 16)...) }, "UID store has a newer format",
			[]string{"serve", "intern verify", "intern export", "intern compact", "references export", "references purge", "backup", "doctor"}},
		{"refs", "format", func(v uint32) []byte { return append(binary.BigEndian.AppendUint32(nil, v), 14) }, "the reference store has a newer format",
			[]string{"serve", "references verify", "references export", "references purge", "intern compact", "backup", "doctor"}},
	} {
		dir := copyDir(t, served)
		setMeta(t, filepath.Join(dir, tc.store), tc.key, tc.value(99))
		_, text := millrace(t, "doctor", dir)
		_, after, _ := strings.Cut(text, tc.says+": version 99, and this millrace knows up to ")
		var known uint32
		if _, err := fmt.Sscan(after, &known); err != nil {
			t.Fatalf("doctor does not say which version of %s is known: %v\n%s", tc.store, err, text)
		}
		setMeta(t, filepath.Join(dir, tc.store), tc.key, tc.value(known+1))
		refusal := fmt.Sprintf("%s: version %d, and this millrace knows up to %d", tc.says, known+1, known)
		commands := storeCommands(t, dir)
		commands["serve"] = serveArgs("", "--data-dir", dir, "--relay", sim.url, "--references=on")
		commands["doctor"] = []string{"doctor", dir}
		commands["references verify"] = []string{"references", "verify", "--data-dir", dir}
		commands["references export"] = []string{"references", "export", "--data-dir", dir, "--out", out}
		commands["references purge"] = []string{"references", "purge", "--data-dir", dir, "did:web:example.com"}
		commands["intern compact"] = []string{"intern", "compact", "--data-dir", dir}
		before := hashesOf(t, dir)
		for _, name := range tc.commands {
			code, text := millrace(t, commands[name]...)
			if code != exitFailed {
				t.Fatalf("%s of a newer store in %s was not refused: exit code %d\n%s", name, tc.store, code, text)
			}
			if diff := cmp.Diff(before, hashesOf(t, dir)); diff != "" {
				t.Fatalf("%s of a newer store in %s has changed the directory: -before +after\n%s", name, tc.store, diff)
			}
			for _, says := range []string{refusal, "millrace 0.2.0+feedface0000 wrote it, and this is millrace " + version, "restore a backup from before the upgrade"} {
				if !strings.Contains(text, says) {
					t.Errorf("%s of a newer store in %s does not say %q:\n%s", name, tc.store, says, text)
				}
			}
		}
	}

	writeFile(t, filepath.Join(served, "graph.snapshot"), "millrace graph 5\n")
	cfg := serveConfig(t, serveArgs("", "--data-dir", served, "--relay", sim.url, "--references=on", "--graph", "--graph-memory", "64MiB")[1:])
	said := &lockedBuffer{}
	g := openDaemon(t, cfg, newLogger(cfg, said))
	g.close()
	if text := said.String(); !strings.Contains(text, `it is of version \"5\", and this millrace knows \"4\"`) || !strings.Contains(text, "the graph is built from the reference store") {
		t.Errorf("of a newer snapshot it says\n%s", text)
	}
}
