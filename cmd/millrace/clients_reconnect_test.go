package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"millrace/public/client"
)

// clientExamples returns the blocks of docs/clients.md in that language.
func clientExamples(t *testing.T, language string, want int) []string {
	t.Helper()
	raw, err := os.ReadFile("../../docs/clients.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(raw), -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) != want {
		t.Fatalf("%d blocks of %s, want %d", len(blocks), language, want)
	}
	return blocks
}

// replaceBetween replaces what lies between two texts, and the second one.
func replaceBetween(t *testing.T, s, from, to, with string) string {
	t.Helper()
	before, rest, ok := strings.Cut(s, from)
	_, after, found := strings.Cut(rest, to)
	if !ok || !found {
		t.Fatalf("no %q before %q in\n%s", from, to, s)
	}
	return before + with + after
}

// TestReconnectExamples runs the clients of docs/clients.md against two servers of one relay. The
// one that each reads is cut off for good in the midst of it; each prints every event once, in
// order. Those in JavaScript and Python begin at a server that refuses; silence would come late.
func TestReconnectExamples(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := func(name, text string) string {
		name = filepath.Join(dir, name)
		writeFile(t, name, text)
		return name
	}
	example, err := os.ReadFile("../../docs/examples/reconnect/main.go")
	if shown := clientExamples(t, "go", 1)[0]; err != nil || !strings.Contains(string(example), shown) {
		t.Fatalf("docs/examples/reconnect/main.go is not what docs/clients.md shows: %v", err)
	}
	binary := filepath.Join(dir, "reconnect")
	if err := goBuild(binary, "millrace/docs/examples/reconnect"); err != nil {
		t.Fatal(err)
	}
	js := clientExamples(t, "js", 3)
	js[0] = strings.ReplaceAll(js[0], "6000", "600000")
	v1 := script("v1.mjs", js[0])
	v2 := script("v2.mjs", replaceBetween(t, replaceBetween(t, js[0], "  const ws = ", ";\n", js[1]),
		"    const event = JSON.parse(data);\n", "// store this\n", js[2]))
	python := script("client.py", clientExamples(t, "python", 1)[0])
	const frames = 3000
	sim := startRelaysim(t, "--rate", "200", "--frames", fmt.Sprint(frames), "--wait-for-consumer", "--truth-sync")
	replicas := []*replica{startReplica(t, sim), startReplica(t, sim)}
	waitFor(t, "the other server's first event", func() bool { return replicas[1].reached(1) })
	known := lineCount(t, sim.truth) // its log begins before that
	none := newNetwork(t, replicas[0].addr)
	refused := none.Addr().String()
	none.Close()
	for _, tc := range []struct {
		name, path string // v2's path is in the script, if there is one
		v2         bool
		command    []string
		check      []string // that it can run here
	}{
		{"Go", "", false, []string{binary}, nil},
		{"Go, v2", client.V2Path, true, []string{binary}, nil},
		{"JavaScript", "", false, []string{"node", "--experimental-websocket", v1}, []string{"node", "--experimental-websocket", "-e", "WebSocket"}},
		{"JavaScript, v2", "", true, []string{"node", "--experimental-websocket", v2}, []string{"node", "--experimental-websocket", "-e", "WebSocket"}},
		{"Python", "", false, []string{"python3", python}, []string{"python3", "-c", "import inspect, websockets.sync.client as c; inspect.signature(c.connect).parameters['ping_interval']"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.check != nil {
				if out, err := exec.CommandContext(t.Context(), tc.check[0], tc.check[1:]...).CombinedOutput(); err != nil {
					t.Skipf("SKIPPED: %v: %s", err, out)
				}
			}
			front := newNetwork(t, replicas[0].addr)
			urls := []string{"ws://" + front.Addr().String() + tc.path, "ws://" + replicas[1].addr + tc.path}
			if tc.check != nil {
				urls = append([]string{"ws://" + refused}, urls...)
			}
			c := startClient(t, dir, tc.command[0], append(tc.command[1:], urls...)...)
			c.reach(t, known)
			front.Close()
			front.breakAll()
			sim.waitMade(t, frames)
			want := readTruth(t, sim.truth)
			if !tc.v2 {
				want = withoutSyncs(want)
			}
			c.reach(t, len(want))
			c.stop()
			var got []truthEvent
			for i, line := range c.events {
				var e truthEvent
				if line = strings.TrimSpace(line); tc.v2 {
					e = parseV2Frame(t, line)
				} else {
					e = parseTruthEvent(t, line)
				}
				e.TimeUS = int64(i + 1) // each server has its own
				got = append(got, e)
			}
			for i := range want {
				want[i].Epoch = 0
				if tc.v2 {
					want[i].JSON = parseV2(t, want[i].JSON).JSON
				}
			}
			checkExact(t, tc.name, got, want)
		})
	}
}
