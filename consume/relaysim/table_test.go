package relaysim

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"millrace/translate"
)

// commitLine is the line of an op of did:web:a.example; its record has these DIDs in an array.
func commitLine(seq int64, op uint32, rev, operation, rkey string, dids ...string) Line {
	record := "null"
	if operation != "delete" {
		b, _ := json.Marshal(map[string]any{"list": dids})
		record = string(b)
	}
	event := fmt.Sprintf(`{"did":"did:web:a.example","kind":"commit","commit":{"rev":%q,"operation":%q,"collection":"a.b.c","rkey":%q,"record":%s}}`,
		rev, operation, rkey, record)
	return Line{Seq: seq, Op: op, Event: json.RawMessage(event)}
}

func accountLine(seq int64, status, at string) Line {
	event := fmt.Sprintf(`{"did":"did:web:a.example","kind":"account","account":{"active":%t,"did":"did:web:a.example","seq":1,"status":%q,"time":%q}}`,
		status == "", status, at)
	return Line{Seq: seq, Event: json.RawMessage(event)}
}

// TestTable goes through what a consumer must know of records.
func TestTable(t *testing.T) {
	const x, y = "did:web:x.example", "did:web:y.example"
	refs := func(dids ...string) (list []Reference) {
		for _, did := range dids {
			list = append(list, Reference{"list[]", did})
		}
		return list
	}
	const early, late = "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.001Z"
	table := NewTable()
	for i, step := range []struct {
		line Line
		want LineReferences
	}{
		{commitLine(1, 0, "a1", "create", "k", x), LineReferences{References: refs(x)}},
		{commitLine(2, 0, "a2", "update", "k", y, y, "none"), LineReferences{References: refs(y), Had: refs(x)}},
		{commitLine(3, 0, "a3", "delete", "k"), LineReferences{Had: refs(y)}},
		{commitLine(4, 0, "a4", "delete", "k"), LineReferences{}},
		{commitLine(5, 0, "a5", "update", "k", x), LineReferences{References: refs(x)}},
		{commitLine(6, 0, "a6", "delete", "k"), LineReferences{Had: refs(x)}}, // in one frame with the next two
		{commitLine(6, 1, "a6", "create", "k", y), LineReferences{References: refs(y)}},
		{commitLine(6, 3, "a6", "update", "k", x), LineReferences{References: refs(x), Had: refs(y)}},
		{commitLine(7, 0, "a6", "delete", "k"), LineReferences{Repeated: true}},
		{commitLine(8, 0, "a2", "update", "k", y), LineReferences{References: refs(y), Repeated: true}},
		{accountLine(9, "takendown", early), LineReferences{}},
		{commitLine(10, 0, "a7", "update", "k", x), LineReferences{References: refs(x), Had: refs(x)}},
		{accountLine(11, "deleted", early), LineReferences{}},
		{commitLine(12, 0, "a8", "delete", "k"), LineReferences{}},
		{accountLine(13, "", late), LineReferences{}},
		{commitLine(14, 0, "a9", "create", "k", x), LineReferences{References: refs(x)}},
		{accountLine(15, "deleted", early), LineReferences{Repeated: true}},
		{commitLine(16, 0, "b1", "create", "k", y), LineReferences{References: refs(y), Had: refs(x)}},
		{commitLine(17, 0, "b2", "delete", "k"), LineReferences{Had: refs(y)}},
		{commitLine(18, 0, "b3", "create", "l"), LineReferences{}},
	} {
		got, err := table.Apply(&step.line)
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(step.want, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("step %d, seq %d (- want, + got):\n%s", i, step.line.Seq, diff)
		}
	}
	var alive []string
	for uri := range table.Records() {
		alive = append(alive, uri)
	}
	if want := []string{"at://did:web:a.example/a.b.c/l"}; !slices.Equal(alive, want) {
		t.Errorf("alive are %q, want %q", alive, want)
	}
}

// TestFindReferences: the limits. That what is found is right shows TestTruthReferences.
func TestFindReferences(t *testing.T) {
	const did = "did:web:x.example"
	var many []any
	for i := range 300 {
		many = append(many, fmt.Sprintf("at://%s/a.b.c/%d", did, i))
	}
	for _, tc := range []struct {
		record any
		most   int
		want   int
	}{
		{many, 1000, maxReferences}, {many, 7, 7}, {many, 0, 0},
		{map[string]any{strings.Repeat("x", maxReferencePath): did}, 1000, 1},
		{map[string]any{strings.Repeat("x", maxReferencePath+1): did, "y": did}, 1000, 1},
	} {
		if got := findReferences(tc.record, tc.most); len(got) != tc.want {
			t.Errorf("%d references, want %d", len(got), tc.want)
		}
	}
}

// produce makes n messages of a relay that does not serve, and returns them.
func produce(t *testing.T, r *Relay, n int) (messages [][]byte) {
	t.Helper()
	for left := n; left > 0; {
		made, err := r.producer.produce(int64(left))
		if err != nil {
			t.Fatal(err)
		}
		left -= int(made)
	}
	return r.producer.now.win.newest(int64(n))
}

