package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	lexutil "github.com/bluesky-social/indigo/lex/util"
	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"

	"millrace/consume/relaysim/cbor"
	"millrace/replay/links"
	"millrace/replay/references"
)

// sortedLines returns the lines of a file in order.
func sortedLines(t *testing.T, name string) []string {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	slices.Sort(lines)
	return lines
}

// repositoryOf is a CAR file of a repository with one record.
func repositoryOf(t *testing.T, did, path string, record cbor.Map) []byte {
	t.Helper()
	var blocks []byte
	add := func(data []byte) cid.Cid {
		id, err := cid.NewPrefixV1(cid.DagCBOR, multihash.SHA2_256).Sum(data)
		if err != nil {
			t.Fatal(err)
		}
		blocks = cbor.AppendCARSection(blocks, id.Bytes(), data)
		return id
	}
	node, root, err := (&mst.NodeData{Entries: []mst.EntryData{{KeySuffix: []byte(path), Value: add(cbor.Append(nil, record))}}}).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	add(node)
	commit := repo.Commit{DID: did, Version: repo.ATPROTO_REPO_VERSION, Data: *root, Rev: "3k4duaz5vfs2b", Sig: []byte("none")}
	var buf bytes.Buffer
	if err := commit.MarshalCBOR(&buf); err != nil {
		t.Fatal(err)
	}
	head := add(buf.Bytes())
	return append(cbor.AppendCARHeader(nil, head.Bytes()), blocks...)
}

