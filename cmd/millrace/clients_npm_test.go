package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/consume/relaysim/testwait"
)

// npmInstall copies an npm project to a directory of the test and installs what it depends on
// there. Where that cannot be, the test is skipped, saying why; with MILLRACE_TEST_CLIENTS=require
// it fails.
func npmInstall(t *testing.T, project string) (dir string) {
	t.Helper()
	give := t.Skipf
	if os.Getenv("MILLRACE_TEST_CLIENTS") == "require" {
		give = t.Fatalf
	}
	for _, command := range []string{"node", "npm"} {
		if _, err := exec.LookPath(command); err != nil {
			give("SKIPPED: there is no %s", command)
		}
	}
	dir = t.TempDir()
	entries, err := os.ReadDir(project)
	if err != nil {
		t.Fatal(err)
	}
	command := "install"
	for _, e := range entries {
		if e.IsDir() {
			continue // node_modules of somebody who tried it by hand
		}
		if e.Name() == "package-lock.json" {
			command = "ci"
		}
		raw, err := os.ReadFile(filepath.Join(project, e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, e.Name()), raw, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	install := exec.CommandContext(ctx, "npm", command, "--no-audit", "--no-fund", "--ignore-scripts")
	install.Dir = dir
	if out, err := install.CombinedOutput(); err != nil {
		give("SKIPPED: npm %s: %v\n%s", command, err, out)
	}
	return dir
}

// needsClients skips the test unless somebody wants it: it installs npm packages, and takes its
// time.
func needsClients(t *testing.T) {
	t.Helper()
	if !long() && os.Getenv("MILLRACE_TEST_CLIENTS") == "" {
		t.Skip("neither MILLRACE_TEST_LONG nor MILLRACE_TEST_CLIENTS is set: this test installs npm packages")
	}
}

// jsClient is somebody else's client in a process of its own. It prints an event a line.
type jsClient struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // closed when its output ends

	mu     sync.Mutex
	events []string
	stderr bytes.Buffer
}

func startJS(t *testing.T, dir string, args ...string) *jsClient {
	t.Helper()
	return startClient(t, dir, "node", args...)
}

func startClient(t *testing.T, dir, command string, args ...string) *jsClient {
	t.Helper()
	c := &jsClient{cmd: exec.Command(command, args...), done: make(chan struct{})}
	c.cmd.Dir = dir
	c.cmd.Stderr = lockedWriter{c}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends with the process
		defer close(c.done)
		lines := bufio.NewReaderSize(stdout, 1<<20)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return // a process that ends may have cut its last line
			}
			at := strings.IndexByte(line, '{') // wscat may write a prompt before it
			if at < 0 {
				continue
			}
			c.mu.Lock()
			c.events = append(c.events, line[at:])
			c.mu.Unlock()
		}
	}()
	t.Cleanup(c.stop)
	return c
}

// lockedWriter keeps what a client complains of.
type lockedWriter struct{ c *jsClient }

func (w lockedWriter) Write(p []byte) (int, error) {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	return w.c.stderr.Write(p)
}

func (c *jsClient) stop() {
	c.stdin.Close()
	_ = c.cmd.Process.Kill()
	<-c.done
	_ = c.cmd.Wait()
}

func (c *jsClient) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.events)
}

// last is the event printed last.
func (c *jsClient) last() (e stamped) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var last struct {
		TimeUS int64 `json:"time_us"`
		Commit struct{ Collection string }
	}
	if n := len(c.events); n > 0 && json.Unmarshal([]byte(c.events[n-1]), &last) == nil {
		e.TimeUS, e.Collection = last.TimeUS, last.Commit.Collection
	}
	return e
}

func (c *jsClient) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stderr.String()
}

// reach waits until the client has printed n events in all.
func (c *jsClient) reach(t *testing.T, n int) {
	t.Helper()
	if !testwait.Becomes(5*patience, func() bool { return c.count() >= n }) {
		t.Fatalf("%d of %d events\n%s", c.count(), n, c.said())
	}
}

