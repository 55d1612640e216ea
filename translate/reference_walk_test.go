package translate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/bluesky-social/indigo/atproto/atdata"
	"github.com/bluesky-social/indigo/atproto/syntax"
	gocmp "github.com/google/go-cmp/cmp"
)

// reference is what a test says of one.
type reference struct {
	Event                    int
	Path, Subject, Authority string
	IsURI                    bool
}

// referencesOf returns the references of a batch.
func referencesOf(b *Batch) (found []reference) {
	for i := range b.References {
		r := &b.References[i]
		found = append(found, reference{
			int(r.Event), string(b.ReferencePath(i)), string(b.Subject(i)), string(b.Authority(i)), r.IsURI(),
		})
	}
	return found
}

// referenceWalk extracts references as this package does, by another way: it walks over decoded
// JSON and takes what indigo's syntax takes.
type referenceWalk struct {
	event  int // of the record
	frame  int // of the references in found, the first of the frame
	first  int // and the first of the record
	found  []reference
	excess uint64
}

// walkEvents returns what a batch of one frame should hold, by the JSON of its events. The members
// of a record must have come in DAG-CBOR's order.
func walkEvents(t *testing.T, b *Batch) ([]reference, uint64) {
	t.Helper()
	var w referenceWalk
	for i := range b.Events {
		w.walkEvent(t, b, i)
	}
	return w.found, w.excess
}

func (w *referenceWalk) walkEvent(t *testing.T, b *Batch, i int) {
	t.Helper()
	b.Stamp(i, MinTimeUS) // zeros are no JSON
	var event struct{ Commit struct{ Record any } }
	if err := json.Unmarshal(b.Payload(i), &event); err != nil {
		t.Fatal(err)
	}
	w.event, w.first = i, len(w.found)
	w.walk("", event.Commit.Record)
}

func (w *referenceWalk) walk(path string, value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range dagOrder(value) {
			w.walk(path+"."+name, value[name])
		}
	case []any:
		for _, element := range value {
			object, _ := element.(map[string]any)
			name, _ := object["$type"].(string)
			w.walk(path+"["+name+"]", element)
		}
	case string:
		w.add(strings.TrimPrefix(path, "."), value)
	}
}

// dagOrder returns the names of an object as DAG-CBOR sorts them: by length, then by bytes.
func dagOrder(object map[string]any) []string {
	names := make([]string, 0, len(object))
	for name := range object {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return names
}

func (w *referenceWalk) add(path, value string) {
	r := reference{Event: w.event, Path: path, Subject: value, Authority: value}
	if uri, err := syntax.ParseATURI(value); err == nil {
		r.Authority, r.IsURI = uri.Authority().String(), true
	} else if _, err := syntax.ParseDID(value); err != nil {
		return
	}
	record := w.found[w.first:]
	switch {
	case len(path) > MaxReferencePathBytes:
		w.excess++
	case slices.Contains(record, r):
	case len(record) == MaxReferences || len(w.found)-w.frame == maxFrameReferences:
		w.excess++
	default:
		w.found = append(w.found, r)
	}
}

// checkReferences holds the references of a batch of one frame against the walk.
func checkReferences(t *testing.T, b *Batch) {
	t.Helper()
	want, excess := walkEvents(t, b)
	if diff := gocmp.Diff(want, referencesOf(b)); diff != "" || b.Counts.ExcessReferences != excess {
		t.Errorf("%d in excess, want %d; references (-walk +translate):\n%s", b.Counts.ExcessReferences, excess, diff)
	}
}

func newReferenceTranslator(tb testing.TB) *Translator {
	tb.Helper()
	tr, err := New(Config{References: true})
	if err != nil {
		tb.Fatal(err)
	}
	return tr
}

// translateRecord returns the batch of a frame that creates a record.
func translateRecord(tr *Translator, record []byte) *Batch {
	var b Batch
	tr.AppendFrame(&b, frameOf("#commit", commitBody(carOf(blockOf(record)), createOp("a.b.c/d", record))))
	return &b
}

// checkRecordReferences holds the references of a record against the walk: in order if its members
// are in DAG-CBOR's order, else as a set.
func checkRecordReferences(t *testing.T, tr *Translator, record []byte) {
	t.Helper()
	b := translateRecord(tr, record)
	if inDAGOrder(record) {
		checkReferences(t, b)
		return
	}
	want, excess := walkEvents(t, b)
	got := referencesOf(b)
	if b.Counts.ExcessReferences != excess || len(got) != len(want) {
		t.Fatalf("%d references and %d in excess, the walk has %d and %d", len(got), b.Counts.ExcessReferences, len(want), excess)
	}
	if excess > 0 {
		return // which ones depends on the order
	}
	order := func(a, b reference) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Subject, b.Subject))
	}
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("references (-walk +translate):\n%s", diff)
	}
}

// inDAGOrder reports whether indigo would write a record as it is.
func inDAGOrder(record []byte) (same bool) {
	defer func() { _ = recover() }() // as in indigoRecord
	obj, err := atdata.UnmarshalCBOR(record)
	if err != nil {
		return false
	}
	again, err := atdata.MarshalCBOR(obj)
	return err == nil && bytes.Equal(again, record)
}
