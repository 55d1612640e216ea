package format

import (
	"fmt"
	"math/rand/v2"

	"millrace/translate"
)

// testEvent is an Event with strings.
type testEvent struct {
	Place
	timeUS     int64
	kind       translate.Kind
	operation  translate.Operation
	collection string
	did        string
	didUID     uint64
	uriUID     uint64
	payload    string
	refs       []Reference
	repeated   bool
	unverified uint8
}

func (e testEvent) event() Event {
	return Event{Place: e.Place, TimeUS: e.timeUS, Kind: e.kind, Operation: e.operation,
		Collection: []byte(e.collection), DID: []byte(e.did), DIDUID: e.didUID, URIUID: e.uriUID,
		Payload: []byte(e.payload), References: e.refs, Repeated: e.repeated, Unverified: e.unverified}
}

func testDID(n int) string { return fmt.Sprintf("did:plc:%024d", n) }

// randomEvent makes one event, with a payload from tiny to, rarely, over 64 KiB.
func randomEvent(rng *rand.Rand, p Place, timeUS int64) testEvent {
	collections := []string{"app.bsky.feed.like", "app.bsky.feed.post", "app.bsky.graph.follow", "com.example.thing"}
	e := testEvent{Place: p, timeUS: timeUS, did: testDID(rng.IntN(30))}
	if rng.IntN(4) > 0 {
		e.didUID = rng.Uint64() >> rng.IntN(60)
	}
	switch rng.IntN(10) {
	case 0:
		e.kind = translate.KindIdentity
	case 1:
		e.kind = translate.KindAccount
	case 2:
		e.kind = translate.KindSync
	default:
		e.kind = translate.KindCommit
		e.operation = translate.Operation(1 + rng.IntN(3))
		e.collection = collections[rng.IntN(len(collections))]
		if e.didUID != 0 {
			e.uriUID = rng.Uint64() | 1
		}
	}
	if rng.IntN(8) == 0 && CopiedKinds&(1<<e.kind) == 0 {
		e.unverified = uint8(1 + rng.IntN(19))
	}
	size := rng.IntN(400)
	if rng.IntN(60) == 0 {
		size = 2_000 + rng.IntN(90_000)
	}
	text := make([]byte, size)
	for i := range text {
		text[i] = "abcdefghijklmnop"[rng.IntN(16)]
	}
	e.payload = fmt.Sprintf(`{"did":"%s","time_us":%d,"x":"%s"}`, e.did, timeUS, text)
	return e
}
