package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"time"
)

// composer makes events in the live mix out of real material. What is secret noise on the network
// (actors' DIDs, CIDs, clock IDs of TIDs) is random here. Shapes, posts and the posts that are
// referred to are real. Given the same corpus and seed it makes the same events.
type composer struct {
	src *corpus
	rng *rand.Rand

	posts, refs []int // indexes of those not used yet, shuffled
}

func newComposer(src *corpus, seed uint64) *composer {
	return &composer{src: src, rng: rand.New(rand.NewPCG(seed, 0x6d696c6c72616365))}
}

// Shares of the kinds of events in the live stream, per thousand. Then, in per cent, how often an
// event of a kind has a part that may be absent. The first four shares are stated by the corpus.
// The others follow the 62 real events and general knowledge.
const (
	likes       = 650
	posts       = 120
	reposts     = 100
	follows     = 80
	deletes     = 25
	blocks      = 8
	listItems   = 4
	threadgates = 4
	others      = 4 // profiles, lists and the like; what remains is identity and account events

	likesVia, repostsVia                           = 20, 50
	replies, repliesToRoot, withImages, withQuotes = 40, 60, 20, 7
)

// events makes n events.
func (c *composer) events(n int) [][]byte {
	all := make([][]byte, n)
	for i := range all {
		all[i] = c.event()
	}
	return all
}

func (c *composer) event() []byte {
	const span = 365 * 24 * time.Hour
	now := time.Date(2026, time.July, 1, 0, 0, 0, 0, time.UTC).Add(c.upTo(span))
	x := c.rng.IntN(1000)
	for _, kind := range []struct {
		perMille int
		make     func(time.Time) []byte
	}{
		{likes, func(t time.Time) []byte { return c.subjectOp(t, "app.bsky.feed.like", likesVia) }},
		{posts, c.post},
		{reposts, func(t time.Time) []byte { return c.subjectOp(t, "app.bsky.feed.repost", repostsVia) }},
		{follows, func(t time.Time) []byte { return c.didOp(t, "app.bsky.graph.follow") }},
		{deletes, c.delete},
		{blocks, func(t time.Time) []byte { return c.didOp(t, "app.bsky.graph.block") }},
		{listItems, c.listItem},
		{threadgates, c.threadgate},
		{others, c.other},
	} {
		if x < kind.perMille {
			return kind.make(now)
		}
		x -= kind.perMille
	}
	return c.identity(now)
}

// subjectOp makes a like or a repost.
func (c *composer) subjectOp(t time.Time, collection string, viaPercent int) []byte {
	r := c.recent(t)
	via := ""
	if c.percent(viaPercent) {
		via = fmt.Sprintf(`,"via":{"cid":"%s","uri":"at://%s/app.bsky.feed.repost/%s"}`, c.cid(), c.did(), c.tid(t.Add(-c.upTo(48*time.Hour))))
	}
	record := fmt.Sprintf(`{"$type":"%s","createdAt":"%s","subject":{"cid":"%s","uri":"%s"}%s}`, collection, c.createdAt(t), r.CID, r.URI, via)
	return c.create(t, c.did(), collection, record, "")
}

// didOp makes a follow or a block.
func (c *composer) didOp(t time.Time, collection string) []byte {
	record := fmt.Sprintf(`{"$type":"%s","createdAt":"%s","subject":"%s"}`, collection, c.createdAt(t), c.did())
	return c.create(t, c.did(), collection, record, "")
}

func (c *composer) listItem(t time.Time) []byte {
	did := c.did()
	record := fmt.Sprintf(`{"$type":"app.bsky.graph.listitem","createdAt":"%s","list":"at://%s/app.bsky.graph.list/%s","subject":"%s"}`,
		c.createdAt(t), did, c.tid(t.Add(-c.upTo(1000*time.Hour))), c.did())
	return c.create(t, did, "app.bsky.graph.listitem", record, "")
}

