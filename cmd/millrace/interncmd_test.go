package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// millrace runs a command line in this process and returns its exit code and what it printed.
func millrace(t *testing.T, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if args[0] == "serve" {
		defer giveHeapBack()
	}
	out := &commandOutput{end: cancel}
	code := run(ctx, args, out, out)
	return code, out.String()
}

// commandOutput is what a command prints. It ends a command that serves.
type commandOutput struct {
	lockedBuffer
	end context.CancelCauseFunc
}

func (o *commandOutput) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("millrace serves")) {
		o.end(errors.New("serve was not refused"))
	}
	return o.lockedBuffer.Write(p)
}

// The UIDs that a server gave survive export and import, and each command says what it found.
func TestInternCommands(t *testing.T) {
	t.Parallel()
	sim := startRelaysim(t, "--frames", "500", "--wait-for-consumer")
	dir := t.TempDir()
	d := startDaemon(t, sim.url, dir)
	sim.waitMade(t, 500)
	events := readAll(t, d.addr, "cursor=0", len(readTruth(t, sim.truth)))
	checkUIDs(t, events)

	// The look-up command, both ways, against the running server.
	var e truthEvent
	for _, e = range events {
		if e.URI != "" {
			break
		}
	}
	code, out := millrace(t, "uid", "--url", "http://"+d.addr, e.DID, e.URI)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if code != exitOK || len(lines) != 2 || !strings.HasPrefix(lines[1], e.URI+"\tat://") {
		t.Fatalf("millrace uid: exit code %d\n%s", code, out)
	}
	did := strings.TrimPrefix(lines[0], e.DID+"\t")
	if code, out = millrace(t, "uid", "--url", "http://"+d.addr, did); code != exitOK || out != e.DID+"\t"+did+"\n" {
		t.Errorf("millrace uid %s: exit code %d\n%s", did, code, out)
	}
	if code, out = millrace(t, "uid", "--url", "http://"+d.addr, "did:web:nobody.example", did); code != exitFailed || !strings.Contains(out, "unknown\tdid:web:nobody.example") {
		t.Errorf("an unknown DID: exit code %d\n%s", code, out)
	}
	if code, out = millrace(t, "uid", "--url", "http://"+d.addr, "did:"); code != exitFailed || !strings.Contains(out, "neither a DID nor an AT URI") {
		t.Errorf("an invalid DID: exit code %d\n%s", code, out)
	}

	// While the server runs the store is its own.
	if code, out = millrace(t, "intern", "verify", "--data-dir", dir); code != exitFailed || !strings.Contains(out, "stop the server") {
		t.Errorf("verify beside a running server: exit code %d\n%s", code, out)
	}
	d.mustStop(t)
	if code, out = millrace(t, "intern", "verify", "--data-dir", dir); code != exitOK || !strings.Contains(out, " 0 problems") {
		t.Fatalf("verify: exit code %d\n%s", code, out)
	}
	dump, copied := filepath.Join(t.TempDir(), "uids.dump"), t.TempDir()
	if code, out = millrace(t, "intern", "export", dump, "--data-dir", dir); code != exitOK {
		t.Fatalf("export: exit code %d\n%s", code, out)
	}
	for range 2 { // begun again, it has nothing left to do
		if code, out = millrace(t, "intern", "import", "--data-dir", copied, dump); code != exitOK || !strings.Contains(out, "imported ") {
			t.Fatalf("import: exit code %d\n%s", code, out)
		}
	}
	if code, out = millrace(t, "intern", "skip-ahead", "--data-dir", copied, "--by", "1000"); code != exitOK {
		t.Fatalf("skip-ahead: exit code %d\n%s", code, out)
	}
	if code, out = millrace(t, "intern", "verify", "--data-dir", copied); code != exitOK || !strings.Contains(out, " 0 problems") {
		t.Fatalf("verify the copy: exit code %d\n%s", code, out)
	}
	if code, _ = millrace(t, "intern", "verify", "--data-dir", t.TempDir()); code != exitFailed {
		t.Errorf("verify without a store: exit code %d", code)
	}
	if code, out = millrace(t, "intern", "skip-ahead", "--data-dir", copied, "--by", "0"); code != exitUsage || !strings.Contains(out, "above 0") {
		t.Errorf("skip-ahead --by 0: exit code %d\n%s", code, out)
	}
	unmade := filepath.Join(copied, "unmade")
	pipe, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	in.Close()
	for file, says := range map[string]string{
		dump + ".no": "no such file", writeFile(t, filepath.Join(copied, "other"), "x"): "does not begin as", fmt.Sprintf("/dev/fd/%d", pipe.Fd()): "read once",
	} {
		if code, out = millrace(t, "intern", "import", "--data-dir", unmade, file); code != exitFailed || !strings.Contains(out, says) {
			t.Errorf("import of %s: exit code %d\n%s", file, code, out)
		}
		if _, err := os.Stat(unmade); !os.IsNotExist(err) {
			t.Errorf("import of %s makes a data directory: %v", file, err)
		}
	}
	for _, args := range [][]string{{"export"}, {"export", "-"}, {"import", "-"}} {
		if code, out = millrace(t, append([]string{"intern"}, args...)...); code != exitUsage {
			t.Errorf("%v: exit code %d\n%s", args, code, out)
		}
	}

	// The log opens with the copy, which has the same store ID, and not with another store.
	removeAll(t, filepath.Join(dir, "intern"))
	cfg := serveConfig(t, []string{"--relay", sim.url, "--data-dir", dir, "--listen", "127.0.0.1:0", "--metrics-listen", ""})
	if _, err := newDaemon(t.Context(), cfg, newLogger(cfg, testWriter{t})); err == nil || !strings.Contains(err.Error(), "UID store") {
		t.Errorf("a log with another UID store: %v", err)
	}
	removeAll(t, filepath.Join(dir, "intern"))
	if err := os.Rename(filepath.Join(copied, "intern"), filepath.Join(dir, "intern")); err != nil {
		t.Fatal(err)
	}
	d = startDaemon(t, sim.url, dir)
	resp, err := http.Get("http://" + d.addr + "/uid/" + e.URI)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("after import: /uid/%s: %s", e.URI, resp.Status)
	}
}
