package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/gorilla/websocket"
)

func TestDivideDescriptors(t *testing.T) {
	for _, tt := range []struct {
		limit uint64
		want  descriptors
	}{
		{512, descriptors{limit: 512, storeFiles: 74, handshakes: 64, subscribers: 68}},
		{1024, descriptors{limit: 1024, storeFiles: 128, handshakes: 128, subscribers: 408}},
		{4096, descriptors{limit: 4096, storeFiles: 512, handshakes: 512, subscribers: 2328}},
		{22_744, descriptors{limit: 22_744, storeFiles: 1000, handshakes: 512, subscribers: 20_000}},
		{1<<64 - 1, descriptors{limit: 1 << 30, storeFiles: 1000, handshakes: 512, subscribers: 1<<30 - 2744}},
	} {
		if got, err := divideDescriptors(tt.limit, 2); got != tt.want || err != nil {
			t.Errorf("%d: %+v, %v; want %+v", tt.limit, got, err, tt.want)
		}
	}
	_, err := divideDescriptors(minDescriptors-1, 2)
	var has *advised
	if !errors.As(err, &has) || !strings.Contains(err.Error(), "511") || !strings.Contains(has.advice, "LimitNOFILE=") {
		t.Errorf("too low: %v", err)
	}
	const least = 911 // with five stores
	if d, err := divideDescriptors(least, 5); err != nil || d.subscribers != 1 {
		t.Errorf("%d: %+v, %v", least, d, err)
	}
	for _, low := range []uint64{minDescriptors - 1, minDescriptors, least - 1} {
		if _, err := divideDescriptors(low, 5); !errors.As(err, &has) || !strings.Contains(err.Error(), "needs 911") {
			t.Errorf("%d, five stores: %v", low, err)
		}
	}
	limit, err := openFilesLimit()
	var rlimit syscall.Rlimit
	if e := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &rlimit); e != nil || err != nil || limit != rlimit.Cur {
		t.Errorf("limit %d, %v; want %d, %v", limit, err, rlimit.Cur, e)
	}
}

// underOpenFiles runs a command with a limit of open files, hard and soft.
func underOpenFiles(n int) []string {
	return []string{"sh", "-c", `ulimit -n "$1"; shift; exec "$@"`, "sh", strconv.Itoa(n)}
}

// TestTooFewDescriptors: too low a limit of open files is reported, and nothing is created.
func TestTooFewDescriptors(t *testing.T) {
	t.Parallel()
	bin := binaries(t)
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	argv := append(append(underOpenFiles(minDescriptors-1), bin["millrace"]), serveArgs(dir)...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	out, _ := cmd.CombinedOutput() // the exit code is looked at
	checkTrouble(t, string(out), cmd.ProcessState.ExitCode(), exitFailed, []string{"limit of open files is 511", "LimitNOFILE=", "ulimit -n"})
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v, %v", left, err)
	}
}

// TestFewDescriptorsForCommands: commands that open stores do with few open files, however many
// tables there are. Where even these are too many, they say what to do, and nothing of damage.
func TestFewDescriptorsForCommands(t *testing.T) {
	t.Parallel()
	bin := binaries(t)
	sim := startRelaysim(t, "--frames", "500", "--wait-for-consumer")
	dir := t.TempDir()
	d := startDaemon(t, sim.url, dir, "--references", "on", "--memory", "256MiB")
	sim.waitMade(t, 500)
	readAll(t, d.addr, "cursor=0", len(readTruth(t, sim.truth)))
	d.mustStop(t)
	// With one CPU Pebble has up to 101 tables yet to close.
	const enough, tooFew = minStoreFiles + 50 + 101, 40
	// Many more tables than files, so that a command that keeps all of them open must fail.
	splitTables(t, filepath.Join(dir, "log"), enough+100)
	splitTables(t, filepath.Join(dir, "intern"), enough+100)
	for _, command := range []string{"verify", "intern verify", "references verify"} {
		under := func(limit int) (int, string) {
			argv := append(append(underOpenFiles(limit), bin["millrace"]), strings.Fields(command)...)
			cmd := exec.CommandContext(t.Context(), argv[0], append(argv[1:], "--data-dir", dir)...)
			cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
			out, _ := cmd.CombinedOutput() // the exit code is looked at
			return cmd.ProcessState.ExitCode(), string(out)
		}
		if code, out := under(enough); code != exitOK || !strings.Contains(out, " 0 problems") {
			t.Errorf("%s, %d files: exit code %d\n%s", command, enough, code, out)
		}
		if code, out := under(tooFew); code != exitFailed || !strings.Contains(out, "too many open files") ||
			!strings.Contains(out, "\n  Raise it: LimitNOFILE=") || strings.Contains(out, "damaged") {
			t.Errorf("%s, %d files: exit code %d\n%s", command, tooFew, code, out)
		}
	}
}

