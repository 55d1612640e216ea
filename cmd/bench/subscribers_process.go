//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// buildPrograms builds what the flags do not name.
func buildPrograms(ctx context.Context, f *subscribersFlags, dir string) error {
	if f.millrace == "" || f.relaysim == "" {
		if err := buildBinaries(ctx, dir, false); err != nil {
			return err
		}
	}
	f.millrace = cmp.Or(f.millrace, filepath.Join(dir, "millrace"))
	f.relaysim = cmp.Or(f.relaysim, filepath.Join(dir, "relaysim"))
	return nil
}

// usage is what a process had taken at a moment.
type usage struct {
	at  time.Time
	cpu time.Duration
	rss int64 // bytes
}

func (u usage) cores(before usage) float64 {
	return (u.cpu - before.cpu).Seconds() / u.at.Sub(before.at).Seconds()
}

func (p *process) usage() usage { return usageOf(p.cmd.Process.Pid) }

func ownUsage() usage { return usageOf(os.Getpid()) }

// usageOf knows nothing of a process that is gone.
func usageOf(pid int) usage {
	u := usage{at: time.Now()}
	u.cpu, _ = cpuOf(pid)
	u.rss, _, _ = residentOf(pid)
	return u
}

// socketBytes is what the kernel's TCP buffers take.
func socketBytes() int64 {
	raw, err := os.ReadFile("/proc/net/sockstat")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == "TCP:" {
			pages, _ := strconv.ParseInt(fields[len(fields)-1], 10, 64)
			return pages * int64(os.Getpagesize())
		}
	}
	return 0
}

// relayProcess is a running relaysim.
type relayProcess struct {
	*process
	url    string // ws://…
	truth  string // file
	frames int64  // it ends with
}

func startRelay(ctx context.Context, f *subscribersFlags, dir string, of *scenario, frames int64) (*relayProcess, error) {
	r := &relayProcess{truth: filepath.Join(dir, "truth.jsonl"), frames: frames}
	args := []string{"--listen", "127.0.0.1:0", "--truth", r.truth, "--rate", strconv.FormatFloat(of.rate, 'f', -1, 64),
		"--frames", strconv.FormatInt(frames, 10), "--wait-for-consumer", "--log-level", "ERROR"}
	if of.original {
		args = append(args, "--keep-record-keys") // a record is looked for by its path
	}
	var err error
	r.process, r.url, err = startListening(ctx, f.relaysim, args, listening)
	return r, err
}

// messages is how many the relay has made.
func (r *relayProcess) messages() int64 {
	n, _ := relayFrames(strings.Replace(r.url, "ws://", "http://", 1) + "/admin/status")
	return n
}

// end waits for the relay's last frame and returns the truth, one line an event.
func (r *relayProcess) end(ctx context.Context) ([]json.RawMessage, error) {
	for r.messages() < r.frames {
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	raw, err := os.ReadFile(r.truth)
	if err != nil {
		return nil, err
	}
	var events []json.RawMessage
	for line := range bytes.Lines(raw) {
		var l struct{ Event json.RawMessage }
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, fmt.Errorf("truth line %d: %w", len(events)+1, err)
		}
		events = append(events, l.Event)
	}
	return events, nil
}

// serverProcess is a running millrace serve.
type serverProcess struct {
	*process
	addr, metricsAddr string
}

func startServer(ctx context.Context, f *subscribersFlags, dir, relay string, of *scenario) (s *serverProcess, err error) {
	s = &serverProcess{}
	for _, addr := range []*string{&s.addr, &s.metricsAddr} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		*addr = ln.Addr().String()
		ln.Close()
	}
	data := filepath.Join(dir, "data")
	program, args := f.millrace, append([]string{"serve", "--relay", relay, "--data-dir", data, "--listen", s.addr,
		"--metrics-listen", s.metricsAddr, "--min-free-disk", "0", "--log-level", "warn", "--memory", f.memory}, of.flags...)
	if of.original {
		program, args = f.jetstream, originalFlags(relay, data, s.addr, s.metricsAddr)
	}
	if s.process, err = startProcess(ctx, program, args); err != nil {
		return nil, err
	}
	for end := time.Now().Add(20 * time.Second); ; {
		resp, err := http.Get("http://" + s.addr + "/healthz")
		if err == nil {
			resp.Body.Close()
			return s, nil
		}
		if time.Now().After(end) {
			s.kill()
			return nil, s.failed(err)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			s.kill()
			return nil, err
		}
	}
}

// metrics returns a metric's values by the value of its label, "" if it has none.
func (s *serverProcess) metrics(name string) (map[string]float64, error) {
	all, err := scrape("http://" + s.metricsAddr + "/metrics")
	values := map[string]float64{}
	for metric, v := range all {
		if rest, ok := strings.CutPrefix(metric, name); ok && v != 0 && (rest == "" || rest[0] == '{') {
			_, quoted, _ := strings.Cut(rest, `"`)
			label, _, _ := strings.Cut(quoted, `"`)
			values[label] = v
		}
	}
	return values, err
}
