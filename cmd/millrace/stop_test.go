package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// SIGTERM is a clean end with exit code 0, also while a subscriber takes nothing, and if it comes
// twice at once.
func TestSIGTERM(t *testing.T) {
	t.Parallel()
	sim := startRelaysim(t, "--rate", "2000", "--wait-for-consumer")
	defer sim.do(t, "quiet?for=1h")
	addr := freeAddr(t)
	p := startMillrace(t, sim.url, t.TempDir(), addr, "--shutdown-timeout", "10s", "--log-level", "info")
	waitServing(t, addr)
	stuck, err := net.Dial("tcp", addr) // shakes hands and never reads
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	_ = stuck.(*net.TCPConn).SetReadBuffer(4 << 10)
	if _, err := stuck.Write([]byte("GET /subscribe?cursor=0 HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	// /cursors is of events of all kinds
	s := subscribe(t, addr, "extended=true&cursor=0&wantedKinds="+allKinds)
	var mu sync.Mutex // at's
	var at string     // where the newest event is
	var last []byte
	var end error
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			msg, err := s.next(patience)
			if err != nil {
				end = err
				return
			}
			mu.Lock()
			if last = bytes.Clone(msg); isEvent(msg) {
				at = nextCursor(msg)
			}
			mu.Unlock()
		}
	})
	sim.waitMade(t, 4000)
	sim.do(t, "quiet?for=1h")
	waitFor(t, "the subscriber to have what there is", func() bool { // then the last words find room in its socket
		resp, err := http.Get("http://" + addr + "/cursors")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var now struct{ Newest struct{ Cursor string } }
		err = json.NewDecoder(resp.Body).Decode(&now)
		mu.Lock()
		defer mu.Unlock()
		return err == nil && at != "" && at == now.Newest.Cursor
	})
	begun := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the stop to begin", func() bool { return strings.Contains(p.stderr.String(), "msg=stopping") })
	if time.Since(begun) < sameSignal/4 {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	select {
	case <-p.exited:
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	if code := p.cmd.ProcessState.ExitCode(); code != exitOK {
		t.Errorf("ended with exit code %d\n%s", code, p.stderr)
	}
	reading.Wait()
	if !strings.Contains(end.Error(), "1012") {
		t.Errorf("the subscriber that reads got %v, want close code 1012", end)
	}
	if !bytes.Contains(last, []byte("going_away")) {
		t.Errorf("the last message is %.200s, want going_away", last)
	}
	if !strings.Contains(p.stderr.String(), "msg=stopped") {
		t.Errorf("the log does not say that it stopped:\n%s", p.stderr)
	}
}

// TestLostTerminal: a server whose log has lost its reader serves on, and SIGHUP stops it in order.
// Under nohup it ignores SIGHUP.
func TestLostTerminal(t *testing.T) {
	t.Parallel()
	skipUnderRace(t)
	bin := binaries(t)
	relay := newTestRelay(t)
	serve := func(wrapper ...string) (p *os.Process, ended chan error) {
		addr := freeAddr(t)
		reader, stderr, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer stderr.Close()
		argv := append(append(wrapper, bin["millrace"]), serveArgs(t.TempDir(), "--relay", relay.url, "--listen", addr)...)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stderr = stderr
		if err := errors.Join(reader.Close(), cmd.Start()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended
		ended = make(chan error, 1)
		go func() { ended <- cmd.Wait() }() // the process ends with the test
		waitFor(t, "an answer, which comes after lines of the log", func() bool {
			if len(ended) > 0 {
				t.Fatalf("it has ended: %v", <-ended)
			}
			resp, err := http.Get("http://" + addr + "/healthz")
			if err == nil {
				resp.Body.Close()
			}
			return err == nil
		})
		return cmd.Process, ended
	}
	stop := func(p *os.Process, ended chan error, with os.Signal) {
		if err := p.Signal(with); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("after %v: %v", with, err)
			}
		case <-time.After(2 * patience):
			t.Errorf("after %v it goes on", with)
		}
	}
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, syscall.SIGHUP) // if the tests ignore it, what they start would, too
	process, ended := serve()
	signal.Stop(heard)
	stop(process, ended, syscall.SIGHUP)
	process, ended = serve("nohup")
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, ignored, _ := strings.Cut(string(status), "SigIgn:\t")
	ignored, _, _ = strings.Cut(ignored, "\n")
	if mask, err := strconv.ParseUint(ignored, 16, 64); err != nil || mask&(1<<(syscall.SIGHUP-1)) == 0 {
		t.Errorf("under nohup SIGHUP is not ignored: mask %s, %v", ignored, err)
	}
	stop(process, ended, syscall.SIGTERM)
}

