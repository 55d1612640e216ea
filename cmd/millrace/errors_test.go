package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv/pebbleguard"

	"millrace/intern"
	"millrace/replay"
	"millrace/replay/references"
)

// trouble is a way in which millrace may be started that cannot work.
type trouble struct {
	name string
	// args prepares the trouble and returns the command line. "{dir}" in it is a directory of its
	// own.
	args func(t *testing.T, dir string) []string
	env  string // NAME=value
	code int
	says []string // what is printed, all of it
}

// serveArgs is a command line that would work.
func serveArgs(dir string, more ...string) []string {
	return append([]string{"serve", "--relay", "127.0.0.1:1", "--data-dir", filepath.Join(dir, "data"),
		"--listen", "127.0.0.1:0", "--metrics-listen", "", "--memory", "64MiB", "--min-free-disk", "0"}, more...)
}

// with is a trouble of serve's flags only.
func with(flags ...string) func(*testing.T, string) []string {
	return func(_ *testing.T, dir string) []string { return serveArgs(dir, flags...) }
}

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// removeAll removes a file or a directory.
func removeAll(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// taken returns an address that something listens on.
func taken(t *testing.T) string {
	t.Helper()
	l := listenLoopback(t)
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// madeLog leaves a log and a UID store in dir/data, with a committed position, of a relay that is
// gone.
func madeLog(t *testing.T, dir string, flags ...string) string {
	t.Helper()
	relay := newTestRelay(t)
	d := startDaemon(t, relay.url, filepath.Join(dir, "data"), flags...)
	relay.send <- identityFrame(t, 7).Data
	waitFor(t, "an event", func() bool { return d.log.Progress().Seq == 7 })
	d.mustStop(t)
	return relay.url
}

// runElsewhere runs a server on dir/data in a process of its own.
func runElsewhere(t *testing.T, dir string, flags ...string) {
	t.Helper()
	waitServing(t, startMillrace(t, newTestRelay(t).url, filepath.Join(dir, "data"), freeAddr(t), flags...).addr)
}

// setMeta overwrites a value whose key ends with name, in a store that no process has open.
func setMeta(t *testing.T, dir, name string, value []byte) {
	t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{FormatMajorVersion: pebble.FormatNewest, Logger: silent{}})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	var key []byte
	for it.First(); it.Valid() && key == nil; it.Next() {
		if bytes.HasSuffix(it.Key(), []byte(name)) {
			key = bytes.Clone(it.Key())
		}
	}
	if err := it.Close(); err != nil || key == nil {
		t.Fatalf("%s has no key that ends with %q: %v", dir, name, err)
	}
	if err := db.Set(key, value, pebble.Sync); err != nil {
		t.Fatal(err)
	}
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(f string, a ...any) {
	panic(fmt.Sprintf(f, a...))
}

// doubled finds a phrase of some words that is said twice in a row, as wrapped errors like to.
func doubled(s string) string {
	parts := strings.FieldsFunc(s, func(r rune) bool { return r == ':' || r == '\n' || r == ';' })
	for i := range parts {
		for j := range i {
			a, b := strings.TrimSpace(parts[i]), strings.TrimSpace(parts[j])
			if len(a) > 8 && a == b || len(a) > 8 && len(b) > 8 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
				return a
			}
		}
	}
	return ""
}

// A start of millrace that cannot work says what is wrong and what to do, once, in few lines.
func TestErrorsSayWhatToDo(t *testing.T) {
	troubles := []trouble{
		{"port in use", func(t *testing.T, dir string) []string { return serveArgs(dir, "--listen", taken(t)) }, "",
			exitFailed, []string{"--listen 127.0.0.1:", "address already in use", "ss -ltnp", "another address with --listen"}},
		{"metrics port in use", func(t *testing.T, dir string) []string { return serveArgs(dir, "--metrics-listen", taken(t)) }, "",
			exitFailed, []string{"--metrics-listen 127.0.0.1:", "already in use", "another address with --metrics-listen"}},
		{"no export", with("--verify=flag", "--plc-export", "/nowhere/export"), "", exitFailed, []string{"open /nowhere/export: no such file", "--plc-export a file"}},
		{"no address", with("--listen", "6008"), "", exitUsage, []string{"--listen 6008", "such as :6008"}},
		{"no port", with("--listen", "nonsense"), "", exitUsage, []string{"--listen nonsense", "missing port", "such as :6008"}},
		{"port beyond", with("--listen", "127.0.0.1:99999"), "", exitUsage, []string{"--listen 127.0.0.1:99999", "is not a port"}},
		{"no metrics port", with("--metrics-listen", "6009"), "", exitUsage, []string{"--metrics-listen 6009", "missing port"}},
		{"empty address", with("--listen", ""), "", exitUsage, []string{"--listen", "missing port"}},
		{"one port for two", with("--listen", ":6008", "--metrics-listen", ":6008"), "", exitUsage, []string{"both :6008", "two ports"}},
		{"address of another machine", with("--listen", "192.0.2.1:6008"), "", exitFailed, []string{"--listen 192.0.2.1:6008", "no such address"}},
		{"data directory in use", func(t *testing.T, dir string) []string {
			runElsewhere(t, dir)
			return serveArgs(dir)
		}, "", exitFailed, []string{"is in use by another process", "Stop that one", "--data-dir of its own"}},
		{"data directory in use, without UIDs", func(t *testing.T, dir string) []string {
			runElsewhere(t, dir, "--intern=off")
			return serveArgs(dir, "--intern=off")
		}, "", exitFailed, []string{"is in use by another process", "Stop that one"}},
		{"data directory is a file", func(t *testing.T, dir string) []string {
			writeFile(t, filepath.Join(dir, "data"), "x")
			return serveArgs(dir)
		}, "", exitFailed, []string{"--data-dir", "not a directory", "Name another"}},
		{"data directory is a link to nothing", func(t *testing.T, dir string) []string {
			if err := os.Symlink(filepath.Join(dir, "unmounted"), filepath.Join(dir, "data")); err != nil {
				t.Fatal(err)
			}
			return serveArgs(dir)
		}, "", exitFailed, []string{"it is a link to", "unmounted, which is no directory", "Name another"}},
		{"backup into a store", func(t *testing.T, dir string) []string {
			log := filepath.Join(dir, "data", "log")
			if err := os.MkdirAll(log, 0o755); err != nil {
				t.Fatal(err)
			}
			return []string{"backup", "--data-dir", filepath.Join(dir, "data"), "--to", filepath.Join(log, "saved")}
		}, "", exitFailed, []string{"data/log/saved is within", "outside of the stores"}},
		{"dictionary is not there", with("--zstd-dictionary", "/nowhere/x.zdict"), "", exitFailed,
			[]string{"--zstd-dictionary", "/nowhere/x.zdict", "no such file", "jetstream, builtin", "millrace dict train"}},
		{"dictionary is none", func(t *testing.T, dir string) []string {
			return serveArgs(dir, "--zstd-dictionary", writeFile(t, filepath.Join(dir, "x"), strings.Repeat("no dictionary ", 100)))
		}, "", exitFailed, []string{"--zstd-dictionary", "not a zstd dictionary", "millrace dict train"}},
		{"FoundationDB is not built in", func(t *testing.T, dir string) []string {
			if strings.Contains(thisBuild().uidStore, "fdb") {
				t.Skip("SKIPPED: it is built in")
			}
			return serveArgs(dir, "--intern=fdb")
		}, "", exitUsage, []string{"--intern=fdb", "-tags fdb", "--intern=pebble"}},
		{"relay is no URL", with("--relay", "ftp://relay.example.com"), "", exitUsage, []string{"--relay", "ftp://relay.example.com", "ws, wss, http or https"}},
		{"log of another relay", func(t *testing.T, dir string) []string {
			madeLog(t, dir)
			return serveArgs(dir, "--relay", "other.example.com")
		}, "", exitFailed, []string{"belongs to another relay", "not other.example.com", "--new-epoch"}},
		{"log of another UID store", func(t *testing.T, dir string) []string {
			relay := madeLog(t, dir)
			removeAll(t, filepath.Join(dir, "data", "intern"))
			return serveArgs(dir, "--relay", relay)
		}, "", exitFailed, []string{"belongs to another UID store", "skip-ahead", "move the log's directory away"}},
		{"log of a newer version", func(t *testing.T, dir string) []string {
			relay := madeLog(t, dir)
			setMeta(t, filepath.Join(dir, "data", "log"), "format", binary.BigEndian.AppendUint32(nil, 99))
			return serveArgs(dir, "--relay", relay)
		}, "", exitFailed, []string{"newer format", "version 99", "this is millrace " + version, "a newer one"}},
		{"UID store of a newer version", func(t *testing.T, dir string) []string {
			relay := madeLog(t, dir)
			setMeta(t, filepath.Join(dir, "data", "intern"), "store", append([]byte{9, 14, 0}, make([]byte, 16)...))
			return serveArgs(dir, "--relay", relay)
		}, "", exitFailed, []string{"newer format: version 9", "this is millrace " + version, "a newer one"}},
		{"store of another kind", func(t *testing.T, dir string) []string {
			if err := os.MkdirAll(filepath.Join(dir, "data", "intern", "marker.format-version.000099.099"), 0o755); err != nil {
				t.Fatal(err)
			}
			return serveArgs(dir)
		}, "", exitFailed, []string{"data/intern", "newer millrace"}},
		{"other prefix bits", func(t *testing.T, dir string) []string {
			return serveArgs(dir, "--relay", madeLog(t, dir), "--uid-prefix-bits", "10")
		}, "", exitFailed, []string{"created with 14", "--uid-prefix-bits"}},
		{"start below the position", func(t *testing.T, dir string) []string {
			return serveArgs(dir, "--relay", madeLog(t, dir), "--relay-cursor", "1")
		}, "", exitUsage, []string{"--relay-cursor 1 is below", "--new-epoch"}},
		{"unknown flag", with("--relai", "x"), "", exitUsage, []string{"no flag --relai", "did you mean --relay?"}},
		{"unknown variable", with(), "MILLRACE_DATADIR=x", exitUsage, []string{"MILLRACE_DATADIR", "did you mean MILLRACE_DATA_DIR?"}},
		{"bad duration", with("--retention", "36"), "", exitUsage, []string{`--retention "36"`, "36h"}},
		{"bad duration in a variable", with(), "MILLRACE_RETENTION=36", exitUsage, []string{`MILLRACE_RETENTION="36"`, "36h"}},
		{"bad size", with("--memory", "lots"), "", exitUsage, []string{`--memory: "lots"`, "256MiB"}},
		{"bad number", with("--max-connections", "x"), "", exitUsage, []string{`--max-connections "x"`, "100"}},
		{"bad choice", with("--intern", "redis"), "", exitUsage, []string{"redis", "pebble, fdb, off"}},
		{"unknown sub-command", func(*testing.T, string) []string { return []string{"serv"} }, "", exitUsage, []string{`"serv"`, "did you mean serve?"}},
		{"no sub-command", func(*testing.T, string) []string { return nil }, "", exitUsage, []string{"millrace --help"}},
	}
	for _, tc := range troubles {
		t.Run(tc.name, func(t *testing.T) {
			if name, value, ok := strings.Cut(tc.env, "="); ok {
				t.Setenv(name, value)
			} else {
				t.Parallel()
			}
			dir := t.TempDir()
			args := tc.args(t, dir) // may build programs
			_, before := os.Stat(filepath.Join(dir, "data"))
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			var out bytes.Buffer
			defer giveHeapBack()
			code := run(ctx, args, &out, &out)
			checkTrouble(t, out.String(), code, tc.code, tc.says)
			if _, after := os.Stat(filepath.Join(dir, "data")); code == exitUsage && (before == nil) != (after == nil) {
				t.Error("wrong usage, and it made the data directory")
			}
		})
	}
}

// logLine is a line of the process log; the output of some commands begins with such lines.
var logLine = regexp.MustCompile(`(?m)^time=.*\n`)

func checkTrouble(t *testing.T, out string, code, want int, says []string) {
	t.Helper()
	if code != want {
		t.Errorf("exit code %d, want %d", code, want)
	}
	text := logLine.ReplaceAllString(out, "")
	for _, s := range says {
		if !strings.Contains(text, s) {
			t.Errorf("does not say %q:\n%s", s, out)
		}
	}
	if strings.Count(text, "\n") > 3 {
		t.Errorf("says more than people read:\n%s", text)
	}
	if d := doubled(text); d != "" {
		t.Errorf("says %q twice:\n%s", d, text)
	}
}

// TestMachineErrors: what the machine refuses to any command comes with what to do, once.
func TestMachineErrors(t *testing.T) {
	t.Parallel()
	full := &os.PathError{Op: "write", Path: "rows.csv", Err: syscall.ENOSPC}
	failed := fmt.Errorf("%w: %w (check the disk)", pebbleguard.ErrFailed, full)
	input := &os.PathError{Op: "open", Path: "rows.csv", Err: syscall.EACCES}
	for _, tc := range []struct {
		err  error
		says string // "": nothing more
	}{
		{fmt.Errorf("export: %w", full), "Free some room there"}, {&os.LinkError{Op: "rename", Err: syscall.EROFS}, "The file system is mounted read-only"},
		{&os.PathError{Op: "sync", Path: "data", Err: syscall.EIO}, "The disk has failed"}, {errors.New("open a: " + syscall.EMFILE.Error()), "Raise it"},
		{errors.New("open a: " + syscall.EMFILE.Error() + "\n  " + raiseOpenFiles), ""}, {advise(full, "Do this."), "Do this."}, {failed, ""}, {input, ""}, {nil, ""},
	} {
		err := adviseMachine(tc.err)
		if tc.says == "" && err == tc.err { //nolint:errorlint // it is the same
			continue
		}
		if err == nil || !errors.Is(err, tc.err) || tc.says == "" || !strings.HasSuffix(strings.Split(err.Error(), tc.says)[0], "\n  ") {
			t.Errorf("%v: %v", tc.err, err)
		}
	}
}

// TestAdviseStores: a command that may not open a server's store says who must run it.
func TestAdviseStores(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err  error
		says string
	}{
		{&os.PathError{Op: "open", Path: "data/log/LOCK", Err: syscall.EACCES}, runAsServer}, {&os.PathError{Op: "open", Path: "data/log", Err: syscall.EACCES}, runAsServer},
		{replay.ErrInUse, "stop the server first"}, {replay.ErrNoLog, ""},
	} {
		if got := adviseStores(fmt.Errorf("open: %w", tc.err)); !errors.Is(got, tc.err) || !strings.Contains(got.Error(), tc.says) {
			t.Errorf("%v: %v", tc.err, got)
		}
	}
	if adviseStores(nil) != nil {
		t.Error("no error becomes one")
	}
}

