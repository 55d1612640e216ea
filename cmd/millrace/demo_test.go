package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// demo is deploy/demo as a process group of its own.
type demo struct {
	cmd    *exec.Cmd
	stdout io.Reader
	stderr bytes.Buffer
	tmp    string
}

func startDemo(t *testing.T, bin string, env ...string) *demo {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	t.Cleanup(cancel)
	d := &demo{cmd: exec.CommandContext(ctx, "../../deploy/demo"), tmp: t.TempDir()}
	d.cmd.Env = append(os.Environ(), append([]string{
		"BIN=" + bin, "TMPDIR=" + d.tmp, "LISTEN=127.0.0.1:0", "METRICS_LISTEN=127.0.0.1:0",
	}, env...)...)
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	d.cmd.Cancel = func() error { return syscall.Kill(-d.cmd.Process.Pid, syscall.SIGKILL) }
	d.cmd.Stderr, d.cmd.WaitDelay = &d.stderr, time.Second
	out, err := d.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.stdout = bufio.NewReader(out)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return d
}

// wantEnd waits for the end, which leaves no process and no file.
func (d *demo) wantEnd(t *testing.T, code int, stderr ...string) {
	t.Helper()
	_, _ = io.Copy(io.Discard, d.stdout)
	_ = d.cmd.Wait()
	if got := d.cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	for _, want := range stderr {
		if !strings.Contains(d.stderr.String(), want) {
			t.Errorf("standard error lacks %q", want)
		}
	}
	if err := syscall.Kill(-d.cmd.Process.Pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("a process of the demo lives on: %v", err)
	}
	if left, err := os.ReadDir(d.tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if t.Failed() {
		t.Logf("standard error:\n%s", &d.stderr)
	}
}

// TestDemo: the link that the demo prints works as soon as it is printed, also with a port alone.
// So do the paths that README.md shows. What it asks of the graph has an answer after a while.
// Ctrl-C ends all.
func TestDemo(t *testing.T) {
	t.Parallel()
	bin := binaries(t)
	// A shell cannot trap what is ignored when it begins, as in a job in the background.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, os.Interrupt)
	defer signal.Stop(caught)
	d := startDemo(t, filepath.Dir(bin["millrace"]), "LISTEN=:0")
	link, err := firstLine(d.stdout, "  http://localhost:")
	if err != nil {
		_ = d.cmd.Wait()
		t.Fatalf("%v\n%s", err, &d.stderr)
	}
	paths := []string{""}
	readme := textOf(t, readDocs(t), "README.md")
	for _, m := range regexp.MustCompile(`(?m)^curl -s localhost:6008/(\S+)`).FindAllStringSubmatch(readme, -1) {
		paths = append(paths, m[1])
	}
	if len(paths) < 3 {
		t.Errorf("README.md asks for %q only", paths)
	}
	for _, path := range paths {
		resp, err := http.Get("http://localhost:" + link + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("/%s: %s", path, resp.Status)
		}
	}
	asked := regexp.MustCompile(`/graph/follows-following -d (\S+) -d (\S+)`).FindStringSubmatch(readme)
	waitFor(t, "accounts that one follows and that follow another", func() bool {
		resp, err := http.Get("http://localhost:" + link + "graph/follows-following?" + asked[1] + "&" + asked[2])
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var answer struct{ Subjects []struct{ Count int } }
		return json.NewDecoder(resp.Body).Decode(&answer) == nil && len(answer.Subjects) == 1 && answer.Subjects[0].Count > 0
	})
	if err := syscall.Kill(-d.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	d.wantEnd(t, 0)
}

// TestBuildWithoutGit: make builds a clone that git refuses as another user's.
func TestBuildWithoutGit(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "git"), []byte("#!/bin/sh\nexit 128\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "make", "-n", "-C", "../..", "build")
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "build -buildvcs=false ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDemoFails: a demo that cannot start says why, and leaves nothing behind.
func TestDemoFails(t *testing.T) {
	onlyLong(t)
	t.Parallel()
	bin := binaries(t)
	fake := func(t *testing.T, relaysim string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "relaysim"), []byte("#!/bin/sh\n"+relaysim+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	t.Run("port", func(t *testing.T) {
		l := listenLoopback(t)
		defer l.Close()
		d := startDemo(t, filepath.Dir(bin["millrace"]), "LISTEN="+l.Addr().String())
		d.wantEnd(t, 1, "millrace ended", l.Addr().String(), "address already in use", "demo: choose other ports")
	})
	t.Run("ended", func(t *testing.T) {
		startDemo(t, fake(t, "echo no luck >&2")).wantEnd(t, 1, "relay ended", "no luck")
	})
	t.Run("late", func(t *testing.T) {
		d := startDemo(t, fake(t, "echo in thought >&2; exec sleep 1000"), "START_TIMEOUT=5")
		d.wantEnd(t, 1, "not ready within 5 s", "in thought")
	})
}
