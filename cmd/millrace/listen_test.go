package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestListenIsTaken: a start at an address that is taken changes nothing.
func TestListenIsTaken(t *testing.T) {
	taken := listenLoopback(t)
	defer taken.Close()
	free, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	free.Close()
	_, port, _ := net.SplitHostPort(free.Addr().String())
	dir := filepath.Join(t.TempDir(), "data")
	for _, flags := range [][]string{
		{"--listen", taken.Addr().String()}, {"--metrics-listen", taken.Addr().String()},
		{"--metrics-listen", "127.0.0.1:" + port, "--listen", ":" + port}, // by the other one
	} {
		err := newDaemonError(t, append(flags, "--relay", "relay.example.com", "--data-dir", dir)...)
		// the free port may be another test's by then
		if !errors.Is(err, syscall.EADDRINUSE) || len(flags) == 2 && !strings.Contains(err.Error(), flags[0]+" "+flags[1]) {
			t.Errorf("%v: %v", flags, err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%v: the data directory: %v", flags, err)
		}
	}
}

// TestStopWithAllMetricsConnections: a server stops in order though clients hold all connections
// that --metrics-listen has, and more wait for one.
func TestStopWithAllMetricsConnections(t *testing.T) {
	t.Parallel()
	d := startDaemon(t, newTestRelay(t).url, t.TempDir(), "--metrics-listen", "127.0.0.1:0")
	for i := range metricsConnections + 2 {
		c, err := net.Dial("tcp", d.metricsListener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(patience))
		fmt.Fprint(c, "GET /debug/pprof/cmdline HTTP/1.1\r\nHost: x\r\n\r\n")
		if i >= metricsConnections {
			continue
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("connection %d: %v, %v", i, resp, err)
		}
		resp.Body.Close()
	}
	if err := d.stop(); err != nil {
		t.Error(err)
	}
}