// fullWriter takes nothing.
type fullWriter struct{ err error }

func (w fullWriter) Write([]byte) (int, error) { return 0, w.err }

// TestLostOutput: a command whose output cannot be written has failed, unless its reader has left.
func TestLostOutput(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args string
		err  error
		want int
	}{
		{"version", syscall.ENOSPC, exitFailed}, {"doctor " + t.TempDir(), syscall.ENOSPC, exitFailed},
		{"version", syscall.EPIPE, exitOK}, {"version", nil, exitOK},
	} {
		var stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(tc.args), fullWriter{tc.err}, &stderr)
		if code != tc.want || strings.Contains(stderr.String(), "write the output: no space left") != (code == exitFailed) {
			t.Errorf("%s: exit code %d, want %d: %s", tc.args, code, tc.want, &stderr)
		}
	}
}

// A relay that refuses the connection does not end the process; the log and /readyz say what is
// wrong.
func TestRelayTroubleIsLogged(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		status int
		says   string
	}{{http.StatusForbidden, "ask its operator"}, {http.StatusNotFound, "is --relay a relay"}} {
		relay := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tc.status) }))
		defer relay.Close()
		addr := freeAddr(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		out := &lockedBuffer{}
		ended := make(chan int, 1)
		go func() {
			ended <- run(ctx, append(serveArgs(t.TempDir()), "--relay", relay.URL, "--listen", addr), out, out)
		}()
		waitFor(t, "the advice in the log", func() bool { return strings.Contains(out.String(), tc.says) })
		resp, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		var ready bytes.Buffer
		_, err = ready.ReadFrom(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(ready.String(), fmt.Sprintf("the relay answered %d", tc.status)) {
			t.Errorf("/readyz: %s: %s", resp.Status, &ready)
		}
		cancel()
		code := <-ended
		giveHeapBack()
		if code != exitOK {
			t.Errorf("exit code %d after a clean stop", code)
		}
	}
}

