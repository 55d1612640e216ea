package consume

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestBackoff takes the longest and the shortest wait of each attempt.
func TestBackoff(t *testing.T) {
	most := backoff{random: func(n int64) int64 { return n - 1 }}
	least := backoff{random: func(int64) int64 { return 0 }}
	for i, want := range []float64{0.5, 1, 2, 4, 8, 16, 30, 30, 30} {
		if got := most.next(); got.Seconds() != want {
			t.Errorf("attempt %d waits at most %v, want %v s", i, got, want)
		}
		if got := least.next(); got != 0 {
			t.Errorf("attempt %d waits at least %v", i, got)
		}
	}
	most.ended(healthyFor - 1)
	if got := most.next(); got != backoffCap {
		t.Errorf("after a short connection: %v", got)
	}
	most.ended(healthyFor)
	if got := most.next(); got != backoffBase {
		t.Errorf("after a healthy one: %v", got)
	}
	for range 100 {
		if got := (&backoff{attempt: 1 << 40}).next(); got < 0 || got > backoffCap {
			t.Fatalf("waits %v", got)
		}
	}
}

// TestBackoffInRun lets dials fail for an hour and then a minute of health pass.
func TestBackoffInRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := pipeRelay(t, func(p *peer) {
			time.Sleep(90 * time.Second)
		})
		var dials []time.Time
		began := time.Now()
		cfg := Config{URL: "ws://relay.test", Cursor: 10, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials = append(dials, time.Now())
			if time.Since(began) < time.Hour {
				return nil, errors.New("no route")
			}
			return l.dial(ctx, network, addr)
		}}
		c := startWith(t, nil, cfg, newSink())
		time.Sleep(2 * time.Hour)
		c.stop()
		var failing, late []time.Duration
		for i := range dials[1:] {
			d := dials[i+1].Sub(dials[i])
			if dials[i].Sub(began) < time.Hour {
				failing = append(failing, d)
			} else {
				late = append(late, d)
			}
		}
		var total time.Duration
		for i, d := range failing {
			total += d
			if d > backoffCap {
				t.Errorf("wait %d was %v", i, d)
			}
		}
		if mean := total / time.Duration(len(failing)); mean < 10*time.Second || mean > 20*time.Second {
			t.Errorf("mean wait %v over %d dials, want half the cap", mean, len(failing))
		}
		for i, d := range late {
			if d -= 90 * time.Second; d > backoffBase {
				t.Errorf("wait %d after a healthy connection was %v", i, d)
			}
		}
		if len(late) < 35 {
			t.Errorf("%d healthy connections in an hour", len(late))
		}
	})
}
