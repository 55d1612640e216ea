package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// peakMemory returns the most memory of a process that was resident so far, in bytes.
func (p *millraceProcess) peakMemory(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	_, rest, ok := strings.Cut(string(status), "VmHWM:")
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	kib, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil {
		t.Fatalf("VmHWM %q: %v", number, err)
	}
	return kib << 10
}

// checkPeak holds that the process never took more than 1.1 times its --memory.
func (p *millraceProcess) checkPeak(t *testing.T, memory int64) {
	t.Helper()
	peak := p.peakMemory(t)
	t.Logf("--memory %d MiB: %.1f MiB at most, %.2f of it", memory>>20, float64(peak)/(1<<20), float64(peak)/float64(memory))
	if peak > memory/10*11 {
		t.Errorf("%d MiB were resident, of %d", peak>>20, memory>>20)
	}
}

// memorySizes are those that the tests of resident memory run with.
func memorySizes(t *testing.T) []int64 {
	t.Helper()
	if !long() {
		t.Skip("takes a minute: make test-long")
	}
	return []int64{64 << 20, 128 << 20, 256 << 20}
}

func mebibytes(n int64) string { return strconv.FormatInt(n>>20, 10) + "MiB" }

// Frames at and beyond the limits of the protocol do not make the process larger than --memory, and those that are
// within them are in the log.
func TestMemoryHostileFrames(t *testing.T) {
	for _, memory := range memorySizes(t) {
		for _, kinds := range []string{"odd-records-of-256-kib", "ops-10*,odd-ops*,control*,records-of*,odd-records*,odd-frame*"} {
			t.Run(mebibytes(memory)+"/"+kinds, func(t *testing.T) {
				const frames = 80
				sim := startRelaysim(t, "--frames", strconv.Itoa(frames), "--hostile-every", "2", "--generate", "200", "--accounts", "50", "--hostile-kinds", kinds, "--wait-for-consumer")
				addr := freeAddr(t)
				p := startMillrace(t, sim.url, t.TempDir(), addr, "--memory", mebibytes(memory))
				waitServing(t, addr)
				sim.waitMade(t, frames)
				want := readTruth(t, sim.truth)
				checkExact(t, "the log", readAll(t, addr, "cursor=0", len(want)), want)
				p.checkPeak(t, memory)
			})
		}
	}
}

// A hundred subscribers that read a little now and then, each at another place of the log, do not make the process
// larger than --memory.
func TestMemorySlowSubscribers(t *testing.T) {
	const frames, slow = 2_000, 100
	for _, memory := range memorySizes(t) {
		t.Run(mebibytes(memory), func(t *testing.T) {
			sim := startRelaysim(t, "--frames", strconv.Itoa(frames), "--hostile-every", "20", "--generate", "500", "--hostile-kinds", "odd-records-of-256-kib", "--wait-for-consumer")
			addr := freeAddr(t)
			p := startMillrace(t, sim.url, t.TempDir(), addr, "--memory", mebibytes(memory))
			waitServing(t, addr)
			sim.waitMade(t, frames)
			want := readTruth(t, sim.truth)
			checkExact(t, "the log", readAll(t, addr, "cursor=0", len(want)), want)
			t.Logf("before: %d MiB", p.peakMemory(t)>>20)
			ctx, stop := context.WithCancel(context.Background())
			var clients sync.WaitGroup
			for i := range slow {
				clients.Go(func() { readSlowly(ctx, addr, time.Duration(i)*time.Millisecond) })
			}
			events := readAll(t, addr, "cursor=0&extended=true", len(want))
			readAll(t, addr, "cursor=0&extended=true", len(want))
			stop()
			clients.Wait()
			if len(events) != len(want) {
				t.Errorf("%d events beside slow subscribers, want %d", len(events), len(want))
			}
			p.checkPeak(t, memory)
		})
	}
}

// readSlowly reads extended events a few at a time, with a pause between them and a small buffer, again and again.
func readSlowly(ctx context.Context, addr string, pause time.Duration) {
	d := websocket.Dialer{ReadBufferSize: 4 << 10, NetDialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if tcp, ok := c.(*net.TCPConn); ok {
			err = tcp.SetReadBuffer(16 << 10)
		}
		return c, err
	}}
	for ctx.Err() == nil {
		ws, _, err := d.DialContext(ctx, "ws://"+addr+"/subscribe?cursor=0&extended=true", nil)
		if err != nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() { ws.Close() })
		for {
			if _, _, err := ws.ReadMessage(); err != nil {
				break
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
		stop()
		ws.Close()
	}
}
