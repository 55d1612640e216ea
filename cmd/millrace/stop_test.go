package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// SIGTERM is a clean end with exit code 0, also while a subscriber takes nothing.
func TestSIGTERM(t *testing.T) {
	t.Parallel()
	sim := startRelaysim(t, "--rate", "2000", "--wait-for-consumer")
	addr := freeAddr(t)
	p := startMillrace(t, sim.url, t.TempDir(), addr, "--shutdown-timeout", "2s", "--log-level", "info")
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
	reading := subscribe(t, addr, "extended=true&cursor=0")
	sim.waitMade(t, 4000)
	begin := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var last []byte
	for {
		msg, err := reading.next(20 * time.Second)
		if err != nil {
			if !strings.Contains(err.Error(), "1012") {
				t.Errorf("the subscriber that reads got %v, want close code 1012", err)
			}
			break
		}
		last = bytes.Clone(msg)
	}
	if !bytes.Contains(last, []byte("going_away")) {
		t.Errorf("the last message is %.200s, want going_away", last)
	}
	<-p.exited
	if code := p.cmd.ProcessState.ExitCode(); code != exitOK || time.Since(begin) > 9*time.Second {
		t.Errorf("ended after %v with exit code %d\n%s", time.Since(begin), code, p.stderr)
	}
	if !strings.Contains(p.stderr.String(), "msg=stopped") {
		t.Errorf("the log does not say that it stopped:\n%s", p.stderr)
	}
}

// Everything that the process says when it cannot start ends in an exit code and a text that names the flag.
func TestStartErrors(t *testing.T) {
	t.Parallel()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, []byte("no dictionary"), 0o600); err != nil {
		t.Fatal(err)
	}
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
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
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
	if err := runServe(ctx, args, io.Discard, &said); err != nil {
		t.Errorf("%v\n%s", err, &said)
	}
}
