package translate

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAppendRecord: of a record alone there comes what comes of a frame that creates it.
func TestAppendRecord(t *testing.T) {
	tr, err := New(Config{Collections: []string{"app.bsky.*"}, References: true})
	if err != nil {
		t.Fatal(err)
	}
	records := maps.Clone(badRecords())
	for _, tc := range referenceCases {
		records["reference: "+tc.name] = cborOf(tc.record)
	}
	many := make([]any, 2*MaxReferences)
	for i := range many {
		many[i] = subjectURI + strings.Repeat("a", i)
	}
	records["many references"] = cborOf(cborMap{{"a", many}})
	var all Batch // of all records alone
	kinds := make(map[string]int)
	check := func(name, path string, record []byte) {
		var want Batch
		tr.AppendFrame(&want, frameOf("#commit", commitBody(carOf(blockOf(record)), createOp(path, record))))
		events, refs, before := len(all.Events), len(all.References), all.Counts
		tr.AppendRecord(&all, didOf(want), []byte(path), record)
		got := all.Counts
		if got.Drops != plus(before.Drops, want.Counts.Drops) || got.Filtered-before.Filtered != want.Counts.Filtered ||
			got.ExcessReferences-before.ExcessReferences != want.Counts.ExcessReferences || got.Events[EventCreate]-before.Events[EventCreate] != want.Counts.Events[EventCreate] {
			t.Errorf("%s: counted %+v\n, then %+v; of a frame %+v", name, before, got, want.Counts)
		}
		if len(all.Events)-events != len(want.Events) || len(all.References)-refs != len(want.References) {
			t.Fatalf("%s: %d events, %d references; of a frame %d and %d", name, len(all.Events)-events, len(all.References)-refs, len(want.Events), len(want.References))
		}
		if len(want.Events) == 0 {
			kinds["dropped"]++
			return
		}
		kinds["kept"]++
		text := func(b *Batch, i int) string {
			_, record, _ := bytes.Cut(b.Payload(i), []byte(`"record":`))
			record, _, _ = bytes.Cut(record, []byte(`,"cid":"`))
			return string(b.Collection(i)) + "/" + string(b.RecordKey(i)) + string(bytes.TrimRight(record, "}"))
		}
		if diff := cmp.Diff(text(&want, 0), text(&all, events)); diff != "" {
			t.Errorf("%s: -frame +alone\n%s", name, diff)
		}
		for i := range want.References {
			kinds["references"]++
			w, g := want.References[i], all.References[refs+i]
			if int(g.Event) != events || g.IsURI() != w.IsURI() || !bytes.Equal(want.Subject(i), all.Subject(refs+i)) ||
				!bytes.Equal(want.ReferencePath(i), all.ReferencePath(refs+i)) || !bytes.Equal(want.Authority(i), all.Authority(refs+i)) {
				t.Errorf("%s: reference %d is %s at %s, of a frame %s at %s", name, i, all.Subject(refs+i), all.ReferencePath(refs+i), want.Subject(i), want.ReferencePath(i))
			}
		}
	}
	for name, record := range records {
		check(name, "app.bsky.feed.post/a", record)
	}
	good := cborOf(cborMap{{"uri", subjectURI}})
	for _, path := range []string{"app.bsky.feed.like", "app.bsky.feed.like/", "app/a", "app.bsky.feed.like/a/b", "com.example.other/a", "app.bsky.feed.like/.."} {
		check(path, path, good)
	}
	before := all.Counts.Drops[ReasonInvalidDID]
	tr.AppendRecord(&all, []byte("did:web:"), []byte("app.bsky.feed.like/a"), good)
	if all.Counts.Drops[ReasonInvalidDID] != before+1 {
		t.Error("an invalid DID is not counted")
	}
	if kinds["dropped"] < 20 || kinds["kept"] < 20 || kinds["references"] < MaxReferences+20 {
		t.Errorf("too little was tested: %v", kinds)
	}
}

// didOf returns the DID of a batch's event, any valid one if it has none.
func didOf(of Batch) []byte {
	if len(of.Events) > 0 {
		return of.DID(0)
	}
	return []byte(subjectDID)
}

func plus(a, b [NumReasons]uint64) [NumReasons]uint64 {
	for i := range a {
		a[i] += b[i]
	}
	return a
}

// TestInvalidReference: each field is checked by the rules that records go by.
func TestInvalidReference(t *testing.T) {
	good := [5]string{subjectDID, "app.bsky.feed.like", "3l6oveex3ii2l", "subject.uri", subjectURI}
	for _, tc := range []struct {
		field int
		value string
		says  string // "": it is fine
	}{
		{3, "", ""},
		{3, "a\nb", ""},
		{4, subjectDID, ""},
		{4, "at://alice.example.com", ""},
		{0, "did:web:", "no did"},
		{0, "", "no did"},
		{1, "like", "no collection"},
		{2, "..", "no rkey"},
		{3, strings.Repeat("a", MaxReferencePathBytes+1), "no path"},
		{4, "https://example.com/", "no subject"},
		{4, subjectURI + "/", "no subject"},
		{4, "", "no subject"},
	} {
		f := good
		f[tc.field] = tc.value
		got := InvalidReference(f[0], f[1], f[2], f[3], f[4])
		if (got == "") != (tc.says == "") || !strings.Contains(got, tc.says) {
			t.Errorf("field %d is %.40q: %q", tc.field, tc.value, got)
		}
	}
}
