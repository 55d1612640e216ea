package main

import "testing"

// TestUpdatesExplain checks the soak's judge of options updates: it accepts a switch at any event
// after the update was asked for, and nothing else.
func TestUpdatesExplain(t *testing.T) {
	var log []truthEvent
	var facts []eventFacts
	for i, collection := range []string{"like", "post", "like", "repost", "post", "like"} {
		log = append(log, truthEvent{Seq: int64(i + 1)})
		facts = append(facts, eventFacts{Kind: "commit"})
		facts[i].Commit.Collection = collection
	}
	likes, posts := soakFilter{collections: []string{"like"}}, soakFilter{collections: []string{"post"}}
	one := func(asked ...askedFilter) []updatedConn { return []updatedConn{{asked: asked}} }
	for _, tt := range []struct {
		name  string
		conns []updatedConn
		seen  []int // seqs
		ok    bool
	}{
		{"no update", one(askedFilter{likes, 0}), []int{1, 3, 6}, true},
		{"no update, one missing", one(askedFilter{likes, 0}), []int{1, 6}, false},
		{"no update, one too many", one(askedFilter{likes, 0}), []int{1, 2, 3, 6}, false},
		{"in force at once", one(askedFilter{likes, 0}, askedFilter{posts, 1}), []int{1, 2, 5}, true},
		{"in force later", one(askedFilter{likes, 0}, askedFilter{posts, 1}), []int{1, 3, 5}, true},
		{"in force before it was asked for", one(askedFilter{likes, 0}, askedFilter{posts, 2}), []int{1, 2, 5}, false},
		{"judged by both", one(askedFilter{likes, 0}, askedFilter{posts, 1}), []int{1, 2, 3, 5}, false},
		{"judged by neither", one(askedFilter{likes, 0}, askedFilter{posts, 1}), []int{1, 6}, false},
		{"taken back", one(askedFilter{likes, 0}, askedFilter{posts, 1}), []int{1, 2, 6}, false},
		{"one after the other", one(askedFilter{likes, 0}, askedFilter{posts, 1}, askedFilter{likes, 2}), []int{1, 2, 6}, true},
		{"goes on after the last event seen", []updatedConn{{asked: []askedFilter{{likes, 0}}}, {first: 1, asked: []askedFilter{{posts, 1}}}}, []int{1, 2, 5}, true},
		{"goes on too late", []updatedConn{{asked: []askedFilter{{likes, 0}}}, {first: 1, asked: []askedFilter{{posts, 1}}}}, []int{1, 5}, false},
	} {
		var seen []truthEvent
		for _, seq := range tt.seen {
			seen = append(seen, log[seq-1])
		}
		err := (&updates{conns: tt.conns}).explain(seen, log, facts)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