// switchLinksOn builds links of a server that does not run.
func switchLinksOn(t *testing.T, dir string) {
	t.Helper()
	store, err := references.Open(references.Config{Dir: filepath.Join(dir, "refs"), Links: references.LinksOn})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- store.Run(ctx) }()
	waitFor(t, "the links", func() bool { return links.New(store).Progress().Complete })
	cancel()
	if err := errors.Join(<-ran, store.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestReferencesCommands: what a server noted is sound and can be exported, forgotten, and imported
// again, from both formats and from a repository. Each command says what it did.
func TestReferencesCommands(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	sim := startRelaysim(t, "--frames", "800", "--wait-for-consumer")
	dir := t.TempDir()
	d := startDaemon(t, sim.url, dir, "--references", "on", "--memory", "256MiB")
	sim.waitMade(t, 800)
	readAll(t, d.addr, "cursor=0", len(readTruth(t, sim.truth)))
	out := filepath.Join(t.TempDir(), "refs")
	for _, args := range [][]string{{"verify"}, {"export"}, {"import", "--as-of", "2026-11-24T12:00:00Z", "/dev/null"}, {"purge", "did:web:example.com"}} {
		args = append([]string{"references", args[0], "--data-dir", dir}, args[1:]...)
		if code, text := millrace(t, args...); code != exitFailed || !strings.Contains(text, "stop the server") {
			t.Errorf("%v beside a running server: exit code %d\n%s", args, code, text)
		}
	}
	d.mustStop(t)
	run := func(code int, says string, args ...string) string {
		t.Helper()
		got, text := millrace(t, append([]string{"references", args[0], "--data-dir", dir}, args[1:]...)...)
		if got != code || !strings.Contains(text, says) {
			t.Fatalf("references %v: exit code %d, which should say %q:\n%s", args, got, says, text)
		}
		return text
	}
	sound := func(compared bool) {
		t.Helper()
		text := run(exitOK, "; 0 problems", "verify")
		if m := regexp.MustCompile(`; (\d+) records compared with (\d+) events`).FindStringSubmatch(text); compared && (m == nil || len(m[1]) < 3 || len(m[2]) < 3) {
			t.Errorf("too little was compared: %s", text)
		}
	}
	sound(true)
	if code, out := millrace(t, "links", "verify", "--data-dir", dir); code != exitFailed || !strings.Contains(out, "--links") {
		t.Errorf("links verify without links: exit code %d\n%s", code, out)
	}
	switchLinksOn(t, dir) // what follows keeps them
	if code, out := millrace(t, "links", "verify", "--data-dir", dir); code != exitOK || !strings.HasSuffix(out, " large; 0 problems\n") || strings.HasPrefix(out, "0 links") {
		t.Errorf("links verify: exit code %d\n%s", code, out)
	}
	if m := regexp.MustCompile(`(\d+) links in \d+ sets`).FindStringSubmatch(run(exitOK, "; 0 problems", "verify")); m == nil || len(m[1]) < 3 {
		t.Errorf("too few links were compared: %q", m)
	}
	before := hashesOf(t, dir)
	said := run(exitOK, "exported ", "export", "--out", out)
	run(exitOK, "exported ", "export", "--out", out+".csv", "--format", "csv")
	for name, sum := range hashesOf(t, dir) {
		if before[name] != sum {
			t.Errorf("export and verify change %s", name)
		}
	}
	all := sortedLines(t, out)
	did := regexp.MustCompile(`"did":"([^"]+)"`).FindStringSubmatch(all[0])[1]
	own := slices.DeleteFunc(slices.Clone(all), func(l string) bool { return !strings.Contains(l, `{"did":"`+did+`"`) })
	asOf := regexp.MustCompile(`--as-of (\S+)`).FindStringSubmatch(said)[1]
	if n := len(sortedLines(t, out+".csv")); n != len(all)+1 || len(own) == len(all) {
		t.Fatalf("%d lines of CSV, %d of NDJSON, %d of them of one account", n, len(all), len(own))
	}
	same := func(name string, want []string, args ...string) {
		t.Helper()
		run(exitOK, "exported", append([]string{"export", "--out", out + ".again"}, args...)...)
		if got := sortedLines(t, out+".again"); !slices.Equal(got, want) {
			t.Errorf("%s: %d lines, want %d", name, len(got), len(want))
		}
	}
	same("one account", own, "--did", did)
	likes := slices.DeleteFunc(slices.Clone(all), func(l string) bool {
		return !strings.Contains(l, `"collection":"app.bsky.feed.like"`) || !strings.Contains(l, `"path":"subject.uri"`)
	})
	same("one source", likes, "--source", "app.bsky.feed.like:subject.uri")
	run(exitOK, "which replace all that an import finds of their accounts", "export", "--out", out+".again", "--source", "app.bsky.feed.like:subject.uri")
	if strings.Contains(said, "replace") {
		t.Errorf("an export of all sources warns: %s", said)
	}

	// A repository of an account that the server has not seen.
	const unknown = "did:web:unknown.example.com"
	car := writeFile(t, out+".car", string(repositoryOf(t, unknown, "app.bsky.feed.like/1", cbor.Map{{Key: "uri", Value: "at://" + did}})))
	run(exitFailed, "too old", "import", car)
	run(exitOK, "imported 1 accounts with 1 records and 1 references", "import", "--as-of", asOf, car)
	row := `{"did":"` + unknown + `","collection":"app.bsky.feed.like","rkey":"1","path":"uri","subject":"at://` + did + `"}`
	same("a repository", []string{row}, "--did", unknown)
	all = append(all, row)
	slices.Sort(all)
	run(exitFailed, "too old", "import", "--as-of", "2026-01-01T00:00:00Z", out)
	same("after the refused import", all)
	// Imports, which change nothing, since the log is above them.
	run(exitOK, "imported ", "import", "--as-of", asOf, out)
	same("after the import", all)
	run(exitOK, "imported 0 accounts", "import", "--as-of", asOf, out+".csv")
	sound(false) // of what was imported the import counts
	run(exitFailed, "line 2: it is not a JSON object", "import", "--as-of", asOf, writeFile(t, out+".bad", all[0]+"\nx\n"))
	run(exitFailed, "give --as-of TIME", "import", out)
	same("after refused imports", all)

	// An account that is purged is gone, and stays so.
	run(exitOK, "purged "+did, "purge", did)
	others := slices.DeleteFunc(slices.Clone(all), func(l string) bool { return slices.Contains(own, l) })
	same("after the purge", others)
	run(exitFailed, "the account was purged", "import", "--as-of", asOf, writeFile(t, out+".own", strings.Join(own, "\n")))
	same("after the import of what was purged", others)
	sound(false) // of what was imported the import counts

	if err := os.Rename(filepath.Join(dir, "refs"), filepath.Join(dir, "refs.moved")); err != nil {
		t.Fatal(err)
	}
	run(exitFailed, "there is no reference store", "verify")
}

// TestReferencesCommandUsage: mistakes are reported before a store is opened or a file is made.
func TestReferencesCommandUsage(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	for _, args := range []string{
		"", "nope", "import", "import --as-of yesterday file", "import --as-of 2999-01-01T00:00:00Z file", "import --nope file",
		"export file", "export --format xml", "export --did alice.example.com", "export --source like", "verify file", "verify --intern=fdb",
		"purge", "purge did:web:a.example did:web:b.example", "purge alice.example.com",
	} {
		line := append([]string{"references"}, strings.Fields(args)...)
		if args != "" && args != "nope" {
			line = append(line, "--data-dir", dir)
		}
		if code, text := millrace(t, line...); code != exitUsage {
			t.Errorf("%v: exit code %d\n%s", line, code, text)
		}
	}
	for _, args := range [][]string{{"verify"}, {"export"}, {"purge", "did:web:example.com"}, {"import", "--as-of", "2026-11-24T12:00:00Z", "/dev/null"}} {
		args = append([]string{"references", args[0], "--data-dir", dir}, args[1:]...)
		if code, text := millrace(t, args...); code != exitFailed || !strings.Contains(text, "there is no reference store") {
			t.Errorf("%v: exit code %d\n%s", args, code, text)
		}
	}
	if code, text := millrace(t, "references", "import", "--data-dir", dir, "/no/such/file"); code != exitFailed || !strings.Contains(text, "no such file") {
		t.Errorf("a file that is missing: exit code %d\n%s", code, text)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a data directory is made: %v", err)
	}
	for _, sub := range []string{"import", "export", "verify", "purge"} {
		if code, text := millrace(t, "references", sub, "--help"); code != exitOK || !strings.Contains(text, fmt.Sprintf("millrace references %s", sub)) {
			t.Errorf("help of %s: exit code %d\n%s", sub, code, text)
		}
	}
}

// TestPurgeOfASubject: an account that is known as a subject only is purged as others are.
func TestPurgeOfASubject(t *testing.T) {
	t.Parallel()
	const follower, subject = "did:web:follower.example.com", "did:web:subject.example.com"
	dir := oneEvent(t, newTestRelay(t))
	asOf := time.Now().UTC().Format(time.RFC3339Nano)
	follow := func(did, subject string) string {
		return writeFile(t, filepath.Join(t.TempDir(), "follow"), `{"did":"`+did+`","collection":"app.bsky.graph.follow","rkey":"1","path":"subject","subject":"`+subject+`"}`)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"import", "--as-of", asOf, follow(follower, subject)}, exitOK, "imported 1 accounts"},
		{[]string{"purge", subject}, exitOK, "purged " + subject + ": 0 records"},
		{[]string{"import", "--as-of", asOf, follow(subject, follower)}, exitFailed, "the account was purged"},
	} {
		args := append([]string{"references", c.args[0], "--data-dir", dir}, c.args[1:]...)
		if code, out := millrace(t, args...); code != c.code || !strings.Contains(out, c.says) {
			t.Fatalf("%v: exit code %d, which should say %q:\n%s", args, code, c.says, out)
		}
	}
}

