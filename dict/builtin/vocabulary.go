package main

import (
	"bytes"
	"cmp"
	"container/heap"
	"slices"
	"strings"
	"unicode/utf8"
)

// A vocabulary is what many people write: strings that occur in the posts of at least
// minVocabularyAuthors authors. Nothing that fewer wrote can get into it, so nobody's post can.
const (
	minVocabularyAuthors = 5
	minPhraseBytes       = 6
	maxPhraseBytes       = 32
	gramBytes            = 6 // strings shorter than this are cheaper as literals than as matches
)

// phrase is a candidate for the vocabulary.
type phrase struct {
	text string
	gain float64 // as last computed; it only ever falls
}

// vocabulary picks phrases of together at most maxBytes from the posts, the least useful first.
// What is nearest to the end of a dictionary is the cheapest to refer to. It is greedy: the next
// phrase is the one with the most authors a byte, counting only the grams that no phrase before it
// has.
func vocabulary(posts []post, maxBytes int) []string {
	ordered := slices.Clone(posts)
	slices.SortStableFunc(ordered, func(a, b post) int { return cmp.Compare(a.did, b.did) })
	grams := shared(ordered, gramBytes)
	covered := make(map[string]bool)
	gain := func(text string) float64 {
		var sum int
		for i := 0; i+gramBytes <= len(text); i++ {
			if gram := text[i : i+gramBytes]; !covered[gram] {
				sum += grams[gram]
			}
		}
		return float64(sum) / float64(len(text)+1)
	}
	var candidates phraseHeap
	for n := minPhraseBytes; n <= maxPhraseBytes; n += 2 {
		for text := range shared(ordered, n) {
			if wanted(text) {
				candidates = append(candidates, phrase{text, gain(text)})
			}
		}
	}
	heap.Init(&candidates)
	var picked []string
	for size := 0; len(candidates) > 0; {
		best := &candidates[0]
		if now := gain(best.text); now < best.gain {
			best.gain = now
			heap.Fix(&candidates, 0)
			continue
		}
		text := heap.Pop(&candidates).(phrase).text
		if size+len(text) > maxBytes {
			break
		}
		size += len(text)
		picked = append(picked, text)
		for i := 0; i+gramBytes <= len(text); i++ {
			covered[text[i:i+gramBytes]] = true
		}
	}
	slices.Reverse(picked)
	return picked
}

// shared counts the authors of every string of n bytes that enough of them wrote. The posts are
// ordered by author.
func shared(posts []post, n int) map[string]int {
	type tally struct {
		authors int
		last    string
	}
	tallies := make(map[string]tally)
	for _, p := range posts {
		written := writtenPart(p.record)
		for i := 0; i+n <= len(written); i++ {
			t := tallies[string(written[i:i+n])]
			if t.last != p.did {
				tallies[string(written[i:i+n])] = tally{t.authors + 1, p.did}
			}
		}
	}
	counts := make(map[string]int)
	for text, t := range tallies {
		if t.authors >= minVocabularyAuthors {
			counts[text] = t.authors
		}
	}
	return counts
}

// writtenPart returns a post's text as it is escaped on the wire, with the key before it. The other
// fields are in the templates, or name people: whom many reply to, or mention.
func writtenPart(record []byte) []byte {
	i := bytes.LastIndex(record, []byte(`"text":"`))
	if i < 0 {
		return nil
	}
	text := record[i:]
	return text[:bytes.LastIndexByte(text, '"')]
}

// wanted reports whether text may be in a vocabulary: it is whole characters, and no part of a
// handle, an address or a coarse word.
func wanted(text string) bool {
	for _, s := range []string{"@", "did:", "bsky.social", "bsky.app", "fuck", "shit"} {
		if strings.Contains(text, s) {
			return false
		}
	}
	return utf8.ValidString(text)
}

// phraseHeap has the phrase with the largest gain first; ties are broken by the text, so that a
// vocabulary depends on nothing but the posts.
type phraseHeap []phrase

func (h phraseHeap) Len() int      { return len(h) }
func (h phraseHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *phraseHeap) Push(x any)   { *h = append(*h, x.(phrase)) }

func (h phraseHeap) Less(i, j int) bool {
	if h[i].gain != h[j].gain {
		return h[i].gain > h[j].gain
	}
	return h[i].text < h[j].text
}

func (h *phraseHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
