package main

import (
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"millrace/consume/relaysim"
	"millrace/intern"
)

// traffic makes the DIDs, collections and record keys of new records as a relay's stream has them.
// Most are likes, few DIDs are busy, and the keys are TIDs close to now. Safe for concurrent use.
type traffic struct {
	mu      sync.Mutex
	rng     *rand.Rand
	now     uint64 // Unix microseconds, of a clock that advances 1/1500 s a record
	made    uint64
	batches int
}

// The stream that is imitated.
const (
	trafficSeed   = 1
	urisPerDID    = 20               // in the end
	recordMicros  = 1_000_000 / 1500 // between two records
	lateMicros    = 1e6              // mean of how late a record comes, exponentially distributed
	trafficStart  = 1_783_000_000_000_000
	leastDIDs     = 1000
	tidCharacters = 13
)

// collectionOf returns the collection of a record by a random percentage.
func collectionOf(percent int) string {
	switch {
	case percent < 66:
		return "app.bsky.feed.like"
	case percent < 79:
		return "app.bsky.feed.post"
	case percent < 90:
		return "app.bsky.feed.repost"
	case percent < 99:
		return "app.bsky.graph.follow"
	}
	return "app.bsky.graph.block"
}

func newTraffic() *traffic {
	return &traffic{rng: rand.New(rand.NewPCG(trafficSeed, 7)), now: trafficStart}
}

// batch holds requests, the bytes they point to, and its number in the traffic.
type batch struct {
	number int
	reqs   []intern.Request
	out    []intern.Result
	buffer []byte
}

func newBatch(n int) *batch {
	return &batch{reqs: make([]intern.Request, n), out: make([]intern.Result, n)}
}

// next fills b with records that were never made before.
func (t *traffic) next(b *batch) {
	type record struct {
		did, tid uint64
		percent  int
	}
	records := make([]record, len(b.reqs))
	t.mu.Lock()
	b.number = t.batches
	t.batches++
	for i := range records {
		t.made++
		t.now += recordMicros
		at := t.now - uint64(t.rng.ExpFloat64()*lateMicros)
		z := t.rng.Float64()
		population := max(leastDIDs, t.made/urisPerDID)
		records[i] = record{did: uint64(z * z * float64(population)), tid: at<<10 | t.rng.Uint64N(1024), percent: t.rng.IntN(100)}
	}
	t.mu.Unlock()
	b.buffer = b.buffer[:0]
	for i, r := range records {
		from := len(b.buffer)
		b.buffer = appendDID(b.buffer, r.did)
		mid := len(b.buffer)
		b.buffer = append(b.buffer, syntax.NewTIDFromInteger(r.tid)...)
		b.reqs[i] = intern.Request{DID: b.buffer[from:mid:mid], Collection: []byte(collectionOf(r.percent)),
			RecordKey: b.buffer[mid:len(b.buffer):len(b.buffer)]}
	}
}

// appendDID appends the did:plc of a number.
func appendDID(dst []byte, n uint64) []byte { return relaysim.AppendDID(dst, trafficSeed, n) }

// uri returns the AT URI of a request.
func uri(r *intern.Request) []byte {
	return slices.Concat([]byte("at://"), r.DID, []byte{'/'}, r.Collection, []byte{'/'}, r.RecordKey)
}
