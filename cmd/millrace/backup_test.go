package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// uidsOf returns what each UID stands for in events, and checks that none stands for two strings.
func uidsOf(t *testing.T, events ...[]truthEvent) map[string]string {
	t.Helper()
	of := make(map[string]string)
	for _, es := range events {
		for _, e := range es {
			var body struct {
				DID    string
				Commit struct{ Collection, RKey string }
			}
			fromJSON(t, e.JSON, &body)
			note := func(uid, stands string) {
				if was, ok := of[uid]; ok && was != stands {
					t.Fatalf("UID %s stands for %s and for %s", uid, was, stands)
				}
				of[uid] = stands
			}
			note(e.DID, body.DID)
			if e.URI != "" {
				note(e.URI, "at://"+body.DID+"/"+body.Commit.Collection+"/"+body.Commit.RKey)
			}
			e.referenceUIDs(func(s, uid string) { note(uid, s) })
		}
	}
	return of
}

// checkStoreKnows asks the server what the UIDs stand for.
func checkStoreKnows(t *testing.T, addr string, uids map[string]string) {
	t.Helper()
	for batch := range slices.Chunk(slices.Collect(maps.Keys(uids)), 1000) {
		body, err := json.Marshal(map[string][]string{"uids": batch})
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.Post("http://"+addr+"/uids", "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		var answer struct{ UIDs map[string]*string }
		err = json.NewDecoder(resp.Body).Decode(&answer)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("POST /uids: %s, %v", resp.Status, err)
		}
		for _, uid := range batch {
			if got := answer.UIDs[uid]; got == nil || *got != uids[uid] {
				t.Fatalf("the store knows not what UID %s of the log stands for, %s", uid, uids[uid])
			}
		}
	}
}

// A backup of a running server under load is restored after the server was killed and all its data
// lost. Every event up to the backup is there as it was, and the relay is asked for the rest. No
// UID that anybody saw, those given out after the backup included, comes to stand for something
// else.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	sim := startRelaysim(t, "--rate", "1000", "--wait-for-consumer", "--churn-every", "5", "--truth-references")
	dir, addr := filepath.Join(t.TempDir(), "data"), freeAddr(t)
	// Of few sequences a restored server certainly goes on with one that was used after the backup.
	flags := []string{"--metrics-listen", "127.0.0.1:0", "--uid-prefix-bits", "1", "--references=on"}
	p := startMillrace(t, sim.url, dir, addr, flags...)
	waitServing(t, addr)
	follow := &follower{t: t, addr: addr, query: "&references=true", ended: make(chan struct{})}
	var following sync.WaitGroup
	following.Go(follow.run)
	t.Cleanup(func() { follow.stop(); following.Wait() })

	waitFor(t, "events", func() bool { return follow.count() > 1500 })
	saved := filepath.Join(filepath.Dir(dir), "saved")
	code, out := millrace(t, "backup", "--data-dir", dir, "--to", saved)
	if code != exitOK || !strings.Contains(out, "backed up to "+saved) {
		t.Fatalf("millrace backup: exit code %d\n%s", code, out)
	}
	manifest := readManifest(t, saved)
	waitFor(t, "events after the backup", func() bool { return follow.seq() > manifest.Seq+500 })
	p.kill()
	follow.stop()
	following.Wait()
	removeAll(t, dir)

	if err := os.Rename(saved, dir); err != nil {
		t.Fatal(err)
	}
	for _, check := range [][]string{{"verify", "--data-dir", dir}, {"intern", "verify", "--data-dir", dir}} {
		if code, out = millrace(t, check...); code != exitOK || !strings.Contains(out, " 0 problems") {
			t.Fatalf("millrace %s: exit code %d\n%s", strings.Join(check, " "), code, out)
		}
	}
	p = startMillrace(t, sim.url, dir, addr, flags...)
	want := sim.settle(t)
	waitServing(t, addr)
	got := readAll(t, addr, "references=true&cursor=0", len(want))
	checkExact(t, "the restored log", got, want)
	checkReferencesAre(t, "the restored log", got, want)
	checkUIDs(t, got)
	checkStoreKnows(t, addr, uidsOf(t, got))
	uidsOf(t, got, follow.events)

	kept, again := 0, 0
	for i, seen := range follow.events {
		switch {
		case got[i] == seen:
			kept++
		case seen.Seq <= manifest.Seq:
			t.Fatalf("%s was before the backup and is another one now: time_us %d, UIDs %s, %s; it was %d, %s, %s",
				seen.place(), got[i].TimeUS, got[i].DID, got[i].URI, seen.TimeUS, seen.DID, seen.URI)
		default:
			again++
		}
	}
	if kept < 1500 || again == 0 {
		t.Errorf("of what was seen before the crash %d events are as they were and %d came anew", kept, again)
	}
	p.terminate()
	checkRecordTable(t, dir, got)
	t.Logf("backup at seq %d; %d events kept, %d asked for again, %d in all", manifest.Seq, kept, again, len(got))
}

