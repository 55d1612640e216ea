//go:build linux

package main

import (
	"bufio"
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
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// buildPrograms builds what the flags do not name.
func buildPrograms(ctx context.Context, f *subscribersFlags, dir string) error {
	for name, path := range map[string]*string{"millrace": &f.millrace, "relaysim": &f.relaysim} {
		if *path != "" {
			continue
		}
		*path = filepath.Join(dir, name)
		cmd := exec.CommandContext(ctx, "go", "build", "-o", *path, "millrace/cmd/"+name)
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", name, err, text)
		}
	}
	return nil
}

// measuredProcess is a process that is measured.
type measuredProcess struct {
	cmd    *exec.Cmd
	stderr bytes.Buffer
	exited chan struct{}
}

func (c *measuredProcess) start(ctx context.Context, program string, args ...string) (stdout io.Reader, err error) {
	c.cmd = exec.CommandContext(ctx, program, args...)
	c.cmd.Stderr = &c.stderr
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	c.exited = make(chan struct{})
	return out, nil
}

// stop ends the process and waits for it.
func (c *measuredProcess) stop() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
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

func (c *measuredProcess) usage() usage { return usageOf(strconv.Itoa(c.cmd.Process.Pid)) }

func ownUsage() usage { return usageOf("self") }

// clockTick is what /proc counts CPU time in: 100 a second on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// usageOf reads /proc; of a process that is gone it knows nothing.
func usageOf(pid string) usage {
	u := usage{at: time.Now()}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return u
	}
	// The name in parentheses may hold anything; utime and stime are the 12th and 13th field after
	// it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	for _, at := range []int{11, 12} {
		ticks, _ := strconv.ParseInt(fields[at], 10, 64)
		u.cpu += time.Duration(ticks) * clockTick
	}
	pages, _ := strconv.ParseInt(fields[21], 10, 64)
	u.rss = pages * int64(os.Getpagesize())
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
	measuredProcess
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
	out, err := r.start(ctx, f.relaysim, args...)
	if err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		r.stop()
		return nil, fmt.Errorf("relaysim: %w: %s", err, &r.stderr)
	}
	r.url = strings.TrimSpace(strings.TrimPrefix(line, "listening "))
	return r, nil
}

// messages is how many the relay has made.
func (r *relayProcess) messages() int64 {
	var status struct{ Messages int64 }
	resp, err := http.Get(strings.Replace(r.url, "ws://", "http://", 1) + "/admin/status")
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if json.NewDecoder(resp.Body).Decode(&status) != nil {
		return 0
	}
	return status.Messages
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
	measuredProcess
	addr, metricsAddr string
}

func startServer(ctx context.Context, f *subscribersFlags, dir, relay string, of *scenario) (*serverProcess, error) {
	s := &serverProcess{}
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
	if _, err := s.start(ctx, program, args...); err != nil {
		return nil, err
	}
	for end := time.Now().Add(20 * time.Second); ; {
		resp, err := http.Get("http://" + s.addr + "/healthz")
		if err == nil {
			resp.Body.Close()
			return s, nil
		}
		if time.Now().After(end) {
			s.stop()
			return nil, fmt.Errorf("%s: %w: %s", filepath.Base(program), err, &s.stderr)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			s.stop()
			return nil, err
		}
	}
}

// metrics returns a metric's values by the value of its label, "" if it has none.
func (s *serverProcess) metrics(name string) (map[string]float64, error) {
	resp, err := http.Get("http://" + s.metricsAddr + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	values := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), name)
		if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
			continue
		}
		label := ""
		if _, quoted, ok := strings.Cut(rest, `"`); ok {
			label, _, _ = strings.Cut(quoted, `"`)
		}
		v, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %s: %w", lines.Text(), err)
		}
		if v != 0 {
			values[label] = v
		}
	}
	return values, lines.Err()
}

// profile writes a CPU profile of the server to a file.
func (s *serverProcess) profile(file string, d time.Duration) (err error) {
	resp, err := http.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", s.metricsAddr, int(d.Seconds())))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	_, err = io.Copy(out, resp.Body)
	return err
}
