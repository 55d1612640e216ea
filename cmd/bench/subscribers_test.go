package main

import "testing"

// TestHeldLogJudges: a part depends on each event that passes.
func TestHeldLogJudges(t *testing.T) {
	log := func(n int) *heldLog {
		l := &heldLog{expectations: map[string]*expectation{}}
		for i := range n {
			e := heldEvent{timeUS: int64(i), did: "did:plc:a", collection: "app.bsky.feed.post", plain: []byte{byte(i)}}
			if i%2 == 1 {
				e.did, e.collection = "did:plc:b", ""
			}
			l.events = append(l.events, e)
		}
		return l
	}
	for _, c := range []struct {
		k    *subscriber
		want int
	}{
		{&subscriber{class: &class{}}, 10},
		{&subscriber{class: &class{query: oneCollection}}, 5},
		// other kinds pass
		{&subscriber{class: &class{query: "wantedCollections=org.example.nothing"}}, 5},
		{&subscriber{class: &class{}, dids: map[string]bool{"did:plc:b": true}}, 5},
	} {
		p := log(10).expected(c.k)
		if len(p.stamps) != c.want {
			t.Errorf("%q: %d events, want %d", c.k.class.query, len(p.stamps), c.want)
		}
		if q := log(8).expected(c.k); q.hash == p.hash {
			t.Errorf("%q: the hash does not show that events are missing", c.k.class.query)
		}
	}
}
