package replay

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"millrace/replay/internal/format"
	"millrace/replay/verify"
)

// substreamDamages are of values that substreams have of their own.
func substreamDamages() []logDamage {
	const block = 2
	set := func(e *editor, s int, b []byte) { e.set(format.SubstreamKey(e.keys[block], s), b) }
	get := func(e *editor, s int) []byte { return e.get(format.SubstreamKey(e.keys[block], s)) }
	return []logDamage{
		{"missing", func(e *editor) { e.remove(format.SubstreamKey(e.keys[block], 1)) }, "plain", block, -1, "substream 1: missing", true},
		{"flipped", func(e *editor) { set(e, 2, flip(5)(get(e, 2))) }, "plain", block, -1, "substream 2: checksum", true},
		{"flipped trailer", func(e *editor) {
			b := get(e, 3)
			set(e, 3, flip(len(b)-1)(b))
		}, "plain", block, -1, "substream 3: checksum", true},
		{"exchanged", func(e *editor) {
			one, two := get(e, 1), get(e, 2)
			set(e, 1, two)
			set(e, 2, one)
		}, "plain", block, -1, "stored as substream 1 is something else", true},
		{"another block's", func(e *editor) { set(e, 1, e.get(format.SubstreamKey(e.keys[block+1], 1))) }, "plain", block, -1, "substream 1: checksum", false},
		{"cut", func(e *editor) {
			b := get(e, 1)
			set(e, 1, format.AppendTrailer(b[:len(b)-format.TrailerBytes-1], format.RangePlain, e.keys[block]))
		}, "plain", block, -1, "substream 1 has", false},
		{"empty", func(e *editor) { set(e, 1, nil) }, "plain", block, -1, "too few", false},
		{"missing first", func(e *editor) { e.remove(format.TimeKey(format.RangePlain, e.keys[block])) }, "plain", block, -1, "missing", true},
	}
}

// TestVerifyFindsSubstreams is TestVerifyFinds for substreams. Readers get an error, too, and
// nothing of the block.
func TestVerifyFindsSubstreams(t *testing.T) {
	for _, d := range substreamDamages() {
		t.Run(d.name, func(t *testing.T) {
			fs, keys := verifyLogOf(t, 1)
			if r := mustVerify(t, fs); !r.Sound() {
				t.Fatalf("before: %v", r.Examples)
			}
			tamper(t, fs, func(db *pebble.DB) { d.do(&editor{t, db, keys}) })
			findDamage(t, mustVerify(t, fs), &d, keys)
			l := mustOpen(t, testConfig(t, fs, newTestClock()))
			r := mustRead(t, l, ReaderConfig{Cursor: TimeCursor(0), MaxChunkBytes: 1000})
			var c Chunk
			var err error
			var corruption *CorruptionError
			for err == nil && !c.Live {
				if err = r.Next(&c); c.Through.TimeUS > keys[d.block-1] {
					t.Fatalf("it reads up to %d", c.Through.TimeUS)
				}
			}
			if !errors.As(err, &corruption) || corruption.Part != "plain" || int64(corruption.Key) != keys[d.block] {
				t.Errorf("a reader gets %v", err)
			}
		})
	}
	for _, d := range []logDamage{
		{"one too many", func(e *editor) {
			b := e.get(format.SubstreamKey(e.keys[1], 1))
			e.set(format.SubstreamKey(e.keys[1], format.MaxSubstreams-1), b)
		}, "plain", 1, -1, "substream 7 is given", false},
		{"substream 0", func(e *editor) { e.set(append(format.TimeKey(format.RangePlain, e.keys[1]), 0), []byte("x")) }, "plain", -1, -1, "no value of this range", true},
		{"substream 8", func(e *editor) { e.set(format.SubstreamKey(e.keys[1], format.MaxSubstreams), []byte("x")) }, "plain", -1, -1, "no value of this range", true},
	} {
		t.Run(d.name, func(t *testing.T) {
			fs, keys := verifyLogOf(t, 1)
			tamper(t, fs, func(db *pebble.DB) { d.do(&editor{t, db, keys}) })
			findDamage(t, mustVerify(t, fs), &d, keys)
		})
	}
}

// findDamage checks that the report has the damage.
func findDamage(t *testing.T, r *verify.Report, d *logDamage, keys []int64) {
	t.Helper()
	want := int64(0)
	if d.block >= 0 {
		want = keys[d.block]
	}
	if !slices.ContainsFunc(r.Examples, func(p verify.Problem) bool {
		return p.Part == d.part && (d.block < 0 || p.Block == want) && p.Event == d.event && strings.Contains(p.Text, d.text)
	}) {
		t.Errorf("not found; the report has\n%v", r.Examples)
	}
	if d.only && r.Problems != 1 {
		t.Errorf("%d problems: %v", r.Problems, r.Examples)
	}
	if r.Sound() {
		t.Error("the log is said to be sound")
	}
}
