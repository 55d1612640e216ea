package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// process is a child of the measurement.
type process struct {
	cmd   *exec.Cmd
	lines chan string // what it prints first
	done  chan struct{}
	err   error // after done

	mu   sync.Mutex
	tail [][]byte // the newest lines of both its outputs

	running sync.WaitGroup // listen, and what waits for the process
}

const (
	startTimeout = time.Minute
	stopTimeout  = 20 * time.Second
	keptLines    = 40
)

// startProcess starts a child. It is killed when ctx ends.
func startProcess(ctx context.Context, name string, args []string, env ...string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, name, args...), lines: make(chan string, keptLines), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = childAttributes()
	r, w := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(name), err)
	}
	p.running.Go(func() { p.listen(r) })
	p.running.Go(func() {
		p.err = p.cmd.Wait()
		w.Close()
		close(p.done)
	})
	return p, nil
}

func (p *process) listen(r io.Reader) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		p.mu.Lock()
		p.tail = append(p.tail, bytes.Clone(s.Bytes()))
		if len(p.tail) > keptLines {
			p.tail = p.tail[1:]
		}
		p.mu.Unlock()
		select {
		case p.lines <- s.Text():
		default:
		}
	}
	_, _ = io.Copy(io.Discard, r)
}

// await returns what find makes of the first line that it takes.
func (p *process) await(find func(line string) (string, bool)) (string, error) {
	late := time.After(startTimeout)
	for {
		select {
		case line := <-p.lines:
			if found, ok := find(line); ok {
				return found, nil
			}
		case <-p.done:
			return "", p.failed(errors.New("it ended"))
		case <-late:
			return "", p.failed(errors.New("it did not start in time"))
		}
	}
}

// failed says what the child said last.
func (p *process) failed(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("%s: %w; its last words:\n%s", filepath.Base(p.cmd.Path), err, bytes.Join(p.tail, []byte{'\n'}))
}

// kill ends the child at once and waits for it.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	p.running.Wait()
}

// stop ends the child and waits for it. It is safe twice.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	defer p.running.Wait()
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
		_ = p.cmd.Process.Kill()
		<-p.done
		return p.failed(fmt.Errorf("it did not end within %v", stopTimeout))
	}
}

// startListening starts a child and returns the address that listens finds in one of its lines.
func startListening(ctx context.Context, name string, args []string, listens func(line string) (string, bool)) (*process, string, error) {
	p, err := startProcess(ctx, name, args)
	if err != nil {
		return nil, "", err
	}
	address, err := p.await(listens)
	if err != nil {
		p.kill()
		return nil, "", err
	}
	return p, address, nil
}

// listening takes the address out of a line "listening URL".
func listening(line string) (string, bool) { return strings.CutPrefix(line, "listening ") }

// clockTicks is how many of them /proc counts a second; on Linux it is always 100.
const clockTicks = 100

// cpu returns the CPU time that the process has taken so far.
func (p *process) cpu() (time.Duration, error) { return cpuOf(p.cmd.Process.Pid) }

func cpuOf(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The name in parentheses may hold anything; fields 14 and 15 of the whole are the 12th and
	// 13th after it.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 13 {
		return 0, errors.New("read /proc: too few fields")
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read /proc: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / clockTicks, nil
}

// resident returns the memory that the process has resident, and the most it ever had, in bytes.
func (p *process) resident() (now, peak int64, err error) { return residentOf(p.cmd.Process.Pid) }

func residentOf(pid int) (now, peak int64, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			now = kib << 10
		case "VmHWM":
			peak = kib << 10
		}
	}
	return now, peak, nil
}

// buildBinaries builds what is measured into dir: millrace, millrace-nocgo and relaysim.
func buildBinaries(ctx context.Context, dir string, noCgo bool) error {
	builds := []struct {
		cgo, out string
		pkgs     []string
	}{{"1", dir + string(filepath.Separator), []string{"millrace/cmd/millrace", "millrace/cmd/relaysim"}}}
	if noCgo {
		builds = append(builds, struct {
			cgo, out string
			pkgs     []string
		}{"0", filepath.Join(dir, "millrace-nocgo"), []string{"millrace/cmd/millrace"}})
	}
	for _, b := range builds {
		cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", b.out}, b.pkgs...)...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED="+b.cgo)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go build (run this from the module's directory): %w\n%s", err, out)
		}
	}
	return nil
}