// lockedBuffer may be written by one goroutine and read by another.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// A directory where millrace may not write: the message names the user and what to do. Another user
// is needed for it if this one may write everywhere.
func TestDataDirectoryIsNotWritable(t *testing.T) {
	t.Parallel()
	bin := binaries(t)
	open, err := os.MkdirTemp("", "millrace-open")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(open) })
	data := filepath.Join(open, "data")
	for _, dir := range []string{open, data} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), bin["millrace"], serveArgs(open)...)
	if os.Geteuid() == 0 {
		// Not copied by this process. Another test that starts one at that moment would hand on the
		// open file, and what is open for writing cannot be executed.
		program := filepath.Join(open, "millrace")
		if out, err := exec.CommandContext(t.Context(), "cp", bin["millrace"], program).CombinedOutput(); err != nil {
			t.Fatalf("cp: %v: %s", err, out)
		}
		cmd = exec.CommandContext(t.Context(), program, serveArgs(open)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	} else if err := os.Chmod(data, 0o555); err != nil {
		t.Fatal(err)
	}
	out, _ := cmd.CombinedOutput() // the exit code is looked at
	checkTrouble(t, string(out), cmd.ProcessState.ExitCode(), exitFailed,
		[]string{"--data-dir", "permission denied", "chown", "chmod", fmt.Sprint("user ", max(os.Geteuid(), 0))[:5]})
}

