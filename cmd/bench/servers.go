package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	publicclient "millrace/public/client"
)

// server is a running program that serves: a relay, or what has subscribers.
type server struct {
	*process
	addr    string // host:port
	metrics string // the same, of the metrics; "": it has none
}

// startServer starts one. It is ready with the first line of output in which find finds addr.
func startServer(cmd *exec.Cmd, find func(line string) (addr, metrics string)) (*server, error) {
	p, err := startProcess(cmd)
	if err != nil {
		return nil, err
	}
	s := &server{process: p}
	return s, s.await(func(line string) bool {
		s.addr, s.metrics = find(line)
		return s.addr != ""
	})
}

// listening finds the address in a line "listening ws://ADDRESS".
func listening(line string) (addr, metrics string) {
	_, addr, _ = strings.Cut(line, "listening ws://")
	return addr, ""
}

// startRelay starts a relaysim that writes its truth into a pipe; nil: into none.
func startRelay(ctx context.Context, program string, truth *os.File, args ...string) (*server, error) {
	cmd := exec.CommandContext(ctx, program, append([]string{"--listen", "127.0.0.1:0", "--wait-for-consumer"}, args...)...)
	if truth != nil {
		cmd.ExtraFiles = []*os.File{truth}
		cmd.Args = append(cmd.Args, "--truth", "/dev/fd/3")
	}
	return startServer(cmd, listening)
}

// url is where millrace finds a relay.
func (s *server) url() string { return "ws://" + s.addr }

// messages returns how many frames a relay has made.
func (s *server) messages() (int64, error) {
	raw, err := httpGet(s.addr, "/admin/status")
	if err != nil {
		return 0, err
	}
	var status struct{ Messages int64 }
	return status.Messages, json.Unmarshal(raw, &status)
}

// subscribe returns the URL of a subscription.
func (s *server) subscribe(query string) string { return "ws://" + s.addr + "/subscribe?" + query }

// subscribeV2 is subscribe of Jetstream v2's wire.
func (s *server) subscribeV2(query string) string {
	return "ws://" + s.addr + publicclient.V2Path + "?" + query
}

// noRelay is where no relay answers: a server serves what it has.
const noRelay = "ws://127.0.0.1:1"

// startMillrace starts millrace serve.
func startMillrace(ctx context.Context, program, relay, data string, args ...string) (*server, error) {
	args = append([]string{"serve", "--relay", relay, "--data-dir", data, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
		"--log-format", "json", "--min-free-disk", "0"}, args...)
	return startServer(exec.CommandContext(ctx, program, args...), func(line string) (addr, metrics string) {
		var said struct {
			Listen  string `json:"listen"`
			Metrics string `json:"metrics_listen"`
		}
		_ = json.Unmarshal([]byte(line), &said) // of another line it is empty
		return said.Listen, said.Metrics
	})
}

// startBaseline starts this program as the baseline, on the store in dir.
func startBaseline(ctx context.Context, relay, dir string) (*server, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return startServer(exec.CommandContext(ctx, self, "jetstream", "-relay", relay, "-dir", dir), listening)
}

// subscribeRepos is where a relay's stream is.
const subscribeRepos = "/xrpc/com.atproto.sync.subscribeRepos"

// startOriginal starts Jetstream v1. It has its defaults, but lets a subscriber have all there is.
func startOriginal(ctx context.Context, program, relay, data string) (s *server, err error) {
	s = &server{}
	for _, addr := range []*string{&s.addr, &s.metrics} { // it cannot say which port it took
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		*addr = listener.Addr().String()
		listener.Close()
	}
	if s.process, err = startProcess(exec.CommandContext(ctx, program, "--ws-url", relay+subscribeRepos, "--data-dir", data, "--listen-addr", s.addr,
		"--metrics-listen-addr", s.metrics, "--max-sub-rate", "1e9")); err != nil {
		return nil, err
	}
	for begun := time.Now(); ; {
		conn, err := net.Dial("tcp", s.addr)
		if err == nil {
			return s, conn.Close()
		}
		select {
		case <-s.done:
			return nil, s.failed(fmt.Errorf("it ended: %w", s.err))
		case <-time.After(50 * time.Millisecond):
		}
		if time.Since(begun) > startTimeout {
			_ = s.stop() // the cause is known
			return nil, s.failed(err)
		}
	}
}

// checkJetstream says what is wrong with -jetstream before minutes are spent, and makes it a path
// from the root.
func checkJetstream(program *string) (err error) {
	if *program == "" {
		return nil
	}
	if *program, err = filepath.Abs(*program); err == nil {
		_, err = exec.LookPath(*program)
	}
	if err != nil {
		return fmt.Errorf("-jetstream: this is no program of a Jetstream v1 server: %w", err)
	}
	return nil
}

// blockCounts is how many blocks a server has committed, and their events.
type blockCounts struct{ blocks, events float64 }

// blocks reads them from the server's metrics.
func (s *server) blocks() (n blockCounts, err error) {
	if s.metrics == "" {
		return n, nil
	}
	raw, err := httpGet(s.metrics, "/metrics")
	for line := range strings.Lines(string(raw)) {
		_, _ = fmt.Sscanf(line, "millrace_pipeline_block_events_count %g", &n.blocks) // of its line only
		_, _ = fmt.Sscanf(line, "millrace_pipeline_block_events_sum %g", &n.events)
	}
	return n, err
}