func readManifest(t *testing.T, dir string) (m backupManifest) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		t.Fatal(err)
	}
	fromJSON(t, raw, &m)
	return m
}

// A stopped server's data, a server that was killed, and one without a UID store are backed up as
// well. What is in the way is named.
func TestBackupOfAStoppedServer(t *testing.T) {
	t.Parallel()
	sim := startRelaysim(t, "--frames", "300", "--wait-for-consumer")
	dir := t.TempDir()
	d := startDaemon(t, sim.url, dir)
	sim.waitMade(t, 300)
	want := readTruth(t, sim.truth)
	before := readAll(t, d.addr, "cursor=0", len(want))
	to := filepath.Join(t.TempDir(), "saved")
	if code, out := millrace(t, "backup", "--data-dir", dir, "--to", to); code != exitFailed || !strings.Contains(out, "--metrics-listen") {
		t.Errorf("of a server that cannot be asked: exit code %d\n%s", code, out)
	}
	d.mustStop(t)
	if err := os.Mkdir(filepath.Join(dir, "refs"), 0o750); err != nil { // the server was making it
		t.Fatal(err)
	}
	killed := &control{Address: freeAddr(t), Token: "stale"}
	if err := killed.publish(dir); err != nil {
		t.Fatal(err)
	}
	interrupted, interrupt := context.WithCancelCause(t.Context())
	interrupt(errors.New("the test interrupts it"))
	var out commandOutput
	if code := run(interrupted, []string{"backup", "--data-dir", dir, "--to", to}, &out, &out); code != exitInterrupted || !strings.Contains(out.String(), "the test interrupts it") {
		t.Fatalf("interrupted: exit code %d\n%s", code, out.String())
	}
	if code, out := millrace(t, "backup", "--data-dir", dir, "--to", to); code != exitOK {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	m := readManifest(t, to)
	if m.Seq != d.log.Progress().Seq || m.UIDStore != d.uids.storeID() || m.Dir != to {
		t.Errorf("manifest %+v", m)
	}
	for _, tc := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"over another", []string{"--data-dir", dir, "--to", to}, exitFailed, "exists"},
		{"of nothing", []string{"--data-dir", t.TempDir(), "--to", to + "2"}, exitFailed, "there is no log"},
		{"nowhere", []string{"--data-dir", dir}, exitUsage, "--to is missing"},
		{"below nothing", []string{"--data-dir", dir, "--to", filepath.Join(to, "a", "b")}, exitFailed, "directory above"},
	} {
		if code, out := millrace(t, append([]string{"backup"}, tc.args...)...); code != tc.code || !strings.Contains(out, tc.says) {
			t.Errorf("%s: exit code %d\n%s", tc.name, code, out)
		}
	}
	if left, err := filepath.Glob(to + "*.partial"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	restored := startDaemon(t, sim.url, to)
	if diff := cmp.Diff(before, readAll(t, restored.addr, "cursor=0", len(want))); diff != "" {
		t.Errorf("the restored log: -want +got\n%s", diff)
	}

	off := startDaemon(t, sim.url, t.TempDir(), "--intern", "off", "--metrics-listen", "127.0.0.1:0")
	if code, out := millrace(t, "backup", "--data-dir", off.cfg.dataDir, "--to", to+"3"); code != exitOK || !strings.Contains(out, "no UID store") {
		t.Errorf("without UIDs: exit code %d\n%s", code, out)
	}
}