// payload returns what a websocket frame has.
func payload(frame []byte) []byte {
	switch frame[1] {
	case 126:
		return frame[4:]
	case 127:
		return frame[10:]
	}
	return frame[2:]
}

// placed is what a line or an event says of references at a place, in order of their names.
type placed map[[2]int64][]Reference

func (p placed) put(seq int64, op uint32, refs []Reference) {
	if len(refs) == 0 {
		return
	}
	refs = slices.Clone(refs)
	slices.SortFunc(refs, func(a, b Reference) int {
		return cmp.Or(cmp.Compare(a.Path(), b.Path()), cmp.Compare(a.Subject(), b.Subject()))
	})
	p[[2]int64{seq, int64(op)}] = refs
}

// translated returns what translate finds in messages.
func translated(t *testing.T, messages [][]byte) placed {
	t.Helper()
	tr, err := translate.New(translate.Config{References: true})
	if err != nil {
		t.Fatal(err)
	}
	found := make(placed)
	for _, m := range messages {
		var b translate.Batch
		data := payload(m)
		if m[0] != 0x82 || len(data) > 5<<20 {
			continue // consume drops it
		}
		tr.AppendFrame(&b, data)
		refs := make([][]Reference, len(b.Events))
		for i := range b.References {
			e := b.References[i].Event
			refs[e] = append(refs[e], Reference{string(b.ReferencePath(i)), string(b.Subject(i))})
		}
		for i := range b.Events {
			found.put(b.Events[i].Seq, b.Events[i].Op, refs[i])
		}
	}
	return found
}

// lineEvent is what lookBack needs of a line's event.
type lineEvent struct {
	DID     string
	Commit  struct{ Operation, Collection, RKey string }
	Account struct{ Status string }
}

// lookBack returns what the truth must say that the record of line n had, by going back to what the
// record was last.
func lookBack(lines []Line, events []lineEvent, n int) []Reference {
	this := events[n]
	if this.Commit.Operation == "" {
		return nil
	}
	for i := n - 1; i >= 0; i-- {
		e := events[i]
		switch {
		case e.DID != this.DID:
		case e.Account.Status == "deleted":
			return nil
		case e.Commit.Collection == this.Commit.Collection && e.Commit.RKey == this.Commit.RKey:
			return lines[i].References
		}
	}
	return nil
}

// TestTruthReferences compares what the truth says of references with what translate finds in the
// messages, and what records had with what they were last. Frames that come again change nothing.
func TestTruthReferences(t *testing.T) {
	name := filepath.Join(t.TempDir(), "truth")
	const messages, again = 3000, 400
	r := newRelay(t, "--generate", "600", "--accounts", "60", "--population", "200", "--clock", "virtual", "--churn-every", "3",
		"--hostile-every", "10", "--truth", name, "--truth-references")
	sent := produce(t, r, messages)
	lines, err := ReadTruth(name)
	if err != nil {
		t.Fatal(err)
	}
	events := make([]lineEvent, len(lines))
	for i := range lines {
		if err := json.Unmarshal(lines[i].Event, &events[i]); err != nil {
			t.Fatal(err)
		}
	}
	found := make(placed)
	had, updates := 0, 0
	for i := range lines {
		l := &lines[i]
		found.put(l.Seq, l.Op, l.References)
		want := lookBack(lines, events, i)
		if l.Repeated {
			t.Fatalf("seq %d came before, says the truth", l.Seq)
		}
		if diff := gocmp.Diff(want, l.Had, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("seq %d op %d had (- going back, + truth):\n%s", l.Seq, l.Op, diff)
		}
		if len(l.Had) > 0 {
			had++
			if len(l.References) > 0 {
				updates++
			}
		}
	}
	if diff := gocmp.Diff(translated(t, sent), found); diff != "" {
		t.Errorf("references (- translate, + truth):\n%.3000s", diff)
	}
	if had < 300 || had-updates < 100 || updates < 100 || len(found) < messages/2 {
		t.Errorf("%d ops with references, %d whose record had some, %d of them updates", len(found), had, updates)
	}

	r.producer.hostile = nil
	r.producer.traffic.again.left = again
	r.producer.renumber(0)
	produce(t, r, again)
	all, err := ReadTruth(name)
	if err != nil {
		t.Fatal(err)
	}
	repeated := all[len(lines):]
	for i := range repeated {
		l := &repeated[i]
		if l.Epoch != 1 || l.Had != nil || !l.Repeated && strings.Contains(string(l.Event), `"kind":"commit"`) {
			t.Fatalf("of a frame that comes again the truth says %+v of %s", l.LineReferences, l.Event)
		}
	}
	if len(repeated) < again/2 {
		t.Errorf("%d events came again", len(repeated))
	}
}
