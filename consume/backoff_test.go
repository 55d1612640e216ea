package consume

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/consume/relaysim/testwait"
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
	most.reset()
	if got := most.next(); got != backoffBase {
		t.Errorf("after a reset: %v", got)
	}
	for range 100 {
		if got := (&backoff{attempt: 1 << 40}).next(); got < 0 || got > backoffCap {
			t.Fatalf("waits %v", got)
		}
	}
}

// TestReconnects is the table of the waits, at their longest, after connections that ended.
func TestReconnects(t *testing.T) {
	longest := backoff{random: func(n int64) int64 { return n - 1 }}
	r := reconnects{patience: 5 * time.Minute, dials: longest, epochs: longest}
	now := time.Unix(1000, 0)
	for i, tt := range []struct {
		e     ending
		after time.Duration // since the one before
		want  time.Duration
	}{
		{e: ending{cause: causeDial}, want: backoffBase},
		// nothing was delivered
		{e: ending{cause: causeLost, up: time.Hour}, want: 2 * backoffBase},
		{e: ending{cause: causeErrorFrame}, want: 4 * backoffBase},
		// too short
		{e: ending{cause: causeClosed, up: steadyUp - 1, delivered: true}, want: 8 * backoffBase},
		{e: ending{cause: causeLost, up: steadyUp, delivered: true}, want: backoffBase},
		{e: ending{cause: causeResume}, want: 2 * backoffBase},
		{e: ending{cause: causeRecheck}, want: 0},
		{e: ending{cause: causeRefused}, want: 4 * backoffBase},
		{e: ending{cause: causeRefused, err: &refusedError{wait: time.Minute}}, want: time.Minute + 8*backoffBase},
		{e: ending{cause: causeNewEpoch, delivered: true}, want: 0},
		{e: ending{cause: causeNewEpoch, delivered: true}, after: time.Minute, want: backoffBase},
		{e: ending{cause: causeNewEpoch, delivered: true}, after: time.Minute, want: 2 * backoffBase},
		{e: ending{cause: causeLost, up: time.Hour, delivered: true}, want: backoffBase},
		{e: ending{cause: causeNewEpoch, delivered: true}, after: 5 * time.Minute, want: 0},
		{e: ending{cause: causeNewEpoch, delivered: true}, after: time.Minute, want: backoffBase},
	} {
		now = now.Add(tt.after)
		if got := r.wait(now, tt.e); got != tt.want {
			t.Errorf("%d: waits %v after %+v, want %v", i, got, tt.e, tt.want)
		}
	}
}

// TestRetryAfter: a relay is left alone for as long as it asks, to a bound.
func TestRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(d time.Duration) string { return time.Now().UTC().Add(d).Format(http.TimeFormat) }
		for value, want := range map[string]time.Duration{
			"": 0, "soon": 0, "-1": 0, "7": 7 * time.Second, "301": maxAskedWait, "86400": maxAskedWait, "4294967295": maxAskedWait,
			in(7 * time.Second): 7 * time.Second, in(-time.Hour): 0, in(time.Hour): maxAskedWait,
		} {
			err := refusal(&http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {value}}, Body: http.NoBody})
			if refused, ok := errors.AsType[*refusedError](err); !ok || refused.wait != want {
				t.Errorf("%q: %+v, want to wait %v", value, err, want)
			}
		}
	})
}

// TestRefusalText: what a relay says of a refusal is passed on, if it is no page for browsers.
func TestRefusalText(t *testing.T) {
	for _, tc := range []struct{ kind, body, want string }{
		{"application/json", `{"error":"AuthRequired","message":"the key has expired"}`, ", AuthRequired: the key has expired"},
		{"application/json", `{"error":"AuthRequired","message":{"text":"the key has expired"}}`, ", AuthRequired"},
		{"application/json", `{"message":"the key has expired"}`, ": the key has expired"},
		{"text/plain; charset=utf-8", "the key has expired\n", ": the key has expired"},
		{"text/plain", strings.Repeat("x", 1024), ": " + strings.Repeat("x", maxTextBytes) + "…"},
		{"text/html", "<html>the key has expired", ""},
		{"", "", ""},
	} {
		err := refusal(&http.Response{
			StatusCode: http.StatusUnauthorized, Status: "401 Unauthorized",
			Header: http.Header{"Content-Type": {tc.kind}}, Body: io.NopCloser(strings.NewReader(tc.body)),
		})
		if want := "the relay answered 401 Unauthorized" + tc.want; err.Error() != want {
			t.Errorf("%s %.60q: %q, want %q", tc.kind, tc.body, err, want)
		}
	}
}

// TestBackoffInRun lets dials fail for an hour, and then lets each connection deliver a frame.
func TestBackoffInRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l := pipeRelay(t, func(p *peer) {
			p.commits(10+int64(p.n), 10+int64(p.n))
			p.pause(2 * time.Second)
		})
		var dials []time.Time
		began := time.Now()
		cfg := Config{URL: "ws://relay.test", Cursor: 10, hooks: testHooks{dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials = append(dials, time.Now())
			if time.Since(began) < time.Hour {
				return nil, errors.New("no route")
			}
			return l.Dial(ctx, network, addr)
		}}}
		c := startWith(t, nil, cfg, newSink())
		testwait.Elapse(2 * time.Hour)
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
			if d -= 2 * time.Second; d > backoffBase {
				t.Errorf("wait %d after a connection that delivered was %v", i, d)
			}
		}
		if len(late) < 1400 {
			t.Errorf("%d connections in an hour", len(late))
		}
	})
}
