package share

import (
	"testing"
	"time"
)

func TestLateness(t *testing.T) {
	const holdOff = 100 * time.Millisecond
	start := time.Unix(1000, 0)
	tests := []struct {
		name string
		late []time.Duration // since start
		want time.Duration   // since start: when the leader is waited for again; 0: it always is
	}{
		{"some are tolerated", []time.Duration{0, time.Second}, 0},
		{"within one hold-off counts once", []time.Duration{0, 10e6, 20e6, 30e6, 40e6}, 0},
		{"the third", []time.Duration{0, time.Second, 2 * time.Second}, 3 * time.Second},
		{"during the back-off", []time.Duration{0, time.Second, 2 * time.Second, 2500e6}, 3 * time.Second},
		{"doubled", []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second}, 5 * time.Second},
		{"bounded", []time.Duration{0, 1e9, 2e9, 3e9, 5e9, 9e9, 17e9, 33e9, 65e9, 125e9, 185e9}, 245 * time.Second},
		{"a hold-off apart", []time.Duration{0, 100e6, 200e6}, 1200 * time.Millisecond},
		{"just not long without any", []time.Duration{0, 1e9, 11e9}, 12 * time.Second},
		{"just not long without any after a back-off", []time.Duration{0, 1e9, 2e9, 3e9, 19e9}, 23 * time.Second},
		{"long without any", []time.Duration{0, 1e9, 2e9, 12100e6, 13e9}, 3 * time.Second},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var l lateness
			for _, at := range tc.late {
				l.observe(start.Add(at), holdOff)
			}
			var got time.Duration
			if !l.until.IsZero() {
				got = l.until.Sub(start)
			}
			if got != tc.want {
				t.Errorf("not waited for until %v, want %v", got, tc.want)
			}
		})
	}
}
