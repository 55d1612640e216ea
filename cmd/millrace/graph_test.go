package main

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"millrace/public"
	"millrace/replay/graph"
	"millrace/translate"
)

// graphSources has the source of each kind of edge, by the names of its sets.
var graphSources = map[string]string{
	"follows": "app.bsky.graph.follow:subject", "followers": "app.bsky.graph.follow:subject",
	"blocks": "app.bsky.graph.block:subject", "blockedBy": "app.bsky.graph.block:subject",
}

// graphOf returns the sets, by expression, that the records after all of these events make, in
// plain maps.
func graphOf(t *testing.T, log []truthEvent) map[string]map[string]bool {
	t.Helper()
	sets := map[string]map[string]bool{}
	add := func(name, of, member string) {
		set := name + ":" + of
		if sets[set] == nil {
			sets[set] = map[string]bool{}
		}
		sets[set][member] = true
	}
	for uri, refs := range tableOf(t, slices.Clone(log)).Records() {
		parts := strings.Split(uri, "/")
		for _, ref := range refs {
			if !strings.HasPrefix(ref.Subject(), "did:") {
				continue
			}
			switch source := parts[3] + ":" + ref.Path(); source {
			case graphSources["follows"]:
				add("follows", parts[2], ref.Subject())
				add("followers", ref.Subject(), parts[2])
			case graphSources["blocks"]:
				add("blocks", parts[2], ref.Subject())
				add("blockedBy", ref.Subject(), parts[2])
			}
		}
	}
	return sets
}

// sorted returns the members of a set in order.
func sorted[V any](set map[string]V) []string { return slices.Sorted(maps.Keys(set)) }

// graphPage is an answer about a set.
type graphPage struct {
	Count    int
	Members  []string
	Cursor   *string
	Complete bool
	Static   bool
}

// graphMembers pages through an expression, whose sets have static edges or not.
func graphMembers(t *testing.T, addr, expr string, limit int, static bool) (members []string) {
	t.Helper()
	values := url.Values{"expr": {expr}, "limit": {fmt.Sprint(limit)}}
	for {
		var page graphPage
		getLinks(t, addr, "/sets", values, &page)
		members = append(members, page.Members...)
		if page.Complete == page.Static || page.Static != static {
			t.Fatalf("%s: complete %v, static %v", expr, page.Complete, page.Static)
		}
		if page.Cursor == nil {
			if page.Count != len(members) {
				t.Fatalf("%s: the count is %d, of %d members", expr, page.Count, len(members))
			}
			slices.Sort(members)
			return members
		}
		values.Set("cursor", *page.Cursor)
	}
}

// checkGraph compares sets of a graph, and what two have in common, with plain maps. It begins with
// the first set, and passes over as many as step says.
func checkGraph(t *testing.T, addr string, sets map[string]map[string]bool, step int) {
	t.Helper()
	names := sorted(sets)
	for i := 0; i < len(names); i += step {
		name := names[i]
		if diff := gocmp.Diff(sorted(sets[name]), graphMembers(t, addr, name, 1+i%7, false)); diff != "" {
			t.Fatalf("%s (-want +got):\n%.2000s", name, diff)
		}
		other := names[(i*31+7)%len(names)]
		both := slices.DeleteFunc(sorted(sets[name]), func(did string) bool { return !sets[other][did] })
		if diff := gocmp.Diff(both, graphMembers(t, addr, name+" and "+other, 100, false)); diff != "" && len(both) > 0 {
			t.Fatalf("%s and %s (-want +got):\n%.2000s", name, other, diff)
		}
	}
}