// splitTables writes keys of a store again, each into a table of its own, until there are so many.
func splitTables(t *testing.T, dir string, tables int) {
	t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{FormatMajorVersion: pebble.FormatNewest, DisableAutomaticCompactions: true})
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n < tables; {
		it, err := db.NewIter(nil)
		if err != nil {
			t.Fatal(err)
		}
		for ok := it.First(); ok && n < tables; ok = it.Next() {
			if err := errors.Join(db.Set(it.Key(), it.Value(), pebble.NoSync), db.Flush()); err != nil {
				t.Fatal(err)
			}
			n++
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// openFilesOf is how many descriptors a process has.
func openFilesOf(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Skipf("SKIPPED: %v; this test counts descriptors there", err)
	}
	return len(entries)
}

// TestFewDescriptors runs a server under the least limit of open files there may be, and has
// clients take all they get. They are subscribers until they are refused, half-open requests
// without end, and connections to --metrics-listen. The log goes on, and what there is is served.
func TestFewDescriptors(t *testing.T) {
	t.Parallel()
	files, err := divideDescriptors(minDescriptors, 2)
	if err != nil {
		t.Fatal(err)
	}
	sim := startRelaysim(t, "--rate", "500", "--wait-for-consumer")
	metrics := freeAddr(t)
	p := startMillraceUnder(t, underOpenFiles(minDescriptors), sim.url, t.TempDir(), freeAddr(t),
		"--memory", "256MiB", "--metrics-listen", metrics, "--log-level", "info")
	waitServing(t, p.addr)
	hold := func(addr, first string) {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		if _, err := io.WriteString(nc, first); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
	}
	for range minDescriptors { // without a cap either loop alone would take all
		hold(metrics, "GET /metrics HTTP/1.1\r\n")
	}
	for range minDescriptors {
		hold(p.addr, "GET /subscribe HTTP/1.1\r\n")
	}
	var subscribers []*websocket.Conn
	for {
		query := []string{"", "cursor=0"}[len(subscribers)%2]
		ws, resp, err := websocket.DefaultDialer.Dial("ws://"+p.addr+"/subscribe?"+query, nil)
		if err != nil {
			var body bytes.Buffer
			if resp == nil {
				t.Fatalf("subscriber %d: %v\n%s", len(subscribers), err, p.stderr)
			}
			_, _ = body.ReadFrom(resp.Body)
			if resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(body.String(), "too many subscribers") {
				t.Fatalf("subscriber %d: %s: %s", len(subscribers), resp.Status, &body)
			}
			break
		}
		t.Cleanup(func() { ws.Close() })
		subscribers = append(subscribers, ws)
	}
	if len(subscribers) != files.subscribers {
		t.Errorf("there is room for %d subscribers, want %d", len(subscribers), files.subscribers)
	}
	for range 2 * files.handshakes {
		hold(p.addr, "GET /subscribe HTTP/1.1\r\n")
	}
	if n := openFilesOf(t, p.cmd.Process.Pid); n > minDescriptors {
		t.Errorf("%d open files", n)
	} else {
		t.Logf("%d of %d open files", n, minDescriptors)
	}
	for i, ws := range subscribers { // each gets events, so the log goes on and can be read
		_ = ws.SetReadDeadline(time.Now().Add(patience))
		for range 20 {
			if _, _, err := ws.ReadMessage(); err != nil {
				t.Fatalf("subscriber %d: %v\n%s", i, err, p.stderr)
			}
		}
	}
	select {
	case <-p.exited:
		t.Fatalf("the process ended:\n%s", p.stderr)
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.exited
	if log := p.stderr.String(); !strings.Contains(log, "subscribers="+strconv.Itoa(files.subscribers)) || strings.Contains(log, "too many open files") {
		t.Errorf("the log:\n%s", log)
	}
}
