//go:build cgo

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"millrace/consume/relaysim/testwait"
	"millrace/dict"
	"millrace/dict/jetstream"
)

const corpusDir = "../../../shared/corpus"

var composed = sync.OnceValues(func() (*material, error) { return compose(corpusDir) })

// loadCorpus returns what the corpus gives, for all tests, or skips the test where there is none.
func loadCorpus(t *testing.T) *material {
	t.Helper()
	if testwait.Race {
		t.Skip("one goroutine that computes much: the race detector finds nothing")
	}
	if _, err := os.Stat(corpusDir); err != nil {
		t.Skipf("the corpus of real data is not there: %v", err)
	}
	m, err := composed()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestReproducible: the dictionary that is built in is what this command makes.
func TestReproducible(t *testing.T) {
	m := loadCorpus(t)
	d, _, err := m.dictionary()
	if err != nil {
		t.Fatal(err)
	}
	if d.SHA256() != dict.BuiltIn().SHA256() {
		t.Errorf("made %x, built in is %x: if the change is meant, give the new dictionary a new ID and keep the old file", d.SHA256(), dict.BuiltIn().SHA256())
	}
}

// TestNobodysPost: no text of a post in the corpus, of either side, is in the dictionary, nor any
// DID, CID or handle. Every phrase is by several authors.
func TestNobodysPost(t *testing.T) {
	m := loadCorpus(t)
	d := dict.BuiltIn()
	if text := wholePost(d, m.train.posts, m.held.posts); text != "" {
		t.Errorf("a whole post is in the dictionary: %q", text)
	}
	var longest int
	for _, p := range m.train.posts {
		longest = max(longest, longestShared(d.Content(), []byte(p.text)))
	}
	if longest > maxPhraseBytes+8 {
		t.Errorf("%d bytes of a post are in the dictionary", longest)
	}
	for _, posts := range [][]post{m.train.posts, m.held.posts, m.train.others, m.held.others} {
		for _, p := range posts {
			if bytes.Contains(d.Content(), []byte(p.did)) || bytes.Contains(d.Content(), []byte(p.cid)) {
				t.Errorf("%s or %s is in the dictionary", p.did, p.cid)
			}
		}
	}
	for _, phrase := range vocabulary(m.train.posts, vocabularyBytes) {
		authors := make(map[string]bool)
		for _, p := range m.train.posts {
			if bytes.Contains(writtenPart(p.record), []byte(phrase)) {
				authors[p.did] = true
			}
		}
		if len(authors) < minVocabularyAuthors {
			t.Errorf("%q is by %d authors", phrase, len(authors))
		}
		if len(phrase) > maxPhraseBytes || !wanted(phrase) {
			t.Errorf("%q is in the vocabulary", phrase)
		}
	}
}

// longestShared returns the length of the longest string of text that is in content.
func longestShared(content, text []byte) int {
	var longest int
	for i := range text {
		for i+longest < len(text) && bytes.Contains(content, text[i:i+longest+1]) {
			longest++
		}
	}
	return longest
}

// TestWholePostFinds makes sure that the check above can fail.
func TestWholePostFinds(t *testing.T) {
	posts := []post{{text: "short"}, {text: "has to be in the dictionary"}}
	events := [][]byte{[]byte("has to be in the dictionary"), []byte("and so on and so forth"), []byte("one more, to have some")}
	d, err := dict.FinishContent(bytes.Repeat([]byte("short, has to be in the dictionary. "), 20), events, 40_000)
	if err != nil {
		t.Fatal(err)
	}
	if got := wholePost(d, posts); got != posts[1].text {
		t.Errorf("found %q", got)
	}
	if got := longestShared(d.Content(), []byte("xhas to beX")); got != len("has to be") {
		t.Errorf("%d bytes shared", got)
	}
}

// TestReach holds the built-in dictionary against its reach, 0.40 of plain, on events by authors
// that no training has seen. With -v it prints the ratios.
func TestReach(t *testing.T) {
	m := loadCorpus(t)
	v1, err := dict.Parse(jetstream.Dictionary())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(corpusDir, "expected.jsonl")) // production Jetstream served these
	if err != nil {
		t.Fatal(err)
	}
	held, real := newComposer(m.held, 2).events(5000), bytes.Split(bytes.TrimSpace(raw), []byte{'\n'})
	limit := 0.40
	if !dict.Libzstd {
		limit = 0.43
	}
	for _, d := range []*dict.Dictionary{dict.BuiltIn(), v1} {
		e, err := dict.NewEncoder(d)
		if err != nil {
			t.Fatal(err)
		}
		for name, events := range map[string][][]byte{"held out": held, "real": real} {
			got, _ := dict.Measure(e, events, 0)
			t.Logf("dictionary %d, %d %s events: %.3f of plain", d.ID(), len(events), name, got)
			if d.ID() == dict.BuiltInID && got > limit {
				t.Errorf("%s events: ratio %.3f, over %.2f", name, got, limit)
			}
		}
		e.Close()
	}
}

// TestComposed: composed events are JSON with sorted record keys, within the time span, and the two
// sides of the split share no author.
func TestComposed(t *testing.T) {
	m := loadCorpus(t)
	counts := make(map[string]int)
	for _, event := range m.trainEvents {
		var e struct {
			Kind   string
			TimeUS int64 `json:"time_us"`
			Commit struct {
				Operation, Collection string
				Record                json.RawMessage
			}
		}
		if err := json.Unmarshal(event, &e); err != nil {
			t.Fatalf("%v: %s", err, event)
		}
		if when := time.UnixMicro(e.TimeUS); when.Before(time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)) || when.After(time.Date(2027, 7, 2, 0, 0, 0, 0, time.UTC)) {
			t.Errorf("time %v", when)
		}
		counts[e.Kind+" "+e.Commit.Operation+" "+e.Commit.Collection]++
		if e.Commit.Record == nil {
			continue
		}
		if keys := topKeys(t, e.Commit.Record); !isSorted(keys) {
			t.Errorf("record keys %q: %s", keys, event)
		}
	}
	for kind, percent := range map[string]int{"feed.like": 65, "feed.post": 12, "feed.repost": 10, "graph.follow": 8} {
		got := 100 * counts["commit create app.bsky."+kind] / len(m.trainEvents)
		if got < percent-1 || got > percent+1 {
			t.Errorf("%s: %d %%, want %d", kind, got, percent)
		}
	}
	for _, p := range m.held.posts {
		if !heldOut(p.did) {
			t.Errorf("%s is on the wrong side", p.did)
		}
	}
	for _, p := range m.train.posts {
		if heldOut(p.did) {
			t.Errorf("%s is on the wrong side", p.did)
		}
	}
}

func topKeys(t *testing.T, record []byte) []string {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(record))
	var keys []string
	depth, isKey := 0, false
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return keys
		}
		if err != nil {
			t.Fatal(err)
		}
		switch v := token.(type) {
		case json.Delim:
			if v == '{' || v == '[' {
				depth++
			} else {
				depth--
			}
			isKey = depth == 1
		default:
			if depth == 1 {
				if isKey {
					keys = append(keys, v.(string))
				}
				isKey = !isKey
			}
		}
	}
}

// isSorted reports whether keys are in Go's order.
func isSorted(keys []string) bool {
	for i := 1; i < len(keys); i++ {
		if keys[i-1] >= keys[i] {
			return false
		}
	}
	return true
}
