package translate

import (
	"strings"
	"testing"
)

func TestPosition(t *testing.T) {
	for _, p := range []Position{{}, {0xb7e1c0, 31527015322, 0}, {1, 1<<63 - 1, 1<<32 - 1}, {0xffffff, 1, 9999}} {
		if got, err := ParsePosition(p.String()); err != nil || got != p {
			t.Errorf("%v was read as %v, %v", p, got, err)
		}
	}
	if got := (Position{0xb7e1c0, 31527015322, 4}).String(); got != "b7e1c0-31527015322-4" {
		t.Errorf("got %s", got)
	}
	for _, s := range []string{"", "-", "--", "b7e1c0-1", "b7e1c-1-1", "b7e1c00-1-1", "B7E1C0-1-1", "b7e1c0-01-1", "b7e1c0-1-01", "b7e1c0-+1-1",
		"b7e1c0--1-1", "b7e1c0-1-1-1", "b7e1c0-1-4294967296", "b7e1c0-9223372036854775808-1", "b7e1cg-1-1", " b7e1c0-1-1", "b7e1c0-1-1\n"} {
		if p, err := ParsePosition(s); err == nil || !strings.Contains(err.Error(), "position") {
			t.Errorf("%q was read as %v, %v", s, p, err)
		}
	}
}

func TestStampRange(t *testing.T) {
	var b Batch
	newTranslator(t).AppendFrame(&b, frameOf("#identity", identityBody()))
	for _, timeUS := range []int64{MinTimeUS, 1783175888085434, maxTimeUS} {
		b.Stamp(0, timeUS)
		checkStamped := strings.Contains(string(b.Payload(0)), `"time_us":`+strings.TrimSpace(itoa(timeUS))+`,"kind"`)
		if !checkStamped || b.Events[0].TimeUS != timeUS {
			t.Errorf("%d: %s", timeUS, b.Payload(0))
		}
	}
	for _, timeUS := range []int64{-1, 0, MinTimeUS - 1, maxTimeUS + 1} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d was stamped", timeUS)
				}
			}()
			b.Stamp(0, timeUS)
		}()
	}
}

// itoa spells n without the help of strconv, which Stamp's own code is close to.
func itoa(n int64) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

// TestLabels holds that every counter has a metric label of its own, in snake_case.
func TestLabels(t *testing.T) {
	var labels [3][]string
	for k := range NumFrameKinds {
		labels[0] = append(labels[0], k.String())
	}
	for k := range NumEventKinds {
		labels[1] = append(labels[1], k.String())
	}
	for r := range NumReasons {
		labels[2] = append(labels[2], r.String())
	}
	for _, set := range labels {
		seen := map[string]bool{}
		for _, label := range set {
			if label == "" || strings.Trim(label, "abcdefghijklmnopqrstuvwxyz_") != "" || seen[label] {
				t.Errorf("label %q", label)
			}
			seen[label] = true
		}
	}
}