// Only who may read the data directory, and is on the machine, may have a backup made, and not
// everywhere.
func TestBackupIsGuarded(t *testing.T) {
	t.Parallel()
	relay := newTestRelay(t)
	d := startDaemon(t, relay.url, t.TempDir(), "--metrics-listen", "127.0.0.1:0")
	c, err := readControl(d.cfg.dataDir)
	if err != nil || c == nil {
		t.Fatalf("control.json: %v, %v", c, err)
	}
	if info, err := os.Stat(filepath.Join(d.cfg.dataDir, controlFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("control.json: %v, %v", info.Mode(), err)
	}
	ask := func(handler http.Handler, remote, token, body string) (int, string) {
		r := httptest.NewRequest(http.MethodPost, "/backup", strings.NewReader(body))
		r.RemoteAddr = remote
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	to := filepath.Join(t.TempDir(), "saved")
	good := func(to string) string { return fmt.Sprintf(`{"to":%q}`, to) }
	routes := d.operatorRoutes(&backups{token: d.control.Token, make: d.backUp})
	for _, tc := range []struct {
		name, remote, token, body string
		want                      int
	}{
		{"wrong token", "127.0.0.1:9", "x", good(to), http.StatusUnauthorized},
		{"no token", "127.0.0.1:9", "", good(to), http.StatusUnauthorized},
		{"another machine", "192.0.2.1:9", c.Token, good(to), http.StatusForbidden},
		{"no JSON", "127.0.0.1:9", c.Token, "to=/x", http.StatusBadRequest},
		{"endless", "127.0.0.1:9", c.Token, `{"to":"` + strings.Repeat("x", maxBackupRequest), http.StatusBadRequest},
		{"relative", "127.0.0.1:9", c.Token, good("saved"), http.StatusInternalServerError},
		{"within the log", "127.0.0.1:9", c.Token, good(filepath.Join(d.cfg.logDir(), "saved")), http.StatusInternalServerError},
		{"within the UIDs", "127.0.0.1:9", c.Token, good(d.cfg.dataDir + "/x/../intern/saved"), http.StatusInternalServerError},
		{"right", "[::1]:9", c.Token, good(to), http.StatusOK},
		{"mapped", "[::ffff:127.0.0.1]:9", c.Token, good(to), http.StatusInternalServerError},
		{"twice", "[::1]:9", c.Token, good(to), http.StatusInternalServerError},
	} {
		if got, text := ask(routes, tc.remote, tc.token, tc.body); got != tc.want {
			t.Errorf("%s: status %d, want %d: %s", tc.name, got, tc.want, text)
		}
	}

	// One at a time.
	busy, release := make(chan struct{}), make(chan struct{})
	b := &backups{token: "t", make: func(to string) (*backupManifest, error) {
		close(busy)
		<-release
		return &backupManifest{Dir: to}, nil
	}}
	first := make(chan int)
	go func() {
		code, _ := ask(b, "127.0.0.1:9", "t", good("/x"))
		first <- code
	}()
	<-busy
	if got, _ := ask(b, "127.0.0.1:9", "t", good("/y")); got != http.StatusConflict {
		t.Errorf("a second one at once: status %d", got)
	}
	close(release)
	if got := <-first; got != http.StatusOK {
		t.Errorf("the first one: status %d", got)
	}
	b.make = func(string) (*backupManifest, error) { return nil, syscall.ENOSPC }
	if got, text := ask(b, "127.0.0.1:9", "t", good("/z")); got != http.StatusInternalServerError || !strings.Contains(text, "\n  Free some room there") {
		t.Errorf("on a full disk: status %d, %q", got, text)
	}

	d.mustStop(t)
	if c, err := readControl(d.cfg.dataDir); c != nil || err != nil {
		t.Errorf("after the stop control.json is still there: %v, %v", c, err)
	}
}

// A directory that no process has open is backed up as it is, whatever its control.json says: a
// copy of a running server's has that server's.
func TestBackupAsksTheRightServer(t *testing.T) {
	t.Parallel()
	relay := newTestRelay(t)
	d := startDaemon(t, relay.url, t.TempDir(), "--metrics-listen", "127.0.0.1:0")
	s := subscribe(t, d.addr, "")
	relay.send <- identityFrame(t, 7).Data
	s.lines(t, 1)
	copied := copyDir(t, d.cfg.dataDir)
	relay.send <- identityFrame(t, 8).Data
	s.lines(t, 1)
	to := filepath.Join(t.TempDir(), "saved")
	for _, tc := range []struct {
		name, of string
		seq      int64
	}{{"running", d.cfg.dataDir, 8}, {"copied", copied, 7}} {
		if code, out := millrace(t, "backup", "--data-dir", tc.of, "--to", to+tc.name); code != exitOK {
			t.Errorf("%s: exit code %d\n%s", tc.name, code, out)
		} else if m := readManifest(t, to+tc.name); m.Seq != tc.seq {
			t.Errorf("%s: the backup is at seq %d, want %d", tc.name, m.Seq, tc.seq)
		}
	}
	writeFile(t, filepath.Join(copied, controlFile), "")
	if code, out := millrace(t, "backup", "--data-dir", copied, "--to", to); code != exitOK {
		t.Errorf("with an empty control.json: exit code %d\n%s", code, out)
	}
}

// What answers at the address in control.json may be something else by now.
func TestBackupOfAnotherAnswer(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, newTestRelay(t).url, t.TempDir())
	for name, handler := range map[string]http.HandlerFunc{
		"not found": http.NotFound,
		"a page":    func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"no POST": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "Unsupported method ('POST')", http.StatusNotImplemented)
		},
		"a status": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"status":"ok"}`) },
	} {
		other := httptest.NewServer(handler)
		defer other.Close()
		stale := &control{Address: strings.TrimPrefix(other.URL, "http://"), Token: "old"}
		if err := stale.publish(d.cfg.dataDir); err != nil {
			t.Fatal(err)
		}
		code, out := millrace(t, "backup", "--data-dir", d.cfg.dataDir, "--to", filepath.Join(t.TempDir(), "saved"))
		if code != exitFailed || !strings.Contains(out, "cannot be asked for a backup") {
			t.Errorf("%s: exit code %d\n%s", name, code, out)
		}
	}
}

// TestBackupUnanswered: a server that ends meanwhile, or an interrupted client, is no riddle.
func TestBackupUnanswered(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	for want, handler := range map[string]http.HandlerFunc{
		"has made /saved, where only": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"dir":"/saved"}`) },
		"the server ended before":     func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"goes on with the backup": func(_ http.ResponseWriter, r *http.Request) {
			if n, _ := io.Copy(io.Discard, r.Body); n > 0 {
				interrupt()
				<-r.Context().Done()
			}
		},
	} {
		server := httptest.NewServer(handler)
		defer server.Close()
		asking := t.Context()
		if strings.HasPrefix(want, "goes on") {
			asking = ctx
		}
		c := &control{Address: server.Listener.Addr().String()}
		if _, err := c.backUp(asking, "/saved", patience); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestBackupUnheard: what takes connections and never answers is not waited for without end.
func TestBackupUnheard(t *testing.T) {
	t.Parallel()
	silent := listenLoopback(t)
	defer silent.Close()
	c := &control{Address: silent.Addr().String()}
	if _, err := c.backUp(t.Context(), "/saved", time.Millisecond); err == nil || !strings.Contains(err.Error(), "has not answered within") {
		t.Errorf("error %v", err)
	}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.backUp(interrupted, "/saved", patience); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// POST /backup is reached over the network as it is by a handler.
func TestBackupEndpoint(t *testing.T) {
	t.Parallel()
	relay := newTestRelay(t)
	d := startDaemon(t, relay.url, t.TempDir(), "--metrics-listen", "0.0.0.0:0")
	c, err := readControl(d.cfg.dataDir)
	if err != nil || c == nil || !strings.HasPrefix(c.Address, "127.0.0.1:") {
		t.Fatalf("control.json: %+v, %v", c, err)
	}
	client := http.Client{Timeout: patience}
	resp, err := client.Post("http://"+c.Address+"/backup", "application/json", bytes.NewReader([]byte(`{"to":"/x"}`)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(string(body), controlFile) {
		t.Errorf("%s: %s", resp.Status, body)
	}
}

// TestBackupInTheDataDirectory: a backup may be there, but not in the place of anything of the
// server's.
func TestBackupInTheDataDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "chains"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"saved": true, "graph": true, "graph.static": false, "graph.snapshot.tmp": false, "run.json": false, "chains/saved": false, "identities": false, "refs": false,
	} {
		errFill := errors.New("it is filled")
		_, err := (&config{dataDir: dir}).makeBackup(filepath.Join(dir, name), func(string) (*backupManifest, error) { return nil, errFill })
		if errors.Is(err, errFill) != want {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestIsWithin: a path is within a directory by what it leads to.
func TestIsWithin(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "log", "deep"), 0o755), os.Mkdir(filepath.Join(dir, "logs"), 0o755), os.Symlink("log", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"log": true, "log/x": true, "log/deep/x": true, "log/..x": true, "link/x": true, "log/deep/../x": true,
		"x": false, "logs": false, "logs/x": false, "log/../x": false, "..": false, "none/x": false, ".": false,
	} {
		for _, of := range []string{"log", "link"} {
			if got := isWithin(filepath.Join(dir, path), filepath.Join(dir, of)); got != want {
				t.Errorf("%s is within %s: %t", path, of, got)
			}
		}
	}
}

// TestControlFor: a server that listens everywhere is asked on the loopback interface.
func TestControlFor(t *testing.T) {
	for listens, want := range map[string]string{"0.0.0.0:7": "127.0.0.1:7", "[::]:7": "127.0.0.1:7", "192.0.2.1:7": "192.0.2.1:7", "[::1]:7": "[::1]:7"} {
		a, b := controlFor(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(listens))), controlFor(&net.TCPAddr{})
		if a.Address != want || len(a.Token) < 20 || a.Token == b.Token {
			t.Errorf("%s: %+v", listens, a)
		}
	}
}

// TestFromHere: a request is from this machine if it comes by loopback, or from the address that it
// came to.
func TestFromHere(t *testing.T) {
	for _, tc := range []struct {
		remote, local string // local "": not known
		want          bool
	}{
		{"127.0.0.1:9", "", true}, {"[::ffff:127.9.0.1]:9", "", true}, {"192.0.2.1:9", "192.0.2.1:7", true}, {"192.0.2.1:9", "[::ffff:192.0.2.1]:7", true},
		{"192.0.2.1:9", "192.0.2.2:7", false}, {"192.0.2.1:9", "", false}, {"x", "192.0.2.1:7", false},
	} {
		r := httptest.NewRequest(http.MethodPost, "/backup", nil)
		if r.RemoteAddr = tc.remote; tc.local != "" {
			addr := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(tc.local))
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(addr)))
		}
		if got := fromHere(r); got != tc.want {
			t.Errorf("%s to %s: %t", tc.remote, tc.local, got)
		}
	}
}

// TestAdviseMkdir: what to do if a backup's directory cannot be made.
func TestAdviseMkdir(t *testing.T) {
	for err, want := range map[error]string{
		os.ErrExist: "x exists: a backup was interrupted, or is being made\n  Remove it", os.ErrNotExist: "\n  Make the directory above it",
		os.ErrPermission: "\n  A running server makes the backup with its own rights", syscall.EROFS: "\n  A running server makes the backup with its own rights", syscall.ENOSPC: "",
	} {
		if got := adviseMkdir(err, "x"); !strings.Contains(got.Error(), want) || (want == "") != (got == err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}