// send sends the client an options update.
func (c *jsClient) send(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(c.stdin, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

// stamped is an event as a client of another make prints it.
type stamped struct {
	TimeUS     int64
	Collection string // "": no commit
	JSON       any    // numbers as JavaScript has them
}

func readStamped(t *testing.T, lines []string) []stamped {
	t.Helper()
	out := make([]stamped, len(lines))
	for i, line := range lines {
		var e struct {
			TimeUS int64 `json:"time_us"`
			Commit struct{ Collection string }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v: %.200s", err, line)
		}
		out[i] = stamped{TimeUS: e.TimeUS, Collection: e.Commit.Collection}
		fromJSON(t, line, &out[i].JSON)
	}
	return out
}

// wants says whether an event passes a filter of one collection.
func (e stamped) wants(collection string) bool {
	return e.Collection == "" || e.Collection == collection
}

// explained checks that got is what the log has from a stamp on for one collection and, from some
// event between on, for another.
func explained(got, log []stamped, fromUS int64, before, after string) error {
	held := make(map[int64]stamped, len(log))
	for _, e := range log {
		held[e.TimeUS] = e
	}
	for i, e := range got {
		if diff := cmp.Diff(held[e.TimeUS].JSON, e.JSON); diff != "" {
			return fmt.Errorf("event %d: -log +got\n%s", i, diff)
		}
	}
	log = log[slices.IndexFunc(log, func(e stamped) bool { return e.TimeUS >= fromUS }):]
	most, missing := -1, stamped{}
	for change := range len(log) {
		n := 0
		for i, e := range log {
			if i < change && !e.wants(before) || i >= change && !e.wants(after) {
				continue
			}
			if n == len(got) {
				return nil
			}
			if got[n].TimeUS != e.TimeUS {
				if n > most {
					most, missing = n, e
				}
				break
			}
			n++
		}
		if n == len(got) {
			return nil
		}
	}
	return fmt.Errorf("wherever the update came: instead of event %d, of %d in all, %d %v, came %d %v",
		most, len(got), missing.TimeUS, missing.Collection, got[most].TimeUS, got[most].Collection)
}

// What explained must distinguish: anything missing, changed, doubled or out of order.
func TestExplained(t *testing.T) {
	var log []stamped
	for i := range 20 {
		log = append(log, stamped{TimeUS: int64(i), Collection: []string{"a", "b", "", "c"}[i%4], JSON: float64(i)})
	}
	pick := func(stamps ...int) (out []stamped) {
		for _, i := range stamps {
			out = append(out, log[i])
		}
		return out
	}
	changed := pick(4, 6, 9)
	changed[1].JSON = "x"
	for name, tc := range map[string]struct {
		got []stamped
		ok  bool
	}{
		"before and after": {pick(4, 6, 8, 10, 13, 14), true}, "before": {pick(4, 6, 8), true}, "after": {pick(5, 6, 9, 10), true},
		"missing": {pick(4, 8), false}, "missing at the change": {pick(4, 6, 10, 14, 17), false}, "doubled": {pick(4, 6, 6), false},
		"order": {pick(6, 4), false}, "back again": {pick(4, 6, 9, 10, 12), false}, "neither": {pick(4, 6, 7), false}, "changed": {changed, false},
	} {
		if err := explained(tc.got, log, 4, "a", "b"); (err == nil) != tc.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// withoutRepeats drops events that come again at once: so clients go on that know times only.
func withoutRepeats(events []stamped) (out []stamped, repeats int) {
	for i, e := range events {
		if i > 0 && e.TimeUS == events[i-1].TimeUS && cmp.Equal(e.JSON, events[i-1].JSON) {
			repeats++
			continue
		}
		out = append(out, e)
	}
	return out, repeats
}

// Clients that others have written read from a server that is killed and started again. With a
// filter, a cursor and an options update each receives the events it asked for, all of them and in
// order.
func TestOthersClients(t *testing.T) {
	needsClients(t)
	t.Parallel()
	dir := npmInstall(t, "testdata/clients")
	const first, second = "app.bsky.feed.like", "app.bsky.feed.post"
	for name, script := range map[string]string{
		"@skyware/jetstream": `["skyware.mjs","{\"endpoint\":\"ws://ADDR/subscribe\",\"wantedCollections\":[\"` + first + `\"],\"cursor\":CURSOR}"]`,
		"@atcute/jetstream":  `["atcute.mjs","{\"url\":\"ws://ADDR\",\"wantedCollections\":[\"` + first + `\"],\"cursor\":CURSOR}"]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := startRelaysim(t, "--rate", "200", "--wait-for-consumer")
			data, addr := t.TempDir(), freeAddr(t)
			server := startMillrace(t, sim.url, data, addr)
			sim.waitMade(t, 400)
			waitServing(t, addr)
			from := readFirst(t, addr, 100)[99].TimeUS
			var args []string
			script = strings.NewReplacer("ADDR", addr, "CURSOR", fmt.Sprint(from)).Replace(script)
			fromJSON(t, script, &args)
			c := startJS(t, dir, args...)
			c.reach(t, 50)
			waitFor(t, "it is live", func() bool { return time.Since(time.UnixMicro(c.last().TimeUS)) < time.Second })
			server.kill()
			startMillrace(t, sim.url, data, addr)
			c.reach(t, c.count()+100)
			c.send(t, `{"wantedCollections":["`+second+`"]}`)
			waitFor(t, "the update", func() bool { return c.last().Collection == second })
			c.reach(t, c.count()+50)
			c.stop()

			log := readStamped(t, heldTruth(t, sim, addr))
			got, repeats := withoutRepeats(readStamped(t, c.events))
			if err := explained(got, log, from, first, second); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(c.said(), "open"); n < 2 || strings.Contains(c.said(), "invalid event") {
				t.Errorf("%d connections; it said\n%s", n, c.said())
			}
			changed := slices.ContainsFunc(got, func(e stamped) bool { return e.Collection == second })
			if !changed || repeats > 2 {
				t.Errorf("updated: %v, %d repeats", changed, repeats)
			}
			t.Logf("%d events over a restart and an update, %d repeated by the inclusive cursor", len(got), repeats)
		})
	}
	t.Run("wscat", func(t *testing.T) {
		t.Parallel()
		wscatReads(t, dir, first, second)
	})
}

// wscatReads is the same with a client that does not reconnect: the test starts it again, with the
// last cursor that it received.
func wscatReads(t *testing.T, dir, first, second string) {
	sim := startRelaysim(t, "--rate", "200", "--wait-for-consumer")
	data, addr := t.TempDir(), freeAddr(t)
	server := startMillrace(t, sim.url, data, addr)
	sim.waitMade(t, 400)
	waitServing(t, addr)
	from := readFirst(t, addr, 100)[99].TimeUS
	wscat := func(collection string, cursor int64) *jsClient {
		return startJS(t, dir, "node_modules/wscat/bin/wscat", "--no-color", "--connect",
			fmt.Sprintf("ws://%s/subscribe?wantedCollections=%s&cursor=%d", addr, collection, cursor))
	}
	c := wscat(first, from)
	c.reach(t, 50)
	server.kill()
	select {
	case <-c.done:
	case <-time.After(patience):
		t.Fatal("wscat does not notice that the server is gone")
	}
	events := c.events
	startMillrace(t, sim.url, data, addr)
	waitServing(t, addr)
	seen := readStamped(t, events)
	c = wscat(first, seen[len(seen)-1].TimeUS)
	c.reach(t, 100)
	c.send(t, `{"type":"options_update","payload":{"wantedCollections":["`+second+`"]}}`)
	waitFor(t, "the update", func() bool { return c.last().Collection == second })
	c.reach(t, c.count()+50)
	c.stop()

	got, repeats := withoutRepeats(readStamped(t, append(events, c.events...)))
	if err := explained(got, readStamped(t, heldTruth(t, sim, addr)), from, first, second); err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(got, func(e stamped) bool { return e.Collection == second }) || repeats != 1 {
		t.Errorf("no update, or %d repeats", repeats)
	}
}

// heldTruth makes sure that the log is the simulator's truth, which goes on no more, and returns it
// with the log's stamps.
func heldTruth(t *testing.T, sim *simulator, addr string) []string {
	t.Helper()
	want := sim.settle(t)
	events := readAll(t, addr, "cursor=0", len(want))
	checkExact(t, "the log", events, want)
	lines := make([]string, len(want))
	for i, e := range want {
		lines[i] = strings.Replace(e.JSON, `"time_us":0`, fmt.Sprintf(`"time_us":%d`, events[i].TimeUS), 1)
	}
	return lines
}