// A disk that is full at the start, and one that gets full: the message says so, and what was
// committed is safe.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	mount := func(size string) string {
		dir := t.TempDir()
		if out, err := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput(); err != nil {
			t.Skipf("SKIPPED: mounting is not allowed here: %s", out)
		}
		t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
		return dir
	}
	full := mount("64k")
	writeFile(t, filepath.Join(full, "filler"), strings.Repeat("x", 48<<10))
	bin := binaries(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin["millrace"], serveArgs(full)...)
	out, _ := cmd.CombinedOutput()
	checkTrouble(t, string(out), cmd.ProcessState.ExitCode(), exitFailed, []string{"no space left on device", "room"})

	sim := startRelaysim(t, "--rate", "3000", "--wait-for-consumer")
	small := mount("24m")
	p := startMillrace(t, sim.url, filepath.Join(small, "data"), "127.0.0.1:0")
	select {
	case <-p.exited:
	case <-time.After(3 * patience):
		t.Fatal("it goes on for minutes on a disk that is full")
	}
	for _, want := range []string{"no space left on device", "free", "what was committed is safe"} {
		if !strings.Contains(p.stderr.String(), want) {
			t.Errorf("does not say %q:\n%.2000s", want, p.stderr)
		}
	}
}

// TestAdviseDataDir: each reason for which a directory cannot be used has its advice, and what was
// wrapped around the system's error goes.
func TestAdviseDataDir(t *testing.T) {
	at := func(no syscall.Errno) error {
		return fmt.Errorf("open the log: %w", &os.PathError{Op: "open", Path: "/d/x", Err: no})
	}
	dir := t.TempDir()
	for _, tc := range []struct {
		err  error
		want string // the beginning of each line; "": the error stays as it is
	}{
		{fmt.Errorf("open: %w", replay.ErrInUse), "--data-dir " + dir + " is in use by another process\n  Most likely another millrace runs on it (fuser " + dir + "/log/LOCK names it)."},
		{at(syscall.EACCES), fmt.Sprintf("--data-dir %s: open /d/x: permission denied\n  millrace runs as user %d, who may not write there. Give it the directory (chown -R %d %s; chmod -R u+rwX %[1]s)", dir, os.Geteuid(), os.Geteuid(), dir)},
		{at(syscall.ENOSPC), "--data-dir " + dir + ": open /d/x: no space left on device\n  Free some room there"},
		{at(syscall.EDQUOT), "--data-dir " + dir + ": open /d/x: disk quota exceeded\n  Free some room there"},
		{at(syscall.EMFILE), "--data-dir " + dir + ": open /d/x: too many open files\n  Raise it"},
		{at(syscall.EROFS), "--data-dir " + dir + ": open /d/x: read-only file system\n  The file system is mounted read-only."},
		{at(syscall.ENOTDIR), "--data-dir " + dir + ": open the log: open /d/x: not a directory\n  No directory can be made there."},
		{at(syscall.ENAMETOOLONG), "--data-dir " + dir + ": open the log: open /d/x: file name too long\n  No directory can be made there."},
		{at(syscall.EEXIST), "--data-dir " + dir + ": open the log: open /d/x: file exists\n  No directory can be made there."},
		{at(syscall.ENOENT), "--data-dir " + dir + ": open the log: open /d/x: no such file or directory\n  No directory can be made there."},
		{fmt.Errorf("open: %w", intern.ErrPrefixBits), "open: " + intern.ErrPrefixBits.Error() + "\n  They are fixed"},
		{intern.ErrUnfinished, intern.ErrUnfinished.Error() + "\n  millrace intern import with the same file"},
		{replay.ErrNewerFormat, replay.ErrNewerFormat.Error() + "\n  A newer millrace wrote it, and this is millrace " + thisBuild().version + ":"},
		{intern.ErrNewerFormat, intern.ErrNewerFormat.Error() + "\n  A newer millrace wrote it"},
		{references.ErrNewerFormat, references.ErrNewerFormat.Error() + "\n  A newer millrace wrote it"},
		{errors.New("pebble: unknown format major version 99"), "pebble: unknown format major version 99\n  A newer millrace wrote it"},
		{errors.New("another"), ""},
		{&advised{errors.New("known"), "Do it."}, ""},
		{&advised{at(syscall.ENOENT), "Do it."}, ""}, // of a file that is not in the data directory
	} {
		got := adviseDataDir(tc.err, dir)
		if tc.want == "" && got != tc.err || !strings.HasPrefix(got.Error(), tc.want) {
			t.Errorf("%v: %v, want %q", tc.err, got, tc.want)
		}
	}
	if adviseDataDir(nil, dir) != nil || adviseNewer(nil, dir) != nil {
		t.Error("no error becomes one")
	}
	writeFile(t, filepath.Join(dir, manifestFile), `{"version": "7.1"}`)
	if got := adviseNewer(replay.ErrNewerFormat, dir).Error(); !strings.Contains(got, "  millrace 7.1 wrote it") {
		t.Errorf("of a backup: %s", got)
	}
	writeFile(t, filepath.Join(dir, lastRunFile), `{"version": "7.2"}`)
	if got := adviseNewer(replay.ErrNewerFormat, dir).Error(); !strings.Contains(got, "  millrace 7.2 wrote it") {
		t.Errorf("of a backup that a server has used: %s", got)
	}
	t.Chdir(dir)
	if got := adviseNewer(replay.ErrNewerFormat, "").Error(); !strings.Contains(got, "  A newer millrace wrote it") {
		t.Errorf("of no data directory: %s", got)
	}
}

// Addresses are reported as they were given, whatever is wrong with them.
func TestAdviseListen(t *testing.T) {
	_, err := net.Listen("tcp", "127.0.0.1:http-of-nobody")
	if err == nil {
		t.Fatal("listening works")
	}
	if got := adviseListen(err, "listen", "127.0.0.1:http-of-nobody").Error(); !strings.HasPrefix(got, "--listen 127.0.0.1:http-of-nobody: ") || !strings.Contains(got, "host:port") {
		t.Errorf("got %q", got)
	}
	for no, want := range map[syscall.Errno]string{
		syscall.EACCES: "permission denied\n  Ports below 1024", syscall.EMFILE: "too many open files\n  Raise it", syscall.EADDRINUSE: "address already in use\n  Another process listens there",
		syscall.EADDRNOTAVAIL: "cannot assign requested address\n  This machine has no such address", syscall.EINVAL: "invalid argument\n  Give host:port",
	} {
		if got := adviseListen(&net.OpError{Op: "listen", Err: os.NewSyscallError("bind", no)}, "listen", ":80").Error(); !strings.HasPrefix(got, "--listen :80: bind: "+want) {
			t.Errorf("%v: %q", no, got)
		}
	}
}
