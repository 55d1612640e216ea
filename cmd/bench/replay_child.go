package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// replayBinaries are the programs that run beside the benchmark.
type replayBinaries struct{ millrace, relaysim string }

// buildReplayBinaries builds them from the module that the working directory is in.
func buildReplayBinaries(ctx context.Context, dir string) (replayBinaries, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return replayBinaries{}, err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", dir+string(os.PathSeparator), "millrace/cmd/millrace", "millrace/cmd/relaysim")
	if out, err := cmd.CombinedOutput(); err != nil {
		return replayBinaries{}, fmt.Errorf("build millrace and relaysim: %w: %s", err, out)
	}
	return replayBinaries{filepath.Join(dir, "millrace"), filepath.Join(dir, "relaysim")}, nil
}

// child is a program that was started.
type child struct {
	cmd    *exec.Cmd
	output sync.WaitGroup
	last   tailBuffer
}

// tailBuffer keeps the last lines of a child's output, for errors.
type tailBuffer struct {
	mu    sync.Mutex
	lines []string
}

func (t *tailBuffer) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lines = append(t.lines, line); len(t.lines) > 10 {
		t.lines = t.lines[1:]
	}
}

func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}

// childPatience is how long a child may take until it says its address, and to end.
const childPatience = 60 * time.Second

// startChild starts a program and returns what the first line that pattern matches says of its
// address.
func startChild(ctx context.Context, pattern, bin string, args ...string) (c *child, address string, err error) {
	c = &child{cmd: exec.Command(bin, args...)}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	c.cmd.Stdout, c.cmd.Stderr = writer, writer
	err = c.cmd.Start()
	writer.Close()
	if err != nil {
		reader.Close()
		return nil, "", err
	}
	found := make(chan string, 1)
	c.output.Go(func() { c.read(reader, regexp.MustCompile(pattern), found) })
	ctx, cancel := context.WithTimeout(ctx, childPatience)
	defer cancel()
	select {
	case address, ok := <-found:
		if ok {
			return c, address, nil
		}
		err = fmt.Errorf("it ended: %s", &c.last)
	case <-ctx.Done():
		err = fmt.Errorf("%w: %s", context.Cause(ctx), &c.last)
	}
	c.stop()
	return nil, "", fmt.Errorf("start %s: %w", filepath.Base(bin), err)
}

func (c *child) read(r io.ReadCloser, pattern *regexp.Regexp, found chan string) {
	defer r.Close()
	defer close(found)
	matched := false
	for s := bufio.NewScanner(r); s.Scan(); {
		c.last.add(s.Text())
		if m := pattern.FindSubmatch(s.Bytes()); m != nil && !matched {
			matched = true
			found <- string(bytes.Clone(m[1]))
		}
	}
}

// stop ends the program and waits for it.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	kill := time.AfterFunc(childPatience, func() { _ = c.cmd.Process.Kill() })
	_ = c.cmd.Wait() // however it ended
	kill.Stop()
	c.output.Wait()
}

// startRelay starts a simulated relay and returns its URL.
func (b replayBinaries) startRelay(ctx context.Context, args ...string) (*child, string, error) {
	return startChild(ctx, `^listening (ws://\S+)`, b.relaysim, append([]string{"--listen", "127.0.0.1:0"}, args...)...)
}

// noRelay is where no relay answers: the server serves what it has.
const noRelay = "127.0.0.1:1"

// startServer starts millrace on a copy of the log and returns its address and how long it took
// until it answered.
func (b replayBinaries) startServer(ctx context.Context, dataDir string, args ...string) (c *child, addr string, took time.Duration, err error) {
	begun := time.Now()
	all := append([]string{"serve", "--relay", "ws://" + noRelay, "--data-dir", dataDir, "--listen", "127.0.0.1:0", "--metrics-listen", "",
		"--intern", "off", "--retention", "876000h", "--min-free-disk", "0"}, args...)
	if c, addr, err = startChild(ctx, `msg="millrace serves".* listen=(\S+)`, b.millrace, all...); err != nil {
		return nil, "", 0, err
	}
	resp, err := http.Get("http://" + addr + "/cursors")
	if err != nil {
		c.stop()
		return nil, "", 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		c.stop()
		return nil, "", 0, fmt.Errorf("/cursors answers %s, %w", resp.Status, err)
	}
	return c, addr, time.Since(begun), nil
}

// bareSample is how much of a subscription's frames the bare socket sends again and again: more
// than a core's own caches hold, as events are that nobody has sent before.
const bareSample = 8 << 20

// bareWrite is how much the bare socket is given in one write.
const bareWrite = 64 << 10

// bareSocket sends so many bytes of a subscription's own frames through a loopback connection, 64
// KiB a write, to the very client that reads the subscription: it reads as much at once and counts
// the same frames, so that the two differ in the server alone.
func bareSocket(ctx context.Context, frames []byte, bytes int64) (streamed, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return streamed{}, err
	}
	var sender errgroup.Group
	defer sender.Wait() //nolint:errcheck // a failure before the end is the reader's too
	defer ln.Close()
	sender.Go(func() error {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		defer conn.Close()
		for left, at := bytes, 0; left > 0 && err == nil; {
			n := int(min(bareWrite, left, int64(len(frames)-at)))
			_, err = conn.Write(frames[at : at+n])
			left -= int64(n)
			at = (at + n) % len(frames)
		}
		return err
	})
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return streamed{}, err
	}
	c := &frameClient{conn: conn, buf: make([]byte, clientBuffer)}
	defer c.close()
	defer context.AfterFunc(ctx, c.close)()
	begun := time.Now()
	for c.bytes < bytes {
		if err := c.read(); err != nil {
			return streamed{}, err
		}
	}
	return streamed{c.frames, c.bytes, time.Since(begun)}, sender.Wait()
}

// bare measures the socket with what a subscription sends.
func (b *replayBench) bare(ctx context.Context, addr, query string, s streamed) (streamed, error) {
	sample, err := sampleFrames(ctx, addr, query, s)
	if err != nil {
		return streamed{}, fmt.Errorf("frames for the bare socket: %w", err)
	}
	all := make([]streamed, b.f.repeat)
	for i := range all {
		if all[i], err = bareSocket(ctx, sample, s.bytes); err != nil {
			return streamed{}, fmt.Errorf("bare socket: %w", err)
		}
	}
	return medianOf(all), nil
}
