package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// checkPeak holds that the process never took more than 1.15 times its --memory.
func (p *millraceProcess) checkPeak(t *testing.T, memory int64) {
	t.Helper()
	peak := p.peakMemory(t)
	t.Logf("--memory %d MiB: %.1f MiB at most, %.2f of it", memory>>20, float64(peak)/(1<<20), float64(peak)/float64(memory))
	if peak > memory/20*23 {
		t.Errorf("%d MiB were resident, of %d", peak>>20, memory>>20)
	}
}

// memorySizes are those that the tests of resident memory run with: the least, or what
// MILLRACE_TEST_MEMORY lists.
func memorySizes(t *testing.T) []int64 {
	t.Helper()
	if !long() {
		t.Skip("takes half a minute: make test-long")
	}
	var sizes []int64
	for s := range strings.SplitSeq(cmpOr(os.Getenv("MILLRACE_TEST_MEMORY"), "64MiB"), ",") {
		var size byteSize
		if err := size.Set(s); err != nil {
			t.Fatal("MILLRACE_TEST_MEMORY: ", err)
		}
		sizes = append(sizes, int64(size))
	}
	return sizes
}

func mebibytes(n int64) string { return strconv.FormatInt(n>>20, 10) + "MiB" }

// checkWhole waits until the relay has made that many frames, and compares the log with them.
func checkWhole(t *testing.T, sim *simulator, addr string, frames int64) {
	t.Helper()
	sim.waitMade(t, frames)
	want := readTruth(t, sim.truth)
	checkExact(t, "the log", readAll(t, addr, "cursor=0", len(want)), want)
}

// Frames at and beyond the limits of the protocol do not make the process larger than --memory,
// verified or not. Those that are within them are in the log.
func TestMemoryHostileFrames(t *testing.T) {
	for _, memory := range memorySizes(t) {
		for _, kinds := range []string{"odd-records-of-256-kib", "ops-10*,odd-ops*,control*,records-of*,odd-records*,odd-frame*"} {
			for _, verify := range []string{"off", "flag"} {
				t.Run(mebibytes(memory)+"/"+kinds+"/"+verify, func(t *testing.T) {
					const frames = 40
					sim := startRelaysim(t, "--frames", strconv.Itoa(frames), "--hostile-every", "2", "--generate", "200", "--accounts", "50", "--hostile-kinds", kinds, "--wait-for-consumer")
					addr := freeAddr(t)
					p := startMillrace(t, sim.url, t.TempDir(), addr, "--memory", mebibytes(memory), "--verify", verify, "--plc", sim.plc())
					waitServing(t, addr)
					checkWhole(t, sim, addr, frames)
					p.checkPeak(t, memory)
				})
			}
		}
	}
}

// As fast as a relay can send, the process does not become larger than --memory, whatever it
// derives from the events. A graph of few follows takes little beside it.
func TestMemoryIngest(t *testing.T) {
	const frames, smallGraph = 100_000, 8 << 20
	for _, memory := range memorySizes(t) {
		for _, flags := range []string{"", "--references=on --links", "--references=on --graph"} {
			t.Run(mebibytes(memory)+" "+flags, func(t *testing.T) {
				sim := startRelaysim(t, "--frames", strconv.Itoa(frames), "--generate", "10000", "--wait-for-consumer")
				addr := freeAddr(t)
				p := startMillrace(t, sim.url, t.TempDir(), addr, append([]string{"--memory", mebibytes(memory)}, strings.Fields(flags)...)...)
				waitServing(t, addr)
				sim.waitMade(t, frames)
				want := readTruth(t, sim.truth)
				last := want[len(want)-1]
				end := fmt.Sprintf("-%d-%d", last.Seq, last.Op)
				waitFor(t, "the last event", func() bool { return strings.HasSuffix(lastCursor(t, addr), end) })
				if strings.Contains(flags, "--graph") {
					waitGraph(t, addr, lastCursor(t, addr))
					memory += smallGraph
				}
				p.checkPeak(t, memory)
			})
		}
	}
}

