package public

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/replay"
	"millrace/translate"
)

// TestReferencesJSON: /cursors says from which event on references are there, of those that the log
// holds.
func TestReferencesJSON(t *testing.T) {
	point := func(us int64) replay.Point {
		return replay.Point{TimeUS: us, Position: translate.Position{Stream: 7, Seq: us}}
	}
	shown := func(us int64, of replay.Point) *referencesJSON {
		return &referencesJSON{&pointJSON{TimeUS: us, Cursor: of.Position.String()}}
	}
	for name, tc := range map[string]struct {
		since  *replay.Point
		oldest replay.Point
		want   *referencesJSON
	}{
		"off":                       {nil, point(5), nil},
		"an empty log":              {&replay.Point{}, replay.Point{}, &referencesJSON{}},
		"from the begin on":         {&replay.Point{}, point(5), shown(5, point(5))},
		"before the oldest event":   {new(point(4)), point(5), shown(5, point(5))},
		"behind the oldest event":   {new(point(5)), point(5), shown(6, point(5))},
		"behind some of the events": {new(point(8)), point(5), shown(9, point(8))},
	} {
		if diff := cmp.Diff(tc.want, newReferencesJSON(&replay.Range{References: tc.since, Oldest: tc.oldest})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
