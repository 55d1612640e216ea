package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// replayBinaries are the programs that run beside the benchmark.
type replayBinaries struct{ millrace, relaysim string }

// buildReplayBinaries builds them in dir.
func buildReplayBinaries(ctx context.Context, dir string) (replayBinaries, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return replayBinaries{}, err
	}
	return replayBinaries{filepath.Join(dir, "millrace"), filepath.Join(dir, "relaysim")}, buildBinaries(ctx, dir, false)
}

// startRelay starts a simulated relay and returns its URL.
func (b replayBinaries) startRelay(ctx context.Context, args ...string) (*process, string, error) {
	return startListening(ctx, b.relaysim, append([]string{"--listen", "127.0.0.1:0"}, args...), listening)
}

// noRelay is where no relay answers: the server serves what it has.
const noRelay = "127.0.0.1:1"

// startServer starts millrace on a copy of the log and returns its address and how long it took
// until it answered.
func (b replayBinaries) startServer(ctx context.Context, dataDir string, args ...string) (p *process, addr string, took time.Duration, err error) {
	begun := time.Now()
	all := append([]string{"serve", "--relay", "ws://" + noRelay, "--data-dir", dataDir, "--listen", "127.0.0.1:0", "--metrics-listen", "",
		"--intern", "off", "--retention", "876000h", "--min-free-disk", "0"}, args...)
	serves := regexp.MustCompile(`msg="millrace serves".* listen=(\S+)`)
	if p, addr, err = startListening(ctx, b.millrace, all, func(line string) (string, bool) {
		m := serves.FindStringSubmatch(line)
		return strings.Join(m[min(1, len(m)):], ""), m != nil
	}); err != nil {
		return nil, "", 0, err
	}
	resp, err := http.Get("http://" + addr + "/cursors")
	if err != nil {
		_ = p.stop()
		return nil, "", 0, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		_ = p.stop()
		return nil, "", 0, fmt.Errorf("/cursors answers %s, %w", resp.Status, err)
	}
	return p, addr, time.Since(begun), nil
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