// Commits are verified within --memory, whatever the directory of keys sends, and all become
// durable.
func TestMemoryVerification(t *testing.T) {
	const frames = 20_000
	for _, memory := range memorySizes(t) {
		for _, fault := range []string{"", "endless", "endless-headers", "silent"} {
			t.Run(mebibytes(memory)+"/"+fault, func(t *testing.T) {
				sim := startRelaysim(t, "--frames", strconv.Itoa(frames), "--signed", "--generate", strconv.Itoa(frames), "--wait-for-consumer")
				resp, err := http.Post(sim.admin+"plc?fault="+fault, "", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				addr := freeAddr(t)
				p := startMillrace(t, sim.url, t.TempDir(), addr, "--memory", mebibytes(memory), "--verify=flag", "--plc", sim.plc())
				waitServing(t, addr)
				checkWhole(t, sim, addr, frames)
				p.checkPeak(t, memory)
			})
		}
	}
}

// With links, neither records of many references, their updates and deletes, nor the largest frames
// among them make the process larger than --memory.
func TestMemoryLinks(t *testing.T) {
	for _, memory := range memorySizes(t) {
		for _, tc := range []struct {
			name         string
			frames       int64
			hostileEvery string
		}{{"large frames", 600, "3"}, {"churn", 30000, "0"}} {
			t.Run(mebibytes(memory)+"/"+tc.name, func(t *testing.T) {
				sim := startRelaysim(t, "--frames", strconv.FormatInt(tc.frames, 10), "--hostile-every", tc.hostileEvery, "--hostile-kinds", "records-of*,odd-records*,ops-10*",
					"--churn-every", "3", "--generate", "500", "--accounts", "50", "--wait-for-consumer")
				addr := freeAddr(t)
				p := startMillrace(t, sim.url, t.TempDir(), addr, "--memory", mebibytes(memory), "--references=on", "--links")
				waitServing(t, addr)
				checkWhole(t, sim, addr, tc.frames)
				p.checkPeak(t, memory)
			})
		}
	}
}

// A hundred subscribers that read a little now and then, each at another place of the log, do not
// make the process larger than --memory. That holds where events are large, and where blocks have
// many.
func TestMemorySlowSubscribers(t *testing.T) {
	const slow, messages = 100, 30
	for _, memory := range memorySizes(t) {
		for _, tc := range []struct {
			name         string
			frames       int64
			hostileEvery string
		}{{"large events", 200, "10"}, {"small events", 20000, "0"}} {
			t.Run(mebibytes(memory)+"/"+tc.name, func(t *testing.T) {
				sim := startRelaysim(t, "--frames", strconv.FormatInt(tc.frames, 10), "--hostile-every", tc.hostileEvery, "--generate", "500", "--hostile-kinds", "odd-records-of-256-kib", "--wait-for-consumer")
				addr := freeAddr(t)
				p := startMillrace(t, sim.url, t.TempDir(), addr, "--memory", mebibytes(memory))
				waitServing(t, addr)
				checkWhole(t, sim, addr, tc.frames)
				ctx, stop := context.WithCancel(context.Background())
				var clients sync.WaitGroup
				var read atomic.Int64
				for i := range slow {
					clients.Go(func() { readSlowly(ctx, addr, time.Duration(i)*time.Millisecond, &read) })
				}
				waitFor(t, "slow subscribers to read", func() bool { return read.Load() >= messages*slow })
				stop()
				clients.Wait()
				p.checkPeak(t, memory)
			})
		}
	}
}

// readSlowly reads extended events, with a pause between them and a small buffer, again and again.
// It counts them in read.
func readSlowly(ctx context.Context, addr string, pause time.Duration, read *atomic.Int64) {
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
			read.Add(1)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
		stop()
		ws.Close()
	}
}