// TestPurgeByTheClock: a purge of an account without a commit is neither of a time to come, though
// the log's stamps are, nor of none, though the log was trimmed.
func TestPurgeByTheClock(t *testing.T) {
	t.Parallel()
	for name, ahead := range map[string]time.Duration{"ahead": 365 * 24 * time.Hour, "trimmed": 0} {
		relay := newTestRelay(t)
		dir := oneEventAt(t, relay, ahead)
		if ahead == 0 {
			d := startDaemon(t, relay.url, dir, "--references", "on", "--memory", "256MiB")
			if err := d.log.TrimTo(t.Context(), 0); err != nil || d.log.Range().Events != 0 {
				t.Fatalf("%v, %+v", err, d.log.Range())
			}
			d.mustStop(t)
		}
		const did = "did:plc:ewvi7nxzyoun6zhxrhs64oiz" // of identityFrame
		if code, out := millrace(t, "references", "purge", "--data-dir", dir, did); code != exitOK {
			t.Fatalf("exit code %d: %s", code, out)
		}
		c := &refsPurge{}
		c.register(newFlags("test"))
		c.dataDir = dir
		s, err := c.open(t.Context(), refsRead, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		uid, err := s.uidOf(t.Context(), did)
		if err != nil {
			t.Fatal(err)
		}
		account, _, err := s.store.Account(uid)
		if err = errors.Join(err, s.close()); err != nil || account.Purged == 0 || int64(account.Purged>>10) > time.Now().UnixMicro() {
			t.Errorf("%s: %+v, %v", name, account, err)
		}
	}
}

// TestStampsAhead: export, import and doctor say that a log was begun while the clock was ahead,
// and what to do.
func TestStampsAhead(t *testing.T) {
	t.Parallel()
	dir := oneEventAt(t, newTestRelay(t), 365*24*time.Hour)
	asOf := time.Now().UTC().Format(time.RFC3339Nano)
	for _, c := range []struct {
		line []string
		code int
		says string
	}{
		{[]string{"references", "export", "--data-dir", dir}, exitOK, "--as-of the time when the server was stopped"},
		{[]string{"references", "import", "--as-of", asOf, "--data-dir", dir, os.DevNull}, exitFailed, "move its directories log and refs away"},
		{[]string{"doctor", dir}, exitOK, "stamped ahead of the clock"},
	} {
		if code, out := millrace(t, c.line...); code != c.code || !strings.Contains(out, c.says) {
			t.Errorf("%v: exit code %d, which should say %q:\n%s", c.line, code, c.says, out)
		}
	}
}

// TestExportAfterAGap: an export says since when deletes may be missing, if they may.
func TestExportAfterAGap(t *testing.T) {
	t.Parallel()
	relay := newTestRelay(t)
	dir := oneEvent(t, relay)
	const says = "what was deleted since 20"
	export := func() string {
		code, out := millrace(t, "references", "export", "--data-dir", dir)
		if code != exitOK {
			t.Fatalf("exit code %d: %s", code, out)
		}
		return out
	}
	if out := export(); strings.Contains(out, says) {
		t.Errorf("without a gap: %s", out)
	}
	relay.left(t)
	d := startDaemon(t, relay.url, dir, "--references", "on", "--memory", "256MiB")
	relay.send <- identityFrame(t, 5).Data
	waitFor(t, "the event behind the gap", func() bool { return d.log.Progress().Seq == 5 })
	d.mustStop(t)
	if out := export(); !strings.Contains(out, says) {
		t.Errorf("with a gap: %s", out)
	}
}

// oneEvent returns the data directory of a server with references that has stored one event.
func oneEvent(t *testing.T, relay *testRelay) (dir string) {
	t.Helper()
	return oneEventAt(t, relay, 0)
}

// oneEventAt is oneEvent of a server whose clock is ahead.
func oneEventAt(t *testing.T, relay *testRelay, ahead time.Duration) (dir string) {
	t.Helper()
	dir = t.TempDir()
	now := func() time.Time { return time.Now().Add(ahead) }
	d := startDaemonOn(t, testHooks{now: now}, relay.url, dir, "--references", "on", "--memory", "256MiB")
	relay.send <- identityFrame(t, 1).Data
	waitFor(t, "an event", func() bool { return d.log.Progress().Seq == 1 })
	d.mustStop(t)
	return dir
}

// TestDeleteOfAnImportedRecord: the deletion of a record that was only imported says what it
// pointed at.
func TestDeleteOfAnImportedRecord(t *testing.T) {
	t.Parallel()
	const unknown, subject = "did:web:unknown.example.com", "at://did:web:example.com/a.b.c/1"
	relay := newTestRelay(t)
	dir := oneEvent(t, relay)
	car := writeFile(t, filepath.Join(t.TempDir(), "car"), string(repositoryOf(t, unknown, "a.b.c/1", cbor.Map{{Key: "uri", Value: subject}})))
	asOf := time.Now().UTC().Format(time.RFC3339Nano)
	if code, out := millrace(t, "references", "import", "--data-dir", dir, "--as-of", asOf, car); code != exitOK || !strings.Contains(out, "imported 1 accounts") {
		t.Fatalf("import: exit code %d\n%s", code, out)
	}
	relay.left(t)
	d := startDaemon(t, relay.url, dir, "--references", "on", "--memory", "256MiB")
	commit := lexutil.LexLink(cid.NewCidV1(cid.DagCBOR, multihash.Multihash(append([]byte{0x12, 32}, make([]byte, 32)...))))
	relay.send <- frameOf(t, 2, "#commit", &comatproto.SyncSubscribeRepos_Commit{
		Repo: unknown, Rev: "3k4duaz5vfs2c", Seq: 2, Time: "2026-11-20T00:00:00Z", Commit: commit, Blobs: []lexutil.LexLink{},
		Ops: []*comatproto.SyncSubscribeRepos_RepoOp{{Action: "delete", Path: "a.b.c/1"}},
	}).Data
	waitFor(t, "the deletion", func() bool { return d.log.Progress().Seq == 2 })
	events := readAll(t, d.addr, "cursor=0&references=true&wantedSubjects="+subject, 2)
	last := events[len(events)-1]
	if got := fmt.Sprintf("%+v", last.References); len(events) != 2 || !strings.Contains(got, subject) || !strings.Contains(got, "a.b.c:uri") {
		t.Errorf("the deletion says %+v", last)
	}
}
