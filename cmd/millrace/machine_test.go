package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"testing"
	"time"
)

// The machine that the tests run on may be slow, stand still for seconds, and have other tests on
// it.

// patience is for what must come. How soon is checked elsewhere, if it is promised.
const patience = time.Minute

// freeAddr returns an address that nothing listens on until the test does. Its port is below those
// that the system gives to outgoing connections. No other test, of this process or another, is
// given it before this one ends.
func freeAddr(t *testing.T) string {
	t.Helper()
	const least = 10_000
	limit := 32_768
	if raw, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		if _, err := fmt.Sscan(string(raw), &limit); err != nil {
			t.Fatalf("ip_local_port_range: %v", err)
		}
	}
	if limit <= least { // they are given to anybody
		limit = 65_536
	}
	start := rand.IntN(limit - least)
	for i := range limit - least {
		addr := fmt.Sprintf("127.0.0.1:%d", least+(start+i)%(limit-least))
		mine, err := net.ListenPacket("udp", addr) // says to other tests that it is taken
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			mine.Close()
			continue
		}
		l.Close()
		t.Cleanup(func() { mine.Close() })
		return addr
	}
	t.Fatal("no port is free")
	return ""
}

// waitServing waits until the server at addr answers. A millrace that starts takes connections and
// ends them, for a moment, to see whether it may have the address.
func waitServing(t *testing.T, addr string) {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	waitFor(t, fmt.Sprintf("the server at %s", addr), func() bool {
		resp, err := client.Get("http://" + addr + "/healthz")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
}

// giveHeapBack undoes what `millrace serve` in this process has done to the heap of all tests.
func giveHeapBack() {
	debug.SetMemoryLimit(math.MaxInt64)
	debug.SetGCPercent(100)
}
