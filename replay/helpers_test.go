package replay

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/dict"
	"millrace/replay/internal/format"
	"millrace/translate"
	"millrace/translate/verify"
)

const testRelay = "relay.example.com"

// testStart is where the tests' clock begins.
var testStart = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// testClock is both clocks of a log under test.
type testClock struct {
	wall time.Time
	mono time.Duration
}

func newTestClock() *testClock { return &testClock{wall: testStart} }

func (c *testClock) now() time.Time           { return c.wall }
func (c *testClock) monotonic() time.Duration { return c.mono }
func (c *testClock) advance(d time.Duration)  { c.wall, c.mono = c.wall.Add(d), c.mono+d }
func (c *testClock) step(d time.Duration)     { c.wall = c.wall.Add(d) }
func (c *testClock) us() int64                { return c.wall.UnixMicro() }

// testRegistry has the built-in dictionary stored, and a second one.
func testRegistry(t testing.TB) *dict.Registry {
	t.Helper()
	r, err := dict.NewRegistry(dict.BuiltIn(), otherDictionary(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// otherDictionary is the built-in one under another ID.
func otherDictionary(t testing.TB) *dict.Dictionary {
	t.Helper()
	raw := bytes.Clone(dict.BuiltIn().Bytes())
	binary.LittleEndian.PutUint32(raw[4:], otherDictionaryID)
	d, err := dict.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

const otherDictionaryID = 77_777

func testConfig(t testing.TB, fs vfs.FS, c *testClock) Config {
	t.Helper()
	_, test := t.(*testing.T)
	return Config{
		Dir: "log", FS: fs, Relay: testRelay, UIDStore: "store-1",
		Retention: 36 * time.Hour, TailBytes: 64 << 10, CacheBytes: 256 << 10, PebbleBytes: 8 << 20,
		Strings: testStrings, Dictionaries: testRegistry(t), hooks: testHooks{scribble: test, keepSmall: true}, Now: c.now, Monotonic: c.monotonic,
	}
}

func mustOpen(t testing.TB, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// openedParts notes which parts of blocks are opened.
type openedParts struct {
	mu    sync.Mutex
	parts map[int64]map[format.Range]bool
}

// noteParts has the parts noted that the log of cfg opens.
func noteParts(cfg *Config) *openedParts {
	o := &openedParts{parts: make(map[int64]map[format.Range]bool)}
	cfg.hooks.openPart = func(r format.Range, key int64) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.parts[key] == nil {
			o.parts[key] = make(map[format.Range]bool)
		}
		o.parts[key][r] = true
	}
	return o
}

// of returns the ranges of a block's parts that were opened.
func (o *openedParts) of(key int64) []format.Range {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Keys(o.parts[key]))
}

// forget begins anew.
func (o *openedParts) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.parts)
}

// mustRead makes a reader that is closed when the test ends.
func mustRead(t testing.TB, l *Log, cfg ReaderConfig) *Reader {
	t.Helper()
	r, err := l.NewReader(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// testEvent is an event as the tests know it: what a reader must give for it is computed anew from
// this, not from a block.
type testEvent struct {
	format.Place
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
	unverified verify.Reason
}

// testBlock is a block's input as the tests know it.
type testBlock struct {
	epoch    uint32
	firstSeq int64
	lastSeq  int64
	gap      *Gap
	events   []testEvent
}

// seal makes the block that Log.Seal would, without a translate.Batch.
func (b testBlock) seal(t testing.TB, l *Log) *Block {
	t.Helper()
	out := &Block{epoch: b.epoch, firstSeq: b.firstSeq, lastSeq: b.lastSeq, gap: b.gap}
	if len(b.events) == 0 {
		return out
	}
	s := format.NewSealer(b.epoch, l.stored.encoder, l.stored.ID(), len(b.events), 100)
	for _, e := range b.events {
		e.refs = numbered(t, l, e.collection, e.refs)
		if err := s.Add(e.event()); err != nil {
			t.Fatal(err)
		}
	}
	sealed, err := s.Finish(b.firstSeq, b.lastSeq, l.cfg.hooks.substreamsBytes)
	if err != nil {
		t.Fatal(err)
	}
	out.take(sealed)
	return out
}

func (e testEvent) event() format.Event {
	return format.Event{Place: e.Place, TimeUS: e.timeUS, Kind: e.kind, Operation: e.operation,
		Collection: []byte(e.collection), DID: []byte(e.did), DIDUID: e.didUID, URIUID: e.uriUID,
		Payload: []byte(e.payload), References: e.refs, Repeated: e.repeated, Unverified: uint8(e.unverified)}
}

// json returns what a subscriber gets for e.
func (e testEvent) json(extended bool) string {
	if !extended {
		return e.payload
	}
	s := strings.TrimSuffix(e.payload, "}")
	s += fmt.Sprintf(`,"cursor":"%s-%d-%d"`, StreamOf(testRelay, e.Epoch), e.Seq, e.Op)
	switch {
	case e.didUID != 0 && e.uriUID != 0:
		s += fmt.Sprintf(`,"uids":{"did":"%d","uri":"%d"}`, e.didUID, e.uriUID)
	case e.didUID != 0:
		s += fmt.Sprintf(`,"uids":{"did":"%d"}`, e.didUID)
	}
	if e.unverified != verify.Valid {
		s += fmt.Sprintf(`,"unverified":"%s"`, e.unverified)
	}
	return s + "}"
}

var testCollections = []string{
	"app.bsky.feed.like", "app.bsky.feed.post", "app.bsky.graph.follow", "app.bsky.feed.repost",
	"com.example.thing", "app.bsky.feedback",
}

func testDID(n int) string { return fmt.Sprintf("did:plc:%024d", n) }

// randomEvent makes one event; its payload is JSON, of a size from tiny to, rarely, over 64 KiB.
func randomEvent(rng *rand.Rand, p format.Place, timeUS int64) testEvent {
	e := testEvent{Place: p, timeUS: timeUS, did: testDID(rng.IntN(30))}
	if rng.IntN(4) > 0 {
		e.didUID = rng.Uint64() >> rng.IntN(60)
	}
	kind := "commit"
	switch k := rng.IntN(40); {
	case k < 4:
		e.kind, kind = translate.KindIdentity, "identity"
	case k < 8:
		e.kind, kind = translate.KindAccount, "account"
	case k == 8: // seldom: many blocks have none
		e.kind, kind = translate.KindSync, "sync"
	default:
		e.kind = translate.KindCommit
		e.operation = translate.Operation(1 + rng.IntN(3))
		e.collection = testCollections[rng.IntN(len(testCollections))]
		if e.didUID != 0 {
			e.uriUID = rng.Uint64() | 1
		}
	}
	if e.kind == translate.KindCommit {
		e.refs, e.repeated = randomReferences(rand.New(rand.NewPCG(uint64(timeUS), uint64(p.Seq))), e.operation)
	}
	if signed := e.kind == translate.KindCommit || e.kind == translate.KindSync; signed && uint64(timeUS)%16 == 0 {
		e.unverified = 1 + verify.Reason(uint64(p.Seq)%uint64(verify.NumReasons-1))
	}
	size := rng.IntN(400)
	switch rng.IntN(60) {
	case 0:
		size = 0
	case 1:
		size = 2_000 + rng.IntN(90_000)
	}
	text := make([]byte, size)
	for i := range text {
		text[i] = "abcdefghijklmnop"[rng.IntN(16)]
	}
	e.payload = fmt.Sprintf(`{"did":"%s","time_us":%d,"kind":"%s",%s}`, e.did, timeUS, kind, e.rest(string(text)))
	return e
}

// rest makes what v1's JSON has after the kind, with a text anywhere in it.
func (e testEvent) rest(text string) string {
	switch {
	case e.kind == translate.KindIdentity:
		return fmt.Sprintf(`"identity":{"did":"%s","handle":"%s","seq":%d}`, e.did, text, e.Seq)
	case e.kind == translate.KindAccount:
		return fmt.Sprintf(`"account":{"active":false,"did":"%s","status":"%s"}`, e.did, text)
	case e.kind == translate.KindSync:
		return fmt.Sprintf(`"sync":{"blocks":{"$bytes":"%s"},"did":"%s","rev":"r","seq":%d}`, text, e.did, e.Seq)
	case e.operation == translate.OpDelete:
		return fmt.Sprintf(`"commit":{"rev":"r","operation":"delete","collection":"%s","rkey":"%s"}`, e.collection, text)
	}
	return fmt.Sprintf(`"commit":{"rev":"r","operation":"%s","collection":"%s","rkey":"k","record":{"x":"%s"},"cid":"c"}`, e.operation, e.collection, text)
}

// v2JSON returns what a subscriber of v2's wire gets for e, whose seq there is given, with its
// references or without.
func (e testEvent) v2JSON(t testing.TB, seq int64, references bool) string {
	t.Helper()
	var v1, payload map[string]any
	d := json.NewDecoder(strings.NewReader(e.payload))
	d.UseNumber()
	if err := d.Decode(&v1); err != nil {
		t.Fatal(err)
	}
	payload = map[string]any{e.kind.String(): v1[e.kind.String()]}
	if e.kind == translate.KindCommit {
		payload = v1["commit"].(map[string]any)
	}
	payload["$type"] = "network.bsky.jetstream.subscribeEvents#" + e.kind.String()
	payload["did"], payload["seq"] = e.did, seq
	payload["time"] = time.UnixMicro(e.timeUS).UTC().Format("2006-01-02T15:04:05.000000Z")
	if references {
		var members map[string]any
		if err := json.Unmarshal([]byte("{"+strings.TrimPrefix(referencesJSON(&e), ",")+"}"), &members); err != nil {
			t.Fatal(err)
		}
		maps.Copy(payload, members)
	}
	b, err := json.Marshal(map[string]any{"$type": "message", "payload": payload})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// parseFrames takes apart what a reader gave, as a websocket client would.
func parseFrames(t testing.TB, c *Chunk, opcode byte) (payloads [][]byte) {
	t.Helper()
	total := 0
	for _, b := range c.Frames {
		total += len(b)
		for len(b) > 0 {
			if len(b) < 2 || b[0] != opcode {
				t.Fatalf("frame begins with % x", b[:min(len(b), 4)])
			}
			n, h := int(b[1]), 2
			switch n {
			case 126:
				n, h = int(binary.BigEndian.Uint16(b[2:])), 4
				if n < 126 {
					t.Fatalf("length %d in two bytes", n)
				}
			case 127:
				n, h = int(binary.BigEndian.Uint64(b[2:])), 10
				if n < 1<<16 {
					t.Fatalf("length %d in eight bytes", n)
				}
			}
			if len(b) < h+n {
				t.Fatalf("frame of %d bytes is cut at %d", h+n, len(b))
			}
			payloads = append(payloads, b[h:h+n])
			b = b[h+n:]
		}
	}
	if total != c.Bytes || len(payloads) != c.Events {
		t.Fatalf("chunk says %d bytes, %d events; has %d, %d", c.Bytes, c.Events, total, len(payloads))
	}
	return payloads
}
