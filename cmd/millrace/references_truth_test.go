package main

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/consume/relaysim"
	"millrace/dict"
	"millrace/replay"
	"millrace/replay/references"
)

// referenceNames is what an event says of references, a line each, in order. A line has + for what
// the record has, - for what it no longer has; or it says that the event is repeated. Sources begin
// with prefix.
func referenceNames(prefix string, r relaysim.LineReferences) string {
	if r.Repeated && prefix != ":" { // deletions of accounts do not say it
		return "repeated"
	}
	var lines []string
	add := func(sign string, ref relaysim.Reference) {
		lines = append(lines, sign+prefix+ref.Path()+" "+ref.Subject())
	}
	for _, ref := range r.References {
		add("+", ref)
	}
	for _, ref := range r.Had {
		if !slices.Contains(r.References, ref) {
			add("-", ref)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// sourcePrefix returns what sources of the references of a commit event begin with.
func sourcePrefix(t *testing.T, event []byte) string {
	t.Helper()
	var e struct{ Commit struct{ Collection string } }
	fromJSON(t, event, &e)
	return e.Commit.Collection + ":"
}

// servedReference is a reference as events have it.
type servedReference struct{ Source, Subject, UID string }

// servedNames is referenceNames of what was served, and what the UIDs in it stand for.
func servedNames(has, gone []servedReference, repeated bool) (names, uids string) {
	var lines, stand []string
	if repeated {
		lines = append(lines, "repeated")
	}
	add := func(sign string, refs []servedReference) {
		for _, r := range refs {
			lines, stand = append(lines, sign+r.Source+" "+r.Subject), append(stand, r.UID+" "+r.Subject)
		}
	}
	add("+", has)
	add("-", gone)
	slices.Sort(lines)
	return strings.Join(lines, "\n"), strings.Join(stand, "\n")
}

// tableOf gives a table of what a consumer must hold of events, from the beginning on, and sets
// what they must say of references.
func tableOf(t *testing.T, events []truthEvent) *relaysim.Table {
	t.Helper()
	table := relaysim.NewTable()
	for i := range events {
		e := &events[i]
		line := relaysim.Line{Epoch: uint32(e.Epoch), Seq: e.Seq, Op: e.Op, Event: json.RawMessage(e.JSON)}
		r, err := table.Apply(&line)
		if err != nil {
			t.Fatal(err)
		}
		e.References = referenceNames(sourcePrefix(t, line.Event), r)
	}
	return table
}

// checkReferences compares what the events of a log say of references with what they must say. It
// returns the table of the records that are alive.
func checkReferences(t *testing.T, who string, log []truthEvent) *relaysim.Table {
	t.Helper()
	want := slices.Clone(log)
	table := tableOf(t, want)
	checkReferencesAre(t, who, log, want)
	return table
}

// checkReferencesAre compares what events say of references with what they must say.
func checkReferencesAre(t *testing.T, who string, got, want []truthEvent) {
	t.Helper()
	some, gone := 0, 0
	for i := range got {
		if got[i].References != want[i].References {
			t.Fatalf("%s: event %d, %s, says of references\n%s\nwant\n%s\n%.300s", who, i, got[i].place(), got[i].References, want[i].References, got[i].JSON)
		}
		if want[i].References != "" {
			some++
		}
		if strings.HasPrefix(want[i].References, "-") || strings.Contains(want[i].References, "\n-") {
			gone++
		}
	}
	if some == 0 || gone == 0 {
		t.Errorf("%s: of %d events %d have references and %d have some no longer", who, len(got), some, gone)
	}
}

// referenceUIDs calls f with each UID of the event's references and what it stands for.
func (e *truthEvent) referenceUIDs(f func(s, uid string)) {
	for line := range strings.Lines(e.ReferenceUIDs) {
		uid, s, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		f(s, uid)
	}
}

// aliveNames is what a table has: a line for each record, its URI and its references in order.
func aliveNames(table *relaysim.Table) (records []string) {
	for uri, refs := range table.Records() {
		prefix := strings.Split(uri, "/")[3] + ":"
		records = append(records, uri+"\n"+referenceNames(prefix, relaysim.LineReferences{References: refs}))
	}
	slices.Sort(records)
	return records
}

// checkRecordTable compares the reference store in a stopped server's directory with the records
// that are alive after all events of its log. These were served with references and UIDs.
func checkRecordTable(t *testing.T, dir string, log []truthEvent) {
	t.Helper()
	cfg := &config{dataDir: dir}
	dicts, err := dict.NewRegistry(dict.BuiltIn(), dict.Shipped()...)
	if err != nil {
		t.Fatal(err)
	}
	defer dicts.Close()
	l, err := replay.Open(replay.Config{Dir: cfg.logDir(), ReadOnly: true, Dictionaries: dicts})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	store, err := references.Open(references.Config{Dir: cfg.referencesDir(), ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	stands := uidsOf(t, log)
	name := func(uid uint64) string { return stands[strconv.FormatUint(uid, 10)] }
	var records []string
	_, err = store.Rows(t.Context(), func(r *references.Row) error {
		var refs []relaysim.Reference
		for _, ref := range r.References {
			source, _ := l.SourceOf(ref.Path)
			refs = append(refs, relaysim.Reference{source, name(ref.Subject)})
		}
		records = append(records, name(r.Record)+"\n"+referenceNames("", relaysim.LineReferences{References: refs}))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(records)
	if diff := cmp.Diff(aliveNames(tableOf(t, slices.Clone(log))), records); diff != "" {
		t.Fatalf("the reference store (-truth +store):\n%.3000s", diff)
	}
	if report, err := store.Verify(t.Context(), nil); err != nil || !report.Sound() {
		t.Fatalf("verify the reference store: %+v, %v", report, err)
	}
}