// threadgate makes what comes with a post whose replies or quotes are restricted.
func (c *composer) threadgate(t time.Time) []byte {
	did, rkey := c.did(), c.tid(t)
	if c.percent(50) {
		record := fmt.Sprintf(`{"$type":"app.bsky.feed.postgate","createdAt":"%s","detachedEmbeddingUris":[],"embeddingRules":[{"$type":"app.bsky.feed.postgate#disableRule"}],"post":"at://%s/app.bsky.feed.post/%s"}`,
			c.createdAt(t), did, rkey)
		return c.create(t, did, "app.bsky.feed.postgate", record, rkey)
	}
	record := fmt.Sprintf(`{"$type":"app.bsky.feed.threadgate","allow":[{"$type":"app.bsky.feed.threadgate#mentionRule"},{"$type":"app.bsky.feed.threadgate#followerRule"}],"createdAt":"%s","hiddenReplies":[],"post":"at://%s/app.bsky.feed.post/%s"}`,
		c.createdAt(t), did, rkey)
	return c.create(t, did, "app.bsky.feed.threadgate", record, rkey)
}

func (c *composer) delete(t time.Time) []byte {
	collection := []string{"app.bsky.feed.like", "app.bsky.graph.follow", "app.bsky.feed.repost", "app.bsky.feed.post"}[c.rng.IntN(4)]
	return fmt.Appendf(nil, `{"did":"%s","time_us":%d,"kind":"commit","commit":{"rev":"%s","operation":"delete","collection":"%s","rkey":"%s"}}`,
		c.did(), c.timeUS(t), c.tid(t), collection, c.tid(t.Add(-c.upTo(2000*time.Hour))))
}

// identity makes an identity or an account event.
func (c *composer) identity(t time.Time) []byte {
	did, seq, stamp := c.did(), 30_000_000_000+c.rng.Int64N(10_000_000_000), t.UTC().Format("2006-01-02T15:04:05.000Z")
	if c.percent(50) {
		return fmt.Appendf(nil, `{"did":"%s","time_us":%d,"kind":"account","account":{"active":true,"did":"%s","seq":%d,"time":"%s"}}`, did, c.timeUS(t), did, seq, stamp)
	}
	handle := c.letters(6+c.rng.IntN(8), "abcdefghijklmnopqrstuvwxyz") + ".bsky.social"
	return fmt.Appendf(nil, `{"did":"%s","time_us":%d,"kind":"identity","identity":{"did":"%s","handle":"%s","seq":%d,"time":"%s"}}`, did, c.timeUS(t), did, handle, seq, stamp)
}

// other makes an event of a real record of the kinds that no other method makes, such as a profile
// or a list. If the corpus has none it makes a block.
func (c *composer) other(t time.Time) []byte {
	if len(c.src.others) == 0 {
		return c.didOp(t, "app.bsky.graph.block")
	}
	p := c.src.others[c.rng.IntN(len(c.src.others))]
	return c.create(t, p.did, p.collection, string(p.record), p.rkey)
}

var (
	createdAtField = regexp.MustCompile(`"createdAt":"\d\d\d\d-\d\d-\d\dT\d\d:\d\d:\d\d`)
	uriTID         = regexp.MustCompile(`/[2-7a-z]{13}$`)
)

// post makes an event of a real post, today. Real posts of the corpus have replies and embeds less
// often than the network's, so some are added in the lexicon's shapes.
func (c *composer) post(t time.Time) []byte {
	if len(c.posts) == 0 {
		c.posts = c.rng.Perm(len(c.src.posts))
	}
	p := c.src.posts[c.posts[0]]
	c.posts = c.posts[1:]
	record := createdAtField.ReplaceAll(p.record, []byte(t.UTC().Format(`"createdAt":"2006-01-02T15:04:05`)))
	if !bytes.Contains(record, []byte(`"embed":`)) {
		switch x := c.rng.IntN(100); {
		case x < withImages:
			record = insertField(record, c.images())
		case x < withImages+withQuotes:
			r := c.recent(t)
			record = insertField(record, fmt.Sprintf(`"embed":{"$type":"app.bsky.embed.record","record":{"cid":"%s","uri":"%s"}}`, r.CID, r.URI))
		}
	}
	if !bytes.Contains(record, []byte(`"reply":`)) && c.percent(replies) {
		parent := c.recent(t)
		root := parent
		if !c.percent(repliesToRoot) {
			root = c.recent(t)
		}
		record = insertField(record, fmt.Sprintf(`"reply":{"parent":{"cid":"%s","uri":"%s"},"root":{"cid":"%s","uri":"%s"}}`,
			parent.CID, parent.URI, root.CID, root.URI))
	}
	return c.create(t, p.did, p.collection, string(record), "")
}

