package main

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"millrace/public/client"
)

// TestParseUntil: with a time that is past the output ends when all is read, with one that comes
// only with the first event after it.
func TestParseUntil(t *testing.T) {
	now := time.UnixMicro(1_790_000_000_000_000)
	for s, want := range map[string]end{
		"":                 {timeUS: math.MaxInt64},
		"live":             {timeUS: math.MaxInt64, live: true},
		"now":              {timeUS: now.UnixMicro(), live: true},
		"0s":               {timeUS: now.UnixMicro(), live: true},
		"1h":               {timeUS: now.Add(-time.Hour).UnixMicro(), live: true},
		"1789999999999999": {timeUS: now.UnixMicro() - 1, live: true},
		"1790000000000001": {timeUS: now.UnixMicro() + 1},
	} {
		got, err := parseUntil(s, now)
		if err != nil || got != want || got.never() != (s == "") {
			t.Errorf("--until %q: %+v, %v; want %+v", s, got, err, want)
		}
	}
	for _, s := range []string{"soon", "-1h", "17899999999999990"} {
		if _, err := parseUntil(s, now); err == nil {
			t.Errorf("--until %q is taken", s)
		}
	}
}

// TestTailAsksTheServer: what "now" is, and on v2's wire what "live" is, is for the server to say.
func TestTailAsksTheServer(t *testing.T) {
	for args, want := range map[string]bool{
		"--until now": true, "--until live": false, "--v2 --until live": true, "--v2 --until 1s": true, "--v2 --until 2099-01-01": false, "--v2": false,
	} {
		if cfg, err := parseTail(strings.Fields(args), time.Now()); err != nil || cfg.asksServer() != want {
			t.Errorf("%s: asks the server %t, %v", args, cfg.asksServer(), err)
		}
	}
}

// writerFunc is a Writer.
type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestTailSlowOutput: until what came is written it is not quiet, and so --until is no end yet.
func TestTailSlowOutput(t *testing.T) {
	tl, _, _ := newTailer(&tailConfig{})
	written := false
	tl.out.out = writerFunc(func(p []byte) (int, error) {
		if written = true; tl.quietSince.Load() != math.MaxInt64 {
			t.Error("quiet before the output was taken")
		}
		return len(p), nil
	})
	tl.quietSince.Store(math.MaxInt64) // as an event does
	tl.out.hold([]byte("event\n"), "")
	if tl.wait(); !written || tl.quietSince.Load() == math.MaxInt64 {
		t.Errorf("written %t, and then not quiet", written)
	}
}

// TestAskNewestWaits: it waits for as long as the server wants.
func TestAskNewestWaits(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		http.Error(w, "so it is", http.StatusTooManyRequests)
	}))
	defer server.Close()
	c, err := client.New(client.Config{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	said := writerFunc(func(b []byte) (int, error) {
		stop()
		if !bytes.Contains(b, []byte("asking again in 7 s")) {
			t.Errorf("it says %q", b)
		}
		return len(b), nil
	})
	if _, err := askNewest(ctx, c, said, false, 0); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
