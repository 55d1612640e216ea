package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"
)

// What /readyz says of the disk has the figures that help.
func TestDiskHealth(t *testing.T) {
	free := int64(0)
	d := &diskWatch{
		dirs: []string{"/var/lib/millrace"}, minFree: 2 << 30, reading: func(bool) bool { return false }, logger: slog.New(slog.DiscardHandler), gauge: newDiskGauge(nil),
		now: time.Now, free: func(string) (int64, error) { return free, nil }, trimmed: time.Now(),
	}
	for _, tc := range []struct {
		free int64
		ok   bool
		says string
	}{
		{4 << 30, true, ""},
		{1536 << 20, false, "1536 MiB are free in /var/lib/millrace, less than --min-free-disk: the log is trimmed early"},
		{512 << 20, false, "512 MiB are free in /var/lib/millrace, less than half of --min-free-disk: reading the relay is paused"},
		{4 << 30, true, ""},
	} {
		free = tc.free
		d.check(t.Context())
		if c := d.freeCheck(); c.OK != tc.ok || !strings.HasPrefix(c.Detail, tc.says) || c.OK != (c.Detail == "") {
			t.Errorf("with %d free: %+v", tc.free, c)
		}
	}
}

// A server that works off a backlog is not ready, be it in its own pipeline or the relay's.
func TestLagHealth(t *testing.T) {
	for _, tc := range []struct {
		lag, relay time.Duration
		ok         bool
	}{
		{0, 0, true},
		{10*time.Second - 1, time.Minute - 1, true},
		{10 * time.Second, 0, false},
		{0, time.Minute, false},
	} {
		if c := lagCheck(tc.lag, tc.relay); c.OK != tc.ok {
			t.Errorf("%v behind the socket, %v behind the relay: %+v", tc.lag, tc.relay, c)
		}
	}
}