// images makes an embed of one to four pictures.
func (c *composer) images() string {
	var b strings.Builder
	b.WriteString(`"embed":{"$type":"app.bsky.embed.images","images":[`)
	for i := range 1 + c.rng.IntN(4)*c.rng.IntN(2) {
		if i > 0 {
			b.WriteByte(',')
		}
		w, h := 600+c.rng.IntN(1400), 600+c.rng.IntN(1400)
		fmt.Fprintf(&b, `{"alt":"","aspectRatio":{"height":%d,"width":%d},"image":{"$type":"blob","ref":{"$link":"bafkrei%s"},"mimeType":"image/jpeg","size":%d}}`,
			h, w, c.letters(52, base32), 20_000+c.rng.IntN(950_000))
	}
	b.WriteString(`]}`)
	return b.String()
}

// insertField puts a field of a post where it belongs by its key.
func insertField(record []byte, field string) []byte {
	for _, key := range []string{`"embed":`, `"facets":`, `"labels":`, `"langs":`, `"reply":`, `"tags":`, `"text":`} {
		if i := bytes.Index(record, []byte(key)); i >= 0 && key > field {
			return slices.Concat(record[:i], []byte(field+","), record[i:])
		}
	}
	return record
}

// create wraps a record. An rkey of "" becomes a TID of that moment.
func (c *composer) create(t time.Time, did, collection, record, rkey string) []byte {
	// A repository's rev and the record's key are made within milliseconds, by the same clock.
	rev := c.tid(t)
	if rkey == "" {
		made := t.Add(-c.upTo(2 * time.Millisecond))
		rkey = c.tid(made)
		if c.percent(80) {
			rkey = rkey[:11] + rev[11:]
		}
	}
	return fmt.Appendf(nil, `{"did":"%s","time_us":%d,"kind":"commit","commit":{"rev":"%s","operation":"create","collection":"%s","rkey":"%s","record":%s,"cid":"%s"}}`,
		did, c.timeUS(t), rev, collection, rkey, record, c.cid())
}

// ref returns the next real post to refer to; each is used once until all are.
func (c *composer) ref() ref {
	if len(c.refs) == 0 {
		c.refs = c.rng.Perm(len(c.src.refs))
	}
	r := c.src.refs[c.refs[0]]
	c.refs = c.refs[1:]
	return r
}

// recent is ref with a key of the hours before t in its URI: what is liked is mostly new.
func (c *composer) recent(t time.Time) ref {
	age := c.upTo(12 * time.Hour)
	if c.percent(15) {
		age = c.upTo(5000 * time.Hour)
	}
	r := c.ref()
	r.URI = uriTID.ReplaceAllString(r.URI, "/"+c.tid(t.Add(-age)))
	return r
}

func (c *composer) percent(n int) bool                 { return c.rng.IntN(100) < n }
func (c *composer) upTo(d time.Duration) time.Duration { return time.Duration(c.rng.Int64N(int64(d))) }
func (c *composer) timeUS(t time.Time) int64           { return t.Add(c.upTo(time.Second)).UnixMicro() }

func (c *composer) createdAt(t time.Time) string {
	return t.Add(-c.upTo(time.Second)).UTC().Format("2006-01-02T15:04:05.000Z")
}

// Alphabets of CIDs and DIDs, and of TIDs, which sort as the numbers they stand for.
const (
	base32 = "abcdefghijklmnopqrstuvwxyz234567"
	tids   = "234567abcdefghijklmnopqrstuvwxyz"
)

func (c *composer) letters(n int, alphabet string) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[c.rng.IntN(len(alphabet))]
	}
	return string(b)
}

func (c *composer) did() string { return "did:plc:" + c.letters(24, base32) }

// cid returns a random CIDv1 of DAG-CBOR and SHA-256; its last digit has one bit.
func (c *composer) cid() string { return "bafyrei" + c.letters(51, base32) + c.letters(1, "aeimquy4") }

// tid returns the TID of t: 53 bits of microseconds and 10 of a clock ID. Most are made by servers,
// whose clock IDs are small.
func (c *composer) tid(t time.Time) string {
	v := uint64(t.UnixMicro())<<10 | uint64(c.rng.IntN(32))
	var b [13]byte
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = tids[v&31]
		v >>= 5
	}
	return string(b[:])
}
