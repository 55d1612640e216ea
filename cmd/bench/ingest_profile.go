package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// profileLine is a part of the server's CPU time.
type profileLine struct {
	what string
	of   []string // functions of its profile, of which none calls another
}

// Parts of an event's CPU time that are no functions of the server's profile.
const (
	profileRelay   = "relay: frames made, numbered, written, and the truth of them"
	profileClients = "subscriber: read, parsed, held against the truth"
	profileRest    = "server: all else (scheduler, timers, metrics)"
)

// profileLines are the stages of the server.
func profileLines() []profileLine {
	return []profileLine{
		{"server: read the socket, find type and number, copy", []string{"millrace/consume.(*Client).Run"}},
		{"server: translate", []string{"millrace/cmd/millrace/ingest.(*Pipeline).translate"}},
		{"server: intern", []string{"millrace/cmd/millrace/ingest.(*Pipeline).intern", "millrace/intern.(*worker).run"}},
		{"server: seal (frame, compress, columns)", []string{"millrace/replay.(*Log).Seal"}},
		// Both stores commit in goroutines of their own.
		{"server: commit, both stores, and publish", []string{"millrace/cmd/millrace/ingest.(*Pipeline).commit", "millrace/intern/kv/pebbleguard.(*DB).Commit.func1"}},
		{"server: write-ahead logs", []string{"github.com/cockroachdb/pebble/v2/record.(*LogWriter).flushLoop"}},
		{"server: flushes and compactions, both stores", []string{"github.com/cockroachdb/pebble/v2.(*DB).runCompaction"}},
		{"server: one subscriber", []string{"millrace/public.(*subscriber).run"}},
		{"server: garbage collection", []string{"runtime.gcBgMarkWorker", "runtime.bgsweep", "runtime.bgscavenge"}},
	}
}

// printProfile prints how the cell's CPU profile divides an event's time. total is the CPU time in
// the profile, spent that of each function.
func printProfile(out io.Writer, r *ingestResult, total time.Duration, spent map[string]time.Duration) error {
	// The profile misses a little of what the system counts; it says how the system's count
	// divides.
	scale := float64(r.server) / float64(max(total, 1))
	t := newTable(out, "where an event's time goes", "µs")
	sum, rest := 0.0, total
	row := func(what string, us float64) {
		sum += us
		t.row(what, fmt.Sprintf("%.2f", us))
	}
	for _, line := range profileLines() {
		var us float64
		for _, f := range line.of {
			us += r.each(spent[f]) * scale
			rest -= spent[f]
		}
		row(line.what, us)
	}
	row(profileRest, r.each(rest)*scale)
	row(profileRelay, r.each(r.relay))
	row(profileClients, r.each(r.clients))
	t.row("all", fmt.Sprintf("%.2f", sum))
	return t.end()
}

// readProfile returns the time in a CPU profile, in all and by function with what it calls.
func readProfile(ctx context.Context, file string) (total time.Duration, by map[string]time.Duration, err error) {
	text, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-cum", "-nodecount=1000000", "-nodefraction=0", "-unit=ms", file).Output()
	if err != nil {
		return 0, nil, fmt.Errorf("read the profile: %w", err)
	}
	if total, by = parseProfile(string(text)); total == 0 {
		return 0, nil, fmt.Errorf("read the profile: no samples in %s", file)
	}
	return total, by, nil
}

// parseProfile is readProfile of what pprof prints. A time that is none counts as 0.
func parseProfile(text string) (total time.Duration, by map[string]time.Duration) {
	by = map[string]time.Duration{}
	for line := range strings.Lines(text) {
		if _, after, ok := strings.Cut(line, "Total samples = "); ok {
			total, _ = time.ParseDuration(strings.Fields(after)[0])
			continue
		}
		// flat flat% sum% cum cum% name; " (inline)" may follow
		if f := strings.Fields(line); len(f) >= 6 && strings.HasSuffix(f[4], "%") {
			by[f[5]], _ = time.ParseDuration(f[3])
		}
	}
	return total, by
}
