package clocktrust

import (
	"testing"
	"time"
)

// TestTrust gives the policy readings of the clocks, one after another. It checks after each
// whether events may be trimmed by age.
func TestTrust(t *testing.T) {
	start := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	const steady, maxError, known = 10 * time.Minute, 5 * time.Minute, true
	type reading struct {
		after, step time.Duration // since the last reading; how far the wall clock was set
		age         time.Duration
		known       bool
		want        bool
	}
	for _, tt := range []struct {
		name      string
		reference bool
		newest    time.Duration // the log's newest stamp, since start
		opened    bool          // whether age counts at the open
		readings  []reading
	}{
		{"no reference", false, 0, true, []reading{{after: time.Second, want: true}}},
		{"no reference, behind the log", false, time.Hour, false, []reading{{after: steady - 1}, {after: 1, want: true}}},
		{"no reference, a step", false, 0, true, []reading{{after: 1, step: time.Hour}, {after: steady - 1}, {after: 1, want: true}}},
		{"no reference, a small step", false, 0, true, []reading{{after: 1, step: time.Minute, want: true}}},
		{"the first minutes", true, 0, false, []reading{{after: steady - 1, known: known}, {after: 1, known: known, want: true}}},
		{"no frames", true, 0, false, []reading{{after: steady}, {after: 24 * time.Hour}, {after: time.Second, known: known, want: true}}},
		{"ahead", true, 0, false, []reading{{after: steady, age: 48 * time.Hour, known: known}, {after: 24 * time.Hour, age: 48 * time.Hour, known: known}}},
		{"just within", true, 0, false, []reading{{after: steady, age: maxError, known: known, want: true}}},
		{"just beyond", true, 0, false, []reading{{after: steady, age: maxError + 1, known: known}}},
		{"behind", true, 0, false, []reading{{after: steady, age: -maxError - 1, known: known}}},
		{"just behind", true, 0, false, []reading{{after: steady, age: -maxError, known: known, want: true}}},
		{"a backlog, and then none", true, 0, false, []reading{{after: steady, age: time.Hour, known: known}, {after: steady, age: time.Second, known: known, want: true}}},
		{"a backlog later on", true, 0, false, []reading{{after: steady, known: known, want: true}, {after: 1, age: time.Hour, known: known, want: true}}},
		{"set ahead", true, 0, false, []reading{
			{after: steady, known: known, want: true}, {after: time.Second, step: 48 * time.Hour, age: 48 * time.Hour, known: known},
			{after: steady, age: 48 * time.Hour, known: known}, {after: time.Second, step: -48 * time.Hour, known: known},
			{after: steady - 1, known: known}, {after: 1, known: known, want: true},
		}},
		{"ahead, put right within the first minutes", true, 0, false, []reading{
			{after: time.Minute, age: 48 * time.Hour, known: known}, {after: 1, step: -48 * time.Hour, known: known},
			{after: steady, known: known, want: true},
		}},
	} {
		now := Reading{Wall: start}
		c := New(now, start.Add(tt.newest).UnixMicro(), tt.reference)
		if c.Trusted() != tt.opened {
			t.Errorf("%s: age counts at the open: %v", tt.name, c.Trusted())
		}
		for i, r := range tt.readings {
			now = Reading{now.Wall.Add(r.after + r.step), now.Mono + r.after, r.age, r.known}
			step := c.Observe(now)
			if c.Trusted() != r.want || (step != 0) != (r.step.Abs() > maxStep) {
				t.Errorf("%s, reading %d: age counts: %v, want %v; step %v", tt.name, i, c.Trusted(), r.want, step)
			}
		}
	}
}
