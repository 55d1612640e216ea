package main

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// referenceEvent is what a line of tail --references says.
type referenceEvent struct {
	line   string
	Commit struct {
		Operation, Collection string
		Record                any
	}
	References []struct{ Source, Subject, UID string }
}

// tailReferences returns the commits that `millrace tail --references` prints with these flags.
func tailReferences(t *testing.T, d *testDaemon, flags ...string) (events []referenceEvent) {
	t.Helper()
	var out, said bytes.Buffer
	args := []string{"tail", "--url", d.addr, "--cursor", "0", "--until", "live", "--kinds", "commit", "--references"}
	if code := run(t.Context(), append(args, flags...), &out, &said); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &said)
	}
	for line := range strings.Lines(out.String()) {
		e := referenceEvent{line: line}
		fromJSON(t, line, &e)
		if e.Commit.Operation != "" {
			events = append(events, e)
		}
	}
	return events
}

// subjectsIn adds the strings of a JSON value that are whole DIDs and AT URIs.
func subjectsIn(v any, found map[string]bool) {
	switch v := v.(type) {
	case string:
		_, didErr := syntax.ParseDID(v)
		_, uriErr := syntax.ParseATURI(v)
		if didErr == nil || uriErr == nil {
			found[v] = true
		}
	case []any:
		for _, e := range v {
			subjectsIn(e, found)
		}
	case map[string]any:
		for _, e := range v {
			subjectsIn(e, found)
		}
	}
}

// TestTailReferences: of real events the references are what a walk over their JSON finds. A filter
// by subject or source prints those of all that have it.
func TestTailReferences(t *testing.T) {
	t.Parallel()
	frames, want := corpusFrames(t), corpusEvents(t)
	relay := newTestRelay(t)
	d := startDaemon(t, relay.url, t.TempDir(), "--references", "on")
	for _, f := range frames {
		relay.send <- f
	}
	waitFor(t, "all events are in the log", func() bool { return d.log.Range().Events == int64(len(want)) })
	all := tailReferences(t, d)
	authorities, sources := make(map[string]int), make(map[string]int)
	for _, e := range all {
		found, got := make(map[string]bool), make(map[string]bool)
		subjectsIn(e.Commit.Record, found)
		for _, r := range e.References {
			got[r.Subject] = true
			authorities[authorityOf(r.Subject)]++
			sources[r.Source]++
			if !strings.HasPrefix(r.Source, e.Commit.Collection+":") || r.UID == "" {
				t.Errorf("a reference is %+v in %s", r, e.line)
			}
		}
		if diff := cmp.Diff(found, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%s-walk +references\n%s", e.line, diff)
		}
	}
	delete(authorities, "")
	did, source := most(authorities), most(sources)
	if authorities[did] < 2 || sources[source] < 2 {
		t.Fatalf("the events have references to %v, from %v", authorities, sources)
	}
	for flag, value := range map[string]string{"--subject-dids": did, "--sources": source} {
		var lines []string
		for _, e := range all {
			for _, r := range e.References {
				if flag == "--sources" && r.Source == source || flag != "--sources" && authorityOf(r.Subject) == did {
					lines = append(lines, e.line)
					break
				}
			}
		}
		var got []string
		for _, e := range tailReferences(t, d, flag, value) {
			got = append(got, e.line)
		}
		if diff := cmp.Diff(lines, got); diff != "" {
			t.Errorf("%s %s: -want +got\n%s", flag, value, diff)
		}
	}
}

// authorityOf returns the DID in a DID or AT URI, "" if there is none.
func authorityOf(subject string) string {
	s, _, _ := strings.Cut(strings.TrimPrefix(subject, "at://"), "/")
	if !strings.HasPrefix(s, "did:") {
		return ""
	}
	return s
}

// most returns the key that counts most, "" if there is none.
func most(counts map[string]int) (key string) {
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		if counts[k] > counts[key] {
			key = k
		}
	}
	return key
}
