package relaysim

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/translate"
)

// testBuilder makes hostile messages, always the same.
func testBuilder() *messageBuilder {
	rng := newRand(4, "kit")
	clk := virtualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Millisecond)
	k := &messageBuilder{clock: clk, population: newPopulation(4, 100, rng), rng: rng}
	k.begin(77)
	return k
}

// TestHostileCovers looks for a kind for each row and each cause in docs/input.md.
func TestHostileCovers(t *testing.T) {
	all := hostileKinds()
	for _, name := range []string{
		"body-truncated", "garbage", "empty", "text-message", "header-array", "unknown-kind", "unknown-op",
		"did-handle", "rev-short", "time-words", "identity-did", "account-time",
		"error-unknown", "seq-old", "seq-old-for-new", "too-big", "sync", "info", "car-absent", "car-truncated",
		"path-no-slash", "path-two-slashes", "path-bad-nsid", "path-bad-rkey",
		"action-unknown", "create-without-cid", "update-without-cid", "block-missing", "block-other",
		"record-array", "record-over-1-mib", "record-depth-80", "record-duplicate-key", "record-number-key",
		"record-utf8-value", "record-indefinite-map", "record-float", "record-uint64", "record-nint64",
		"record-tag-time", "record-blob-no-ref", "record-link-number",
		"odd-key-order", "odd-int-width", "odd-float-integral", "ops-1024", "odd-ops-1023", "control-characters", "frame-over-5-mib",
	} {
		if !slices.ContainsFunc(all, func(k *hostileKind) bool { return k.name == name }) {
			t.Errorf("no kind %q", name)
		}
	}
	seen := make(map[string]bool)
	for _, kind := range all {
		if seen[kind.name] {
			t.Errorf("two kinds are called %q", kind.name)
		}
		seen[kind.name] = true
	}
}

// TestHostileSizes: the huge kinds are over their limits, and by no more than needed.
func TestHostileSizes(t *testing.T) {
	for name, limits := range map[string][2]int{
		"frame-over-5-mib":  {5<<20 + 1, 5<<20 + 4096},
		"record-over-1-mib": {1<<20 + 1, 1<<20 + 4096},
		"ops-1024":          {1024 * 50, 1 << 20},
		"odd-ops-1023":      {1023 * 50, 1 << 20},
		"ops-10000":         {10_000 * 50, 5 << 20},
		"odd-frame-4-mib":   {4<<20 - 4096, 4<<20 + 4096},
	} {
		kind, err := findHostile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(kind.make(testBuilder()).payload); n < limits[0] || n > limits[1] {
			t.Errorf("%s has %d bytes, want %d to %d", name, n, limits[0], limits[1])
		}
		if !kind.huge {
			t.Errorf("%s would come as often as the others", name)
		}
	}
}

// differs names the kinds of which indigo keeps more or less than docs/input.md says. The comments
// say what indigo does.
func differs(name string) bool {
	return slices.Contains([]string{
		"body-without-seq", "body-seq-negative", // does not check seq
		"block-other", "block-bit", // drops a CAR with one bad block
		"record-null",                          // reads it as an empty map
		"record-depth-80", "record-depth-5000", // has no limit
		// replaces invalid UTF-8
		"record-utf8-value", "record-utf8-surrogate", "record-utf8-overlong", "record-utf8-key",
		"record-indefinite-map", "record-indefinite-array", "record-indefinite-text", "record-indefinite-bytes",
		"record-uint64", "record-nint64-least", // wraps around
		"ops-1024", "control-characters", "records-of-1-mib", // has no limit to ops and JSON
	}, name)
}

// TestHostileAgainstIndigo compares what must be kept of each kind with what indigo would keep:
// the bad part is bad, the good ones are good. Where the two differ, it says so.
func TestHostileAgainstIndigo(t *testing.T) {
	for _, kind := range hostileKinds() {
		t.Run(kind.name, func(t *testing.T) {
			m := kind.make(testBuilder())
			var want []expectation
			if !m.text {
				want, _ = expect(m.payload)
			}
			same := cmp.Equal(want, m.keep, cmp.AllowUnexported(expectation{}))
			if same == differs(kind.name) {
				t.Errorf("indigo keeps %d events, the library says %d; listed as different: %v", len(want), len(m.keep), differs(kind.name))
			}
			if all := len(want) == len(m.keep) && len(want) > 0; kind.reason == "" && !all || kind.reason != "" && len(m.keep) >= 4 {
				t.Errorf("%d events kept, reason %q", len(m.keep), kind.reason)
			}
		})
	}
}

// TestTranslateKeepsTruth runs translate over each kind: it holds what must be held, and nothing
// else.
func TestTranslateKeepsTruth(t *testing.T) {
	for _, kind := range hostileKinds() {
		t.Run(kind.name, func(t *testing.T) {
			k := testBuilder()
			m := kind.make(k)
			if m.text || len(m.payload) > 5<<20 {
				return // consume does not hand it over
			}
			var truth []byte
			for _, e := range m.keep {
				truth = appendTruthLine(truth, 0, k.seq, e)
			}
			compareTranslate(t, [][]byte{m.payload}, string(truth))
		})
	}
}

// TestTranslateWorld runs translate over a world.
func TestTranslateWorld(t *testing.T) {
	templates := testWorld(t, 11, 3000, true)
	var truth []byte
	for i, tmpl := range templates {
		v := tmpl.original
		v.seq = int64(i + 1)
		truth = tmpl.truth.append(truth, &v)
	}
	compareTranslate(t, originals(templates), string(truth))
}

// compareTranslate compares translate's events of frames with truth lines.
func compareTranslate(t *testing.T, frames [][]byte, truth string) {
	t.Helper()
	tr, err := translate.New(translate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var b translate.Batch
	for _, frame := range frames {
		tr.AppendFrame(&b, bytes.Clone(frame))
	}
	var got strings.Builder
	for i := range b.Events {
		e := &b.Events[i]
		event := strings.Replace(string(b.Payload(i)), `"time_us":0000000000000000`, `"time_us":0`, 1)
		fmt.Fprintf(&got, `{"epoch":0,"seq":%d,"op":%d,"event":%s}`+"\n", e.Seq, e.Op, event)
	}
	if got.String() != truth {
		t.Errorf("translate differs (- truth, + translate):\n%.3000s", cmp.Diff(strings.Split(truth, "\n"), strings.Split(got.String(), "\n")))
	}
}
