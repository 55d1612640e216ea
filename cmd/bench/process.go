package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// process is a child of the measurement.
type process struct {
	cmd   *exec.Cmd
	lines chan string   // the first lines that it prints
	done  chan struct{} // closed when it has ended and its output has been read
	err   error         // set before done is closed

	mu   sync.Mutex
	tail [][]byte // the newest lines of both its outputs

	running sync.WaitGroup // listen, and the wait for the process
}

const (
	startTimeout = time.Minute
	stopTimeout  = 20 * time.Second
	keptLines    = 40
)

// startProcess starts a child.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, lines: make(chan string, keptLines), done: make(chan struct{})}
	p.cmd.SysProcAttr = childAttributes()
	r, w := io.Pipe()
	p.cmd.Stdout, p.cmd.Stderr = w, w
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
	}
	p.running.Go(func() {
		p.listen(r)
		close(p.done)
	})
	p.running.Go(func() {
		p.err = p.cmd.Wait()
		w.Close()
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

// await waits for the first line that found takes. A child that prints none in time is stopped.
func (p *process) await(found func(line string) bool) (err error) {
	defer func() {
		if err != nil {
			_ = p.stop() // the cause is known
		}
	}()
	late := time.After(startTimeout)
	for {
		select {
		case line := <-p.lines:
			if found(line) {
				return nil
			}
		case <-p.done:
			return p.failed(errors.New("it ended"))
		case <-late:
			return p.failed(errors.New("it was not ready in time"))
		}
	}
}

// failed adds the end of the child's output to err.
func (p *process) failed(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("%s: %w; its output ended with:\n%s", filepath.Base(p.cmd.Path), err, bytes.Join(p.tail, []byte{'\n'}))
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

// usage is the CPU time and memory that a process had used at a moment.
type usage struct {
	at        time.Time
	cpu       time.Duration
	rss, peak int64 // bytes that are resident, and that ever were
}

// cores is how many cores a process was busy on since an earlier moment.
func (u usage) cores(before usage) float64 {
	return (u.cpu - before.cpu).Seconds() / u.at.Sub(before.at).Seconds()
}

// usage returns the CPU time and memory that the process has used so far.
func (p *process) usage() (usage, error) { return usageOf(p.cmd.Process.Pid) }

func usageOf(pid int) (usage, error) {
	at := time.Now()
	p, err := procfs.NewProc(pid)
	if err != nil {
		return usage{}, fmt.Errorf("read /proc (this measurement runs on Linux only): %w", err)
	}
	stat, statErr := p.Stat()
	status, err := p.NewStatus()
	if err := errors.Join(statErr, err); err != nil {
		return usage{}, fmt.Errorf("read /proc: %w", err)
	}
	cpu := time.Duration(stat.CPUTime() * float64(time.Second))
	return usage{at: at, cpu: cpu, rss: int64(status.VmRSS), peak: int64(status.VmHWM)}, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
