package relaysim

import (
	"fmt"
	"strings"

	"millrace/consume/relaysim/cbor"
)

// churn makes messages of few accounts that change few records again and again. These are creates,
// updates and deletes of one record key, several in one commit too. Records return under their old
// key, and accounts are deleted and return. The records are rich in references. It is not safe for
// concurrent use.
type churn struct {
	cadence
	builder *messageBuilder
	names   *population // of subjects
	truth   bool
}

const (
	churnAccounts = 12
	churnKeys     = 5 // record keys of an account in each collection
	churnSubjects = 40
)

// newChurn makes one such message in every; 0: none.
func newChurn(every int64, clk *clock, seed uint64, truth bool) *churn {
	rng := newRand(seed, "churn")
	return &churn{
		cadence: cadence{every: every}, truth: truth, names: newPopulation(seed, churnSubjects, rng),
		builder: &messageBuilder{clock: clk, population: newPopulation(Mix(seed), churnAccounts, rng), rng: rng},
	}
}

// template makes the next message. Its holes are filled with its own values.
func (c *churn) template() *template {
	k := c.builder
	k.begin(1)
	var payload []byte
	switch n := k.rng.IntN(60); {
	case n < 2:
		payload = k.account(k.did, k.time, "deleted")
	case n < 3:
		payload = k.account(k.did, k.time, []string{"", "deactivated", "takendown"}[k.rng.IntN(3)])
	default:
		ops := make([]hostileOp, 1+k.rng.IntN(4))
		for i := range ops {
			ops[i] = c.op()
		}
		payload = k.commit(nil, ops...).payload
	}
	t, err := newTemplate(payload, c.truth)
	if err != nil {
		panic("relaysim: " + err.Error()) // it is well-formed
	}
	return t
}

// op returns an op on some record, which may be there or not.
func (c *churn) op() hostileOp {
	rng := c.builder.rng
	collections := []string{"app.bsky.feed.like", "app.bsky.graph.follow", "app.bsky.graph.listitem", "app.bsky.feed.post", "com.example.links"}
	collection := collections[rng.IntN(len(collections))]
	path := collection + "/" + makeTID(uint64(1+rng.IntN(churnKeys))<<50).String()
	action := []string{"create", "create", "update", "update", "delete"}[rng.IntN(5)]
	if action == "delete" {
		return hostileOp{action: action, path: path, keep: true}
	}
	record := c.record(collection)
	record["$type"], record["createdAt"] = collection, c.builder.time
	p := c.builder.put(action, collection, cbor.Append(nil, record))
	p.path = path
	return p
}

// record returns a record of a collection.
func (c *churn) record(collection string) map[string]any {
	switch collection {
	case "app.bsky.feed.like":
		return map[string]any{"subject": c.strongRef(), "via": c.strongRef()}
	case "app.bsky.graph.follow":
		return map[string]any{"subject": c.did()}
	case "app.bsky.graph.listitem":
		return map[string]any{"subject": c.did(), "list": c.uri("app.bsky.graph.list")}
	case "app.bsky.feed.post":
		return c.post()
	}
	return c.links()
}

// post is a reply with mentions and a quote. A facet's type may be missing: then its path is
// another.
func (c *churn) post() map[string]any {
	facets := make([]any, c.builder.rng.IntN(3))
	for i := range facets {
		facet := map[string]any{"features": []any{
			map[string]any{"$type": "app.bsky.richtext.facet#mention", "did": c.did()},
			map[string]any{"$type": "app.bsky.richtext.facet#link", "uri": "https://example.com/"},
		}}
		if c.builder.rng.IntN(2) == 0 {
			facet["$type"] = "app.bsky.richtext.facet"
		}
		facets[i] = facet
	}
	return map[string]any{
		"text": c.did() + " is not all of it", "facets": facets,
		"reply": map[string]any{"parent": c.strongRef(), "root": c.strongRef()},
		"embed": map[string]any{
			"$type":  "app.bsky.embed.recordWithMedia",
			"record": map[string]any{"$type": "app.bsky.embed.record", "record": c.strongRef()},
		},
	}
}

// links is a record with references of all kinds, and what is none. Now and then it has more than
// consumers keep.
func (c *churn) links() map[string]any {
	rng := c.builder.rng
	n := rng.IntN(4)
	if rng.IntN(20) == 0 {
		n = maxReferences + rng.IntN(10)
	}
	list := make([]any, n)
	for i := range list {
		list[i] = fmt.Sprintf("at://did:web:%d.example.com/a.b.c/%d", rng.IntN(5), i)
	}
	did := c.did()
	return map[string]any{
		"list": list, "twice": []any{did, did}, "nested": []any{[]any{c.did()}, map[string]any{"did": c.did()}},
		"handle": "at://alice.example.com/a.b.c/d", "authority": "at://" + c.did(), "collection": "at://" + c.did() + "/a.b.c",
		"a.b[c]": c.did(), "none": did + " ", "fragment": did + "#key", "web": "https://example.com/" + did,
		strings.Repeat("x", maxReferencePath-rng.IntN(2)*2+1): c.did(),
	}
}

func (c *churn) did() string { return c.names.did(c.names.draw()) }

// uri returns the URI of one of few records.
func (c *churn) uri(collection string) string {
	rkey := makeTID(uint64(1+c.builder.rng.IntN(9)) << 50).String()
	return "at://" + c.did() + "/" + collection + "/" + rkey
}

func (c *churn) strongRef() map[string]any {
	uri := c.uri("app.bsky.feed.post")
	return strongRef(postRef{uri: uri, cid: blockCID([]byte(uri)).String()})
}
