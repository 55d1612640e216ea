package main

import (
	"strconv"
	"testing"
	"time"
)

// Each kind of malformed message that relaysim knows, one in a hundred among good frames at 1,000
// frames a second. The log is exact, over one connection. How long after the end it was whole is
// logged.
func TestEachHostileKind(t *testing.T) {
	t.Parallel()
	kinds := hostileKindNames()
	if !long() {
		kinds = []string{"garbage", "error-unknown", "error-future-cursor", "seq-old", "seq-old-for-new"}
	}
	const frames = 1001 // after an error frame must come a good one
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			sim := startRelaysim(t, "--rate", "1000", "--frames", strconv.Itoa(frames), "--generate", "500", "--wait-for-consumer",
				"--hostile-every", "100", "--hostile-kinds", kind)
			d := startDaemon(t, sim.url, t.TempDir())
			sim.waitMade(t, frames)
			ended := time.Now()
			want := readTruth(t, sim.truth)
			checkExact(t, "the log", readAll(t, d.addr, "cursor=0", len(want)), want)
			t.Logf("%s: %d events, whole %d ms after the end", kind, len(want), time.Since(ended).Milliseconds())
			if n := d.counter(t, "millrace_consume_reconnects_total"); n != 0 {
				t.Errorf("%v reconnects, want none", n)
			}
		})
	}
}
