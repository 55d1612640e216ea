package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"
)

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
