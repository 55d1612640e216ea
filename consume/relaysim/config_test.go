package relaysim

import (
	"bytes"
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
		"--first-seq=-1": "--first-seq: value", "--restart-numbering-after=-1": "--restart-numbering-after: value",
		"--window-frames=2": "", "--window-frames=1": "--window-frames: value", "--window-bytes=2097152": "", "--window-bytes=2097151": "--window-bytes: value",
		"--churn-every=-1": "--churn-every: value", "--hostile-every=-1": "--hostile-every: value", "--faulty-every=-1": "--faulty-every: value",
		"--faults-every=-1s": "--faults-every: value", "--faulty-every=1": "--faulty-every needs --signed",
		signed: "", signed + "--once": "no --capture or --once", signed + "--capture=x": "no --capture or --once",
		"--capture=x --once": "", "--capture=x --once --first-seq=1": "", "--once --first-seq=2": "", "--capture=x --first-seq=2": "",
		"--capture=x --once --first-seq=2": "sends frames as they are", "--capture=x --once --restart-numbering-after=1": "sends frames as they are",
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

// TestChoose: names choose in the order in which they are given, and one that chooses nothing is an
// error.
func TestChoose(t *testing.T) {
	for names, want := range map[string]string{"": "[a1 a2 b1]", "b1,a1": "[b1 a1]", "a*": "[a1 a2]", "*": "[a1 a2 b1]", "a": "", "a1,c*": "", "a1,": ""} {
		got, err := choose([]action{{name: "a1"}, {name: "a2"}, {name: "b1"}}, names, "flag", "thing", "A list")
		if err != nil {
			if missing := names[strings.LastIndexByte(names, ',')+1:]; want != "" || err.Error() != fmt.Sprintf("--flag: no thing is called %q; A list names them", missing) {
				t.Errorf("%q: %v", names, err)
			}
		} else if fmt.Sprint(got) != want {
			t.Errorf("%q chooses %v", names, got)
		}
	}
	var b bytes.Buffer
	printReasons(&b, []action{{name: "a"}, {name: "long"}}, func(a action) string { return map[string]string{"long": "bad"}[a.name] })
	if got := b.String(); got != "a     (served)\nlong  bad\n" {
		t.Errorf("%q", got)
	}
}

// TestDrawnParameters: what a schedule draws for an action, the action takes. Risky ones are drawn
// only if they are named.
func TestDrawnParameters(t *testing.T) {
	all, err := drawable("")
	if err != nil {
		t.Fatal(err)
	}
	names := func(actions []action) (s string) {
		for _, a := range actions {
			s += a.name + " "
		}
		return s
	}
	if got := names(all); got != "jump repeat again burst inject quiet disconnect too-slow stall drip " {
		t.Errorf("drawn are %s", got)
	}
	if some, err := drawable("forget,plc"); err != nil || names(some) != "forget plc " {
		t.Errorf("%s, %v", names(some), err)
	}
	if _, err := drawable("rain"); err == nil || !strings.Contains(err.Error(), "--fault-kinds: no action is called") {
		t.Errorf("%v", err)
	}
	r := newRelay(t, "--generate", "10", "--accounts", "5")
	rng := newRand(7, "test")
	most := map[string]float64{"jump by": 5000, "repeat n": 200, "again n": 200, "burst n": 2000, "forget keep": 999, "restart-numbering after": 99,
		"disconnect after": 19_999, "drip bytes": 100_999}
	least := map[string]float64{"jump by": 1, "repeat n": 1, "again n": 1, "burst n": 1, "drip bytes": 1000}
	seen := make(map[string]float64)
	for range 3000 {
		for _, a := range actions() {
			for name, q := range a.draw(rng, r) {
				key := a.name + " " + name
				if most[key] > 0 {
					n, err := param(url.Values{"n": q}, "n", -1, int64(least[key]), int64(most[key]))
					if err != nil {
						t.Fatalf("%s: %v", key, err)
					}
					seen[key] = max(seen[key], float64(n))
				} else if name == "for" {
					d, err := paramDuration(url.Values{"for": q})
					if err != nil || d > 500*time.Millisecond {
						t.Fatalf("%s: %v, %v", key, d, err)
					}
					seen[key] = max(seen[key], float64(d))
				}
			}
		}
	}
	for key, m := range most {
		if seen[key] < 0.9*m {
			t.Errorf("%s is at most %v", key, seen[key])
		}
	}
	for _, name := range []string{"quiet", "stall", "drip"} {
		if seen[name+" for"] < 0.9*float64(500*time.Millisecond) {
			t.Errorf("%s is for %v at most", name, seen[name+" for"])
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

// TestWirePayload: the payload of frames of each length.
func TestWirePayload(t *testing.T) {
	for _, n := range []int{0, 125, 126, 1<<16 - 1, 1 << 16} {
		payload := bytes.Repeat([]byte{7}, n)
		if got := wirePayload(append(appendWireHeader(nil, false, n), payload...)); !bytes.Equal(got, payload) {
			t.Errorf("%d bytes come as %d", n, len(got))
		}
	}
}