// Everything that the process says when it cannot start ends in an exit code and a text that names
// the flag.
func TestStartErrors(t *testing.T) {
	t.Parallel()
	bin := binaries(t)
	taken := listenLoopback(t)
	defer taken.Close()
	file := t.TempDir() + "/file"
	writeFile(t, file, "no dictionary")
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--relay", "ftp://x"}, exitUsage, "--relay"},
		{[]string{"--data-dir", file}, exitFailed, "--data-dir"},
		{[]string{"--zstd-dictionary", file}, exitFailed, "--zstd-dictionary"},
		{[]string{"--zstd-dictionary", file + "x"}, exitFailed, "--zstd-dictionary"},
		{[]string{"--listen", taken.Addr().String()}, exitFailed, "--listen"},
		{[]string{"--collections", "nope"}, exitUsage, "--collections"},
		{[]string{"--intern", "fdb"}, exitUsage, "-tags fdb"},
	} {
		args := append([]string{"serve", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--metrics-listen", "", "--relay", "ws://127.0.0.1:1"}, tc.args...)
		ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
		out, err := exec.CommandContext(ctx, bin["millrace"], args...).CombinedOutput()
		cancel()
		code := exitOK
		if exit, ok := err.(*exec.ExitError); ok {
			code = exit.ExitCode()
		}
		if code != tc.code || !strings.Contains(string(out), tc.want) {
			t.Errorf("millrace serve %v: exit code %d, want %d and %q\n%s", tc.args, code, tc.code, tc.want, out)
		}
	}
}

// TestStopWhileStarting: a signal that comes while the stores are being opened is no failure.
func TestStopWhileStarting(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("terminated signal received"))
	var said bytes.Buffer
	args := []string{"--relay", "ws://127.0.0.1:1", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--metrics-listen", ""}
	defer giveHeapBack()
	if err := dispatch(ctx, append([]string{"serve"}, args...), io.Discard, &said); err != nil {
		t.Errorf("%v\n%s", err, &said)
	}
}

// That --memory bounds the number of subscribers is said to operators who set one of the two.
func TestRoomForSubscribersIsLogged(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		flags []string
		says  bool
	}{
		{nil, false}, {[]string{"--memory", "256MiB"}, true}, {[]string{"--max-connections", "20000"}, true}, {[]string{"--max-connections", "10"}, false},
	} {
		args := append([]string{"--relay", "127.0.0.1:1", "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0", "--metrics-listen", "", "--intern", "off"}, tc.flags...)
		cfg := serveConfig(t, args)
		out := &lockedBuffer{}
		d := openDaemon(t, cfg, newLogger(cfg, out))
		d.close()
		if got := strings.Contains(out.String(), "room for fewer subscribers"); got != tc.says {
			t.Errorf("%v: said %v, want %v:\n%s", tc.flags, got, tc.says, out)
		}
	}
}

// TestFailureIsLogged: where the log is JSON, so is the reason why the server ends.
func TestFailureIsLogged(t *testing.T) {
	t.Parallel()
	file := writeFile(t, filepath.Join(t.TempDir(), "file"), "")
	code, out := millrace(t, serveArgs(file, "--log-format", "json")...)
	var line struct{ Level, Err string }
	if err := json.Unmarshal([]byte(out), &line); err != nil || code != exitFailed || line.Level != "ERROR" || !strings.Contains(line.Err, "Name another with --data-dir.") {
		t.Errorf("%v: exit code %d\n%s", err, code, out)
	}
}

// What is logged of a stop is in its order, however fast it is.
func TestStopIsLoggedInOrder(t *testing.T) {
	t.Parallel()
	cfg := serveConfig(t, serveArgs(t.TempDir(), "--intern", "off")[1:])
	out := &lockedBuffer{}
	d := openDaemon(t, cfg, newLogger(cfg, out))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.run(ctx); err != nil {
		t.Fatal(err)
	}
	stopping, stopped := strings.Index(out.String(), "msg=stopping"), strings.Index(out.String(), "msg=stopped")
	if stopping < 0 || stopped < stopping {
		t.Errorf("logged:\n%s", out)
	}
}