// waitGraph waits until the graph is at a position.
func waitGraph(t *testing.T, addr, at string) {
	t.Helper()
	waitFor(t, "the graph", func() bool {
		resp, err := http.Get("http://" + addr + "/sets/count?expr=follows:did:web:example.com&wait=10000&at=" + at)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// checkGraph compares a sample of the sets with those of the log's records.
func (r *round) checkGraph(log []truthEvent) {
	r.t.Helper()
	waitGraph(r.t, r.addr, lastCursor(r.t, r.addr))
	sets := graphOf(r.t, log)
	checkGraph(r.t, r.addr, sets, 1+len(sets)/500)
	r.total.add("rounds with a graph", 1)
	r.total.add("sets of graphs", len(sets))
}

// TestGraph: a server that is killed and restarted, has a graph only from then on, and saves it,
// answers what the truth says of each set.
func TestGraph(t *testing.T) {
	t.Parallel()
	sim := startRelaysim(t, "--rate", "1200", "--wait-for-consumer", "--churn-every", "3", "--truth-references")
	dir, addr := t.TempDir(), freeAddr(t)
	flags := []string{"--references=on", "--graph", "--graph-memory", "64MiB"}
	without := startMillrace(t, sim.url, dir, addr, "--references=on")
	waitServing(t, addr)
	readFirst(t, addr, 1) // until something is committed a restart begins live
	sim.waitMade(t, 1200)
	without.kill()
	killed := startMillrace(t, sim.url, dir, addr, flags...)
	saved := func() bool { _, err := os.Stat(filepath.Join(dir, "graph.snapshot")); return err == nil }
	waitFor(t, "a snapshot", saved)
	killed.kill()
	made := sim.messages(t)
	stopped := startMillrace(t, sim.url, dir, addr, append(flags, "--log-level", "info")...)
	waitServing(t, addr)
	waitFor(t, "events that are not in the snapshot", func() bool {
		at, err := translate.ParsePosition(lastCursor(t, addr))
		return err == nil && at.Seq > made
	})
	waitGraph(t, addr, lastCursor(t, addr))
	stopped.terminate()
	if said := stopped.stderr.String(); strings.Contains(said, "is built from the reference store") || !strings.Contains(said, "the graph is saved") {
		t.Errorf("after a kill the snapshot is of no use, or it is not saved at the end:\n%s", said)
	}
	last := startMillrace(t, sim.url, dir, addr, append(flags, "--log-level", "info")...)
	want := sim.settle(t)
	waitServing(t, addr)
	log := readAll(t, addr, "cursor=0", len(want))
	checkExact(t, "the log", log, want)
	waitGraph(t, addr, lastCursor(t, addr))
	sets := graphOf(t, log)
	checkGraph(t, addr, sets, 1+len(sets)/300)
	t.Logf("%d sets", len(sets))
	last.kill()
	if said := last.stderr.String(); !strings.Contains(said, "the graph is loaded") {
		t.Errorf("the snapshot was not used:\n%s", said)
	}
}

// TestGraphStatus: /readyz and /status say that the graph answers.
func TestGraphStatus(t *testing.T) {
	t.Parallel()
	relay := newTestRelay(t)
	d := startDaemon(t, relay.url, t.TempDir(), "--references=on", "--graph")
	waitFor(t, "the graph", func() bool {
		var ready struct{ Checks []public.Check }
		getJSON(t, "http://"+d.addr+"/readyz", &ready)
		i := slices.IndexFunc(ready.Checks, func(c public.Check) bool { return c.Name == "graph_built" })
		if i < 0 {
			t.Fatalf("checks %+v", ready.Checks)
		}
		return ready.Checks[i].OK
	})
	var status struct{ Graph *struct{ Complete bool } }
	getLinks(t, d.addr, "/status", nil, &status)
	if status.Graph == nil || !status.Graph.Complete {
		t.Errorf("/status: %+v", status.Graph)
	}
}

// TestGraphUsage: what --graph, or an import, does not go with is refused before the disk is
// touched.
func TestGraphUsage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	data := "--data-dir=" + dir
	for want, args := range map[string][]string{
		"--references=on":               {"serve", data, "--graph"},
		"--graph-memory 1MiB is below":  {"serve", data, "--graph", "--references=on", "--graph-memory=1MiB"},
		"--graph-memory 16MiB is below": {"graph", "import", data, "--graph-memory=16MiB", "edges.csv"},
	} {
		var out strings.Builder
		code := run(t.Context(), args, &out, &out)
		if code != exitUsage || !strings.Contains(out.String(), want) {
			t.Errorf("%v: exit code %d: %s", args, code, out.String())
		}
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the data directory: %v", err)
	}
}

// TestGraphForgotten: commands that change the table or the static edges remove the graph's
// snapshot, which has the same position; others, and those that fail, do not.
func TestGraphForgotten(t *testing.T) {
	t.Parallel()
	relay := newTestRelay(t)
	dir := t.TempDir()
	d := startDaemon(t, relay.url, dir, "--references=on", "--graph")
	relay.send <- createFrame(t, 1, nil).Data
	waitFor(t, "the event", func() bool { return d.refs.Position().Seq == 1 && d.graph.Progress().Complete })
	d.mustStop(t)
	rows := writeFile(t, filepath.Join(t.TempDir(), "rows.csv"), "did,collection,rkey,path,subject\n")
	edges := writeFile(t, filepath.Join(t.TempDir(), "edges.csv"), "did:web:a.example,did:web:b.example\n")
	wrong := writeFile(t, filepath.Join(t.TempDir(), "wrong.csv"), "did:web:a.example\n")
	snapshot := filepath.Join(dir, "graph.snapshot")
	for _, c := range []struct {
		keeps bool
		code  int
		args  []string
	}{
		{true, exitOK, []string{"references", "verify"}},
		{true, exitOK, []string{"references", "export"}},
		{true, exitOK, []string{"graph", "export"}},
		{true, exitFailed, []string{"graph", "import", wrong}},
		{true, exitFailed, []string{"references", "purge", "did:web:unknown.example"}},
		{true, exitFailed, []string{"references", "import", rows}}, // without --as-of
		{false, exitOK, []string{"references", "purge", "did:plc:ewvi7nxzyoun6zhxrhs64oiz"}},
		{false, exitOK, []string{"references", "import", "--as-of", "2026-11-24T12:00:00Z", rows}},
		{false, exitOK, []string{"graph", "import", edges}},
		{false, exitOK, []string{"graph", "remove"}},
	} {
		if !c.keeps {
			writeFile(t, snapshot, "")
		}
		if code, out := millrace(t, append([]string{c.args[0], c.args[1], "--data-dir", dir}, c.args[2:]...)...); code != c.code {
			t.Fatalf("%v: exit code %d\n%s", c.args, code, out)
		}
		if _, err := os.Stat(snapshot); (err == nil) != c.keeps {
			t.Errorf("after %v: %v", c.args, err)
		}
	}
}

// TestGraphCommands: static edges are in the answers of every later server, flagged, over restarts
// and in a backup, until they are removed. Exports can be imported.
func TestGraphCommands(t *testing.T) {
	t.Parallel()
	sim := startRelaysim(t, "--frames", "600", "--wait-for-consumer")
	dir, addr := t.TempDir(), freeAddr(t)
	flags := []string{"--references=on", "--graph", "--graph-memory", "64MiB"}
	d := startMillrace(t, sim.url, dir, addr, flags...)
	sim.waitMade(t, 600)
	log := readAll(t, addr, "cursor=0", len(readTruth(t, sim.truth)))
	waitGraph(t, addr, lastCursor(t, addr))
	sets := graphOf(t, log)
	if code, out := millrace(t, "graph", "import", "--data-dir", dir, "/dev/null"); code != exitFailed || !strings.Contains(out, "stop the server") {
		t.Errorf("beside a running server: exit code %d\n%s", code, out)
	}
	d.terminate()

	graph := func(code int, says string, args ...string) {
		t.Helper()
		got, out := millrace(t, append([]string{"graph", args[0], "--data-dir", dir}, args[1:]...)...)
		if got != code || !strings.Contains(out, says) {
			t.Fatalf("graph %v: exit code %d, which should say %q:\n%s", args, got, says, out)
		}
	}
	file := filepath.Join(t.TempDir(), "edges.csv")
	exported := func(args ...string) []string {
		t.Helper()
		graph(exitOK, "exported ", append([]string{"export", "--out", file + ".out"}, args...)...)
		return sortedLines(t, file+".out")
	}
	ofRecords := exported()
	if want := 1 + countEdges(sets, "follows:"); len(ofRecords) != want {
		t.Errorf("%d lines are exported, want %d", len(ofRecords), want)
	}
	const unknown = "did:web:unknown.example.com"
	var follower, followed string // of a record
	for _, name := range sorted(sets) {
		if did, ok := strings.CutPrefix(name, "follows:"); ok {
			follower, followed = did, sorted(sets[name])[0]
		}
	}
	edges := []string{follower + "," + followed, follower + "," + unknown, unknown + "," + followed}
	writeFile(t, file, strings.Join(edges, "\n"))
	graph(exitFailed, "line 2: \"x\" is no DID", "import", writeFile(t, file+".bad", edges[0]+"\n"+follower+",x\n"))
	graph(exitFailed, "graph.static", "export", "--static")
	for range 2 {
		graph(exitOK, "read 3 lines; there are 3 static edges now", "import", file)
	}
	graph(exitFailed, "graph.snapshot", "export")
	graph(exitOK, "read 1 lines; there are 4 static edges now", "import", "--kind", "blocks", writeFile(t, file+".blocks", edges[2]))
	slices.Sort(edges)
	if got := exported("--static"); !slices.Equal(got, append([]string{"actor,subject"}, edges...)) {
		t.Errorf("exported %q", got)
	}
	graph(exitOK, "read 3 lines; there are 4 static edges now", "import", file+".out")
	others := copyOf(t, dir)
	saveStaticOf(t, filepath.Join(others, "graph.static"), "another")
	if code, out := millrace(t, "graph", "export", "--data-dir", others, "--static"); code != exitFailed || !strings.Contains(out, "has UIDs of store another") {
		t.Errorf("exit code %d\n%s", code, out)
	}

	static := func(dir string) {
		t.Helper()
		d := startMillrace(t, sim.url, dir, addr, flags...)
		waitServing(t, addr)
		waitGraph(t, addr, lastCursor(t, addr))
		for expr, want := range map[string][]string{
			"follows:" + follower:                           append(sorted(sets["follows:"+follower]), unknown),
			"followers:" + followed:                         append(sorted(sets["followers:"+followed]), unknown),
			"followers:" + unknown:                          {follower},
			"blocks:" + unknown:                             {followed},
			"blocks:" + unknown + " and follows:" + unknown: {followed},
		} {
			slices.Sort(want)
			if diff := gocmp.Diff(want, graphMembers(t, addr, expr, 3, true)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", expr, diff)
			}
		}
		other := "follows:" + followed
		if diff := gocmp.Diff(sorted(sets[other]), graphMembers(t, addr, other, 100, false)); diff != "" && len(sets[other]) > 0 {
			t.Errorf("%s (-want +got):\n%s", other, diff)
		}
		d.terminate()
	}
	static(dir) // builds the graph
	static(dir) // loads its snapshot
	saved := filepath.Join(t.TempDir(), "saved")
	if code, out := millrace(t, "backup", "--data-dir", dir, "--to", saved); code != exitOK {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	static(saved)
	if got := exported(); !slices.Equal(got, ofRecords) {
		t.Errorf("%d lines of records, want %d", len(got), len(ofRecords))
	}
	unfinished := filepath.Join(dir, "graph.static.tmp") // of an import that was killed
	writeFile(t, unfinished, "x")
	graph(exitOK, "there are no static edges now", "remove")
	if _, err := os.Stat(unfinished); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what an import left is still there: %v", err)
	}
	d = startMillrace(t, sim.url, dir, addr, flags...)
	waitServing(t, addr)
	waitGraph(t, addr, lastCursor(t, addr))
	checkGraph(t, addr, sets, 1)
	d.terminate()
}

// countEdges counts the members of the sets with a prefix.
func countEdges(sets map[string]map[string]bool, prefix string) (n int) {
	for name, set := range sets {
		if strings.HasPrefix(name, prefix) {
			n += len(set)
		}
	}
	return n
}

// TestGraphImportAdvice: an import that fails has imported nothing. If memory was short, it names
// the flag.
func TestGraphImportAdvice(t *testing.T) {
	var has *advised
	err := adviseImport(fmt.Errorf("edges.csv: %w", graph.ErrStaticMemory))
	if !errors.As(err, &has) || !strings.Contains(has.advice, "--graph-memory") || !strings.HasSuffix(has.err.Error(), "; nothing was imported") {
		t.Errorf("of short memory it says %v", err)
	}
	if err := adviseImport(os.ErrNotExist); errors.As(err, &has) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a missing file it says %v", err)
	}
	if err := adviseImport(nil); err != nil {
		t.Errorf("of success it says %v", err)
	}
}

// saveStaticOf writes a file of static edges of a UID store.
func saveStaticOf(t *testing.T, name, uidStore string) {
	t.Helper()
	g, err := graph.OpenStatic(filepath.Join(t.TempDir(), "none"), graph.Config{Sources: graph.DefaultSources(), StoreID: uidStore, Memory: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	err = g.Add(0, []graph.Edge{{Actor: 1, Subject: 2}})
	if err == nil {
		_, err = g.Save(t.Context(), name)
	}
	if err := errors.Join(err, g.Close()); err != nil {
		t.Fatal(err)
	}
}
