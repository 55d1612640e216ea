package relaysim

import (
	"fmt"
	"math"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestConfig: each flag takes its least and its highest value, and none beyond; what cannot go
// together is refused.
func TestConfig(t *testing.T) {
	const signed = "--signed --faulty-every=1 "
	for flags, want := range map[string]string{ // part of the error; "": there is none
		"": "", "--generate=1": "", "--generate=-1": "--generate: value out of range", "--accounts=2": "", "--accounts=1": "--accounts: value",
		"--population=2": "", "--population=1": "--population: value", "--clock=virtual": "", "--clock=sun": "--clock: value",
		"--rate=1e9": "", "--rate=1000000001": "--rate: value", "--rate=-1": "--rate: value", "--frames=-1": "--frames: value",
		"--first-seq=-1":    "--first-seq: value",
		"--window-frames=2": "", "--window-frames=1": "--window-frames: value", "--window-bytes=2097152": "", "--window-bytes=2097151": "--window-bytes: value",
		"--churn-every=-1": "--churn-every: value", "--hostile-every=-1": "--hostile-every: value", "--faulty-every=-1": "--faulty-every: value",
		"--faulty-every=1": "--faulty-every needs --signed",
		signed:             "", signed + "--once": "no --capture or --once", signed + "--capture=x": "no --capture or --once",
		"--capture=x --once": "", "--capture=x --once --first-seq=1": "", "--once --first-seq=2": "", "--capture=x --first-seq=2": "",
		"--capture=x --once --first-seq=2":     "sends frames as they are",
		"--capture=x --once --hostile-every=1": "sends frames as they are", "--capture=x --once --churn-every=1": "sends frames as they are",
	} {
		cfg, err := ParseFlags(strings.Fields(flags))
		if err == nil {
			err = cfg.Validate()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", flags, err)
		}
	}
	for _, args := range []string{"x", "--nope", "--frames=x"} {
		if _, err := ParseFlags([]string{args}); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	none, err := ParseFlags(nil)
	if diff := cmp.Diff((Config{}).withDefaults(), none.withDefaults(), cmpopts.IgnoreFields(Config{}, "Logger")); err != nil || diff != "" {
		t.Errorf("what is not set differs from the flags' defaults: %v, -field +flag\n%s", err, diff)
	}
}

// TestChooseHostile: names choose in the order in which they are given, and one that chooses
// nothing is an error.
func TestChooseHostile(t *testing.T) {
	for names, want := range map[string]string{"info,empty": "info empty ", "error-t*": "error-too-slow ", "sync,sync": "sync sync ", "error": "", "empty,x*": "", "info,": ""} {
		chosen, err := chooseHostile(names)
		if err != nil {
			if missing := names[strings.LastIndexByte(names, ',')+1:]; want != "" || err.Error() != fmt.Sprintf("--hostile-kinds: no kind is called %q; --list-hostile names them", missing) {
				t.Errorf("%q: %v", names, err)
			}
			continue
		}
		got := ""
		for _, k := range chosen {
			got += k.name + " "
		}
		if got != want {
			t.Errorf("%q chooses %v", names, got)
		}
	}
	for _, names := range []string{"", "*"} {
		if chosen, err := chooseHostile(names); len(chosen) != len(hostileKinds()) || err != nil {
			t.Errorf("%q chooses %d kinds, %v", names, len(chosen), err)
		}
	}
}

// TestParams: numbers and durations of requests are taken within their bounds.
func TestParams(t *testing.T) {
	for text, want := range map[string]int64{"": 7, "2": 2, "9": 9, "1": -1, "10": -1, "x": -1, "3.5": -1} {
		if n, err := param(url.Values{"n": {text}}, "n", 7, 2, 9); err == nil && n != want || (err != nil) != (want == -1) {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	for text, want := range map[string]time.Duration{"": time.Second, "0s": 0, "1h": time.Hour, "1h1ns": -1, "-1ns": -1, "x": -1} {
		if d, err := paramDuration(url.Values{"for": {text}}); err == nil && d != want || (err != nil) != (want == -1) {
			t.Errorf("%q: %v, %v", text, d, err)
		}
	}
}

// TestFaultsOfConnections: a stall goes before a drip, and both end; a connection breaks after so
// many bytes.
func TestFaultsOfConnections(t *testing.T) {
	var f faults
	now := time.Now()
	check := func(at time.Duration, bytes int, wait time.Duration) {
		t.Helper()
		if n, w := f.state(now.Add(at)); n != bytes || w != wait {
			t.Errorf("after %v: %d bytes, wait %v; want %d, %v", at, n, w, bytes, wait)
		}
	}
	check(0, writeBytes, 0)
	f.dripTo, f.dripBytes, f.stallTo = now.Add(5*time.Second), 9, now.Add(2*time.Second)
	check(0, 0, 2*time.Second)
	check(2*time.Second, 9, dripInterval)
	check(5*time.Second-1, 9, dripInterval)
	check(5*time.Second, writeBytes, 0)
	for perSecond, want := range map[int]int{1: 1, 199: 1, 200: 2, 100_000: 1000} {
		if f.drip(perSecond, time.Second); f.dripBytes != want {
			t.Errorf("%d bytes a second are %d at a time", perSecond, f.dripBytes)
		}
	}
	g := &shaper{cut: -1}
	if n, broken := g.allow(math.MaxInt); n != math.MaxInt || broken {
		t.Errorf("%d bytes, broken %t", n, broken)
	}
	g.breakAfter(10)
	for _, want := range []struct {
		n      int
		broken bool
	}{{6, false}, {4, true}} {
		if n, broken := g.allow(6); n != want.n || broken != want.broken {
			t.Errorf("%d bytes, broken %t; want %+v", n, broken, want)
		}
	}
}
