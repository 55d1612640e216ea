package translate

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"millrace/consume/relaysim"
	"millrace/consume/relaysim/pipenet"
	"millrace/consume/relaysim/testwait"
)

const (
	subjectDID = "did:plc:z72i7hdynmk6r22z27h6tvur"
	subjectURI = "at://did:plc:z72i7hdynmk6r22z27h6tvur/app.bsky.feed.post/3l6oveex3ii2l"
)

// referenceCases are records with one reference at most, and its path.
var referenceCases = []struct {
	name   string
	record cborMap
	path   string // "-": there is no reference
}{
	{"a member", cborMap{{"a", subjectDID}}, "a"},
	{"a member's member", cborMap{{"subject", cborMap{{"cid", "bafyreib"}, {"uri", subjectURI}}}}, "subject.uri"},
	{"two levels", cborMap{{"reply", cborMap{{"root", cborMap{{"uri", subjectURI}}}}}}, "reply.root.uri"},
	{"the record's type adds nothing", cborMap{{"uri", subjectURI}, {"$type", "app.bsky.feed.like"}}, "uri"},
	{"nor does a member's", cborMap{{"embed", cborMap{{"$type", "app.bsky.embed.record"}, {"uri", subjectURI}}}}, "embed.uri"},
	{"an element", cborMap{{"list", []any{"text", 1, subjectDID}}}, "list[]"},
	{"an element's member", cborMap{{"list", []any{cborMap{{"did", subjectDID}}}}}, "list[].did"},
	{"an element of a type", cborMap{{"list", []any{cborMap{{"$type", "a.b#c"}, {"uri", subjectURI}}}}}, "list[a.b#c].uri"},
	{"a type after the reference", cborMap{{"list", []any{cborMap{{"uri", subjectURI}, {"$type", "a.b#c"}}}}}, "list[a.b#c].uri"},
	{"a type far after it", cborMap{{"list", []any{
		cborMap{{"did", []any{cborMap{{"uri", cborMap{{"list", []any{nil, subjectURI}}}}, {"$type", "inner"}}}}, {"x", true}, {"$type", "outer"}}}}},
		"list[outer].did[inner].uri.list[]"},
	{"a type of the first alone", cborMap{{"list", []any{cborMap{{"did", 1}, {"$type", "one"}}, cborMap{{"did", subjectDID}}}}}, "list[].did"},
	{"a type of the second alone", cborMap{{"list", []any{cborMap{{"did", 1}}, cborMap{{"did", subjectDID}, {"$type", "two"}}}}}, "list[two].did"},
	{"a type deeper in the element", cborMap{{"list", []any{cborMap{{"a", cborMap{{"did", subjectDID}, {"$type", "deep"}}}}}}}, "list[].a.did"},
	{"an untyped element around one", cborMap{{"facets", []any{cborMap{{"features", []any{
		cborMap{{"did", subjectDID}, {"$type", "app.bsky.richtext.facet#mention"}}}}}}}}, "facets[].features[app.bsky.richtext.facet#mention].did"},
	{"a typed element around one", cborMap{{"facets", []any{cborMap{{"$type", "app.bsky.richtext.facet"}, {"features", []any{
		cborMap{{"did", subjectDID}, {"$type", "app.bsky.richtext.facet#mention"}}}}}}}},
		"facets[app.bsky.richtext.facet].features[app.bsky.richtext.facet#mention].did"},
	{"arrays in arrays", cborMap{{"a", []any{[]any{1, []any{subjectDID}}}}}, "a[][][]"},
	{"an element of one in another", cborMap{{"a", []any{[]any{cborMap{{"did", subjectDID}, {"$type", "t"}}}}}}, "a[][t].did"},
	{"names as they are", cborMap{{"a.b", cborMap{{"c[]", cborMap{{"ключ", subjectDID}}}}}}, "a.b.c[].ключ"},
	{"no name", cborMap{{"", subjectDID}}, ""},
	{"no name below one", cborMap{{"a", cborMap{{"", []any{cborMap{{"", subjectDID}, {"$type", "t"}}}}}}}, "a.[t]."},
	{"a type that is a DID", cborMap{{"a", []any{cborMap{{"$type", subjectDID}}}}}, "a[" + subjectDID + "].$type"},
	{"a blob's type", cborMap{{"a", []any{cborMap{{"ref", cborLink(cidOf(nil))}, {"size", 1}, {"$type", "blob"}, {"mimeType", subjectDID}}}}}, "a[blob].mimeType"},
	{"a legacy blob", cborMap{{"a", cborMap{{"cid", cborLink(cidOf(nil))}, {"mimeType", subjectDID}}}}, "a.mimeType"},
	{"twice at one place", cborMap{{"a", []any{subjectDID, subjectDID}}}, "a[]"},
	{"a handle's", cborMap{{"a", "at://alice.example.com/app.bsky.feed.post/1"}}, "a"},
	{"an authority alone", cborMap{{"a", "at://alice.example.com"}}, "a"},
	{"a collection alone", cborMap{{"a", "at://" + subjectDID + "/app.bsky.feed.post"}}, "a"},
	{"within a text", cborMap{{"a", "see " + subjectURI}}, "-"},
	{"and more", cborMap{{"a", subjectURI + " "}}, "-"},
	{"a member's name", cborMap{{subjectDID, "a"}}, "-"},
	{"bytes", cborMap{{"a", []byte(subjectDID)}}, "-"},
	{"another URI", cborMap{{"a", "https://example.com/"}}, "-"},
	{"upper case", cborMap{{"a", "AT://alice.example.com"}}, "-"},
	{"a query", cborMap{{"a", "at://alice.example.com?q=z"}}, "-"},
	{"a fragment", cborMap{{"a", subjectURI + "#a"}}, "-"},
	{"a slash at the end", cborMap{{"a", "at://" + subjectDID + "/"}}, "-"},
	{"a DID's service", cborMap{{"a", subjectDID + "#atproto_labeler"}}, "-"},
}

func TestReferencePaths(t *testing.T) {
	tr := newReferenceTranslator(t)
	for _, tc := range referenceCases {
		t.Run(tc.name, func(t *testing.T) {
			record := cborOf(tc.record)
			b := translateRecord(tr, record)
			path := "-"
			if len(b.References) == 1 {
				path = string(b.ReferencePath(0))
			}
			if len(b.Events) != 1 || len(b.References) > 1 || path != tc.path {
				t.Errorf("path %q of %d references in %d events, want %q", path, len(b.References), len(b.Events), tc.path)
			}
			checkRecordReferences(t, tr, record)
			if len(translateRecord(newTranslator(t), record).References) > 0 {
				t.Error("there are references without Config.References")
			}
		})
	}
}

// TestReferenceOrder: references are in the order of the record's bytes, whatever the JSON's is.
func TestReferenceOrder(t *testing.T) {
	b := translateRecord(newReferenceTranslator(t), cborOf(cborMap{
		{"zz", "did:a:1"}, {"b", "did:a:2"}, {"ccc", []any{"did:a:4", "did:a:3"}}, {"aaaa", cborMap{{"y", "did:a:5"}, {"x", "did:a:6"}}}, {"a", "did:a:7"},
		{"l", []any{cborMap{{"did", "did:a:8"}, {"$type", "t"}}, cborMap{{"did", "did:a:9"}}, "did:a:0"}},
	}))
	var got []string
	for i := range b.References {
		got = append(got, string(b.ReferencePath(i))+"="+string(b.Subject(i)))
	}
	want := []string{"zz=did:a:1", "b=did:a:2", "ccc[]=did:a:4", "ccc[]=did:a:3", "aaaa.y=did:a:5", "aaaa.x=did:a:6", "a=did:a:7",
		"l[t].did=did:a:8", "l[].did=did:a:9", "l[]=did:a:0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestTypeAfterReference holds arrays in each other against the walk. Each level's reference has a
// name of 1 to 6 bytes and its element's $type is absent, before it, or after it.
func TestTypeAfterReference(t *testing.T) {
	tr := newReferenceTranslator(t)
	names := []string{"a", "id", "did", "list", "aturi", "target"}
	var nest func(level int, levels []int) cborMap
	nest = func(level int, levels []int) cborMap {
		name := names[levels[level]%len(names)]
		element := cborMap{{name, []any{fmt.Sprintf("did:level:%d", level), subjectDID}}}
		if level+1 < len(levels) {
			element = append(element, pair{name + "s", []any{nest(level+1, levels), nest(level+1, levels)}})
		}
		typed := pair{"$type", fmt.Sprintf("t.%d", level)}
		switch levels[level] / len(names) {
		case 0:
			element = append(element, typed)
		case 1:
			element = append(cborMap{typed}, element...)
		}
		return element
	}
	for i := range 18 * 18 * 3 {
		record := cborOf(cborMap{{"x", []any{nest(0, []int{i % 18, i / 18 % 18, i / 324 * 7})}}})
		checkRecordReferences(t, tr, record)
		if t.Failed() {
			t.Fatalf("record %d: %x", i, record)
		}
	}
}

// TestCorpusReferences holds the references of the captured frames and of the corpus's larger set
// of records against the walk.
func TestCorpusReferences(t *testing.T) {
	tr := newReferenceTranslator(t)
	var b Batch
	commits, references := 0, 0
	check := func(frame []byte) {
		owned := append([]byte(nil), frame...)
		b.Reset()
		tr.AppendFrame(&b, owned)
		for i := range owned { // nothing of the frame may be kept
			owned[i] = 0xee
		}
		checkBatch(t, &b)
		checkReferences(t, &b)
		commits, references = commits+len(b.Events), references+len(b.References)
	}
	for _, frame := range corpusFrames(t) {
		check(frame)
	}
	t.Logf("captured frames: %d references of %d events", references, commits)
	if references < 60 {
		t.Errorf("only %d references of the captured frames", references)
	}
	for _, c := range corpusCommits(t) {
		e := c.event.Commit
		check(frameOf("#commit", commitBody(carOf(blockOf(c.record)), createOp(e.Collection+"/"+e.RKey, c.record))))
	}
	t.Logf("with the larger set: %d references of %d events", references, commits)
}

// TestGeneratedWorldReferences holds the references of a simulated relay's frames against the walk.
func TestGeneratedWorldReferences(t *testing.T) {
	const frames = 4000
	relay, err := relaysim.New(relaysim.Config{Generate: frames, Frames: frames, Accounts: 500, WaitForConsumer: true})
	if err != nil {
		t.Fatal(err)
	}
	network := pipenet.Listen()
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- relay.Serve(ctx, network) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	dialer := websocket.Dialer{NetDialContext: network.Dial}
	conn, response, err := dialer.DialContext(ctx, "ws://relay/xrpc/com.atproto.sync.subscribeRepos", nil)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	defer conn.Close()
	tr := newReferenceTranslator(t)
	sources := make(map[string]int)
	var b Batch
	for range frames {
		_, frame, err := conn.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		b.Reset()
		tr.AppendFrame(&b, frame)
		checkReferences(t, &b)
		for i := range b.References {
			sources[string(b.Collection(int(b.References[i].Event)))+":"+string(b.ReferencePath(i))]++
		}
	}
	for _, source := range []string{"app.bsky.feed.like:subject.uri", "app.bsky.graph.follow:subject", "app.bsky.feed.post:reply.parent.uri",
		"app.bsky.feed.post:facets[].features[app.bsky.richtext.facet#mention].did"} {
		if sources[source] == 0 {
			t.Errorf("no reference of %s among %v", source, sources)
		}
	}
}

// TestReferenceLimits holds each limit at its edge.
func TestReferenceLimits(t *testing.T) {
	tr := newReferenceTranslator(t)
	dids := func(n int) []any {
		list := make([]any, n)
		for i := range list {
			list[i] = fmt.Sprintf("did:a:%d", i)
		}
		return list
	}
	long := strings.Repeat("k", MaxReferencePathBytes)
	for _, tc := range []struct {
		name         string
		record       cborMap
		kept, excess int
	}{
		{"as many as a record may have", cborMap{{"a", dids(MaxReferences)}}, MaxReferences, 0},
		{"one more", cborMap{{"a", dids(MaxReferences + 1)}}, MaxReferences, 1},
		{"repeated ones", cborMap{{"a", append(dids(MaxReferences), dids(MaxReferences)...)}}, MaxReferences, 0},
		{"repeated ones and one more", cborMap{{"a", append(dids(MaxReferences), dids(MaxReferences+1)...)}}, MaxReferences, 1},
		{"elsewhere they are others", cborMap{{"a", dids(MaxReferences)}, {"b", dids(3)}}, MaxReferences, 3},
		{"the longest path", cborMap{{long, subjectDID}}, 1, 0},
		{"a longer path", cborMap{{long + "k", subjectDID}}, 0, 1},
		{"the longest path by a type", cborMap{{"a", []any{cborMap{{"b", subjectDID}, {"$type", long[5:]}}}}}, 1, 0},
		{"a longer path by a type", cborMap{{"a", []any{cborMap{{"b", subjectDID}, {"$type", long[4:]}}}}}, 0, 1},
		{"a shorter path after a longer one", cborMap{{"a", cborMap{{long, subjectDID}, {"b", subjectDID}}}, {"c", subjectDID}}, 2, 1},
		{"long paths do not count among a record's", cborMap{{long + "k", dids(3)}, {"a", dids(MaxReferences)}}, MaxReferences, 3},
	} {
		record := cborOf(tc.record)
		b := translateRecord(tr, record)
		if len(b.Events) != 1 || len(b.References) != tc.kept || b.Counts.ExcessReferences != uint64(tc.excess) {
			t.Errorf("%s: %d references and %d in excess, want %d and %d", tc.name, len(b.References), b.Counts.ExcessReferences, tc.kept, tc.excess)
		}
		checkRecordReferences(t, tr, record)
	}
}

// TestFrameReferenceLimit holds the limit of a frame at its edge, for records of their own and for
// one that many operations name.
func TestFrameReferenceLimit(t *testing.T) {
	tr := newReferenceTranslator(t)
	recordOf := func(name string, n int) []byte {
		list := make([]any, n)
		for i := range list {
			list[i] = fmt.Sprintf("did:%s:%d", name, i)
		}
		return cborOf(cborMap{{"a", list}})
	}
	frame := func(records ...[]byte) []byte {
		var ops []any
		var blocks []carBlock
		for i, record := range records {
			ops = append(ops, createOp(fmt.Sprintf("a.b.c/%d", i), record))
			blocks = append(blocks, blockOf(record))
		}
		return frameOf("#commit", commitBody(carOf(blocks...), ops...))
	}
	full := maxFrameReferences / MaxReferences
	own := make([][]byte, full)
	same := make([][]byte, full)
	for i := range own {
		own[i] = recordOf(string(rune('a'+i)), MaxReferences)
		same[i] = own[0]
	}
	for _, tc := range []struct {
		name   string
		frame  []byte
		kept   int
		excess uint64
	}{
		{"records of their own", frame(own...), maxFrameReferences, 0},
		{"and one reference more", frame(append(own, recordOf("z", 1))...), maxFrameReferences, 1},
		{"the last record in part", frame(append(own[1:], recordOf("z", 100), recordOf("y", 200))...), maxFrameReferences, 44},
		{"one record", frame(same...), maxFrameReferences, 0},
		{"one record once more", frame(append(same, same[0])...), maxFrameReferences, MaxReferences},
		{"one record in part", frame(append(same[1:], recordOf("z", 100), same[0])...), maxFrameReferences, 100},
		{"one record of too many", frame(recordOf("x", MaxReferences+5), recordOf("x", MaxReferences+5)), 2 * MaxReferences, 10},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b Batch
			tr.AppendFrame(&b, tc.frame)
			if len(b.References) != tc.kept || b.Counts.ExcessReferences != tc.excess {
				t.Errorf("%d references and %d in excess, want %d and %d", len(b.References), b.Counts.ExcessReferences, tc.kept, tc.excess)
			}
			checkReferences(t, &b)
			// The next frame has its own limit.
			tr.AppendFrame(&b, tc.frame)
			if len(b.References) != 2*tc.kept || b.Counts.ExcessReferences != 2*tc.excess {
				t.Errorf("two frames: %d references and %d in excess", len(b.References), b.Counts.ExcessReferences)
			}
			if last := b.References[len(b.References)-1].Event; tc.excess == 0 && int(last) != len(b.Events)-1 {
				t.Errorf("the last reference is of event %d of %d", last, len(b.Events))
			}
		})
	}
}

// TestDroppedReferences: an operation or a frame that is dropped leaves no reference and no count.
func TestDroppedReferences(t *testing.T) {
	tr := newReferenceTranslator(t)
	list := make([]any, MaxReferences+9)
	for i := range list {
		list[i] = fmt.Sprintf("did:a:%d", i)
	}
	good := cborOf(cborMap{{"a", subjectDID}})
	bad := cborOf(cborMap{{"a", list}, {"b", 1.5}})
	escaped := cborOf(cborMap{{"a", list}, {"b", strings.Repeat("<", maxRecordBytes/2)}})
	ops := []any{createOp("a.b.c/1", good), createOp("a.b.c/2", bad), deleteOp("a.b.c/3"), createOp("a.b.c/4", good), createOp("a.b.c/5", bad)}
	var b Batch
	tr.AppendFrame(&b, frameOf("#commit", commitBody(carOf(blockOf(good), blockOf(bad)), ops...)))
	want := []reference{{0, "a", subjectDID, subjectDID, false}, {2, "a", subjectDID, subjectDID, false}}
	check := func() {
		t.Helper()
		if diff := cmp.Diff(want, referencesOf(&b)); diff != "" || b.Counts.ExcessReferences != 0 {
			t.Errorf("%d in excess; references (-want +got):\n%s", b.Counts.ExcessReferences, diff)
		}
	}
	check()
	ops = []any{createOp("a.b.c/1", good)}
	for range 9 {
		ops = append(ops, createOp("a.b.c/2", escaped))
	}
	tr.AppendFrame(&b, frameOf("#commit", commitBody(carOf(blockOf(good), blockOf(escaped)), ops...)))
	if b.Counts.Drops[ReasonTooLarge] != 1 {
		t.Fatalf("drops %v", dropsOf(&b.Counts))
	}
	check()
	tr.AppendFrame(&b, frameOf("#commit", commitBody(carOf(blockOf(good)), createOp("a.b.c/1", good))))
	want = append(want, reference{3, "a", subjectDID, subjectDID, false})
	check()
}

// TestBatchRelease: a batch counts its references among its bytes, and lets go of their memory.
func TestBatchRelease(t *testing.T) {
	b := translateRecord(newReferenceTranslator(t), cborOf(cborMap{{"a", subjectDID}, {"b", []any{subjectURI}}}))
	text := len("a" + subjectDID + "b[]" + subjectURI)
	if got, want := b.Bytes(), len(b.JSON)+text+2*referenceBytes; got != want {
		t.Errorf("the batch has %d bytes, want %d", got, want)
	}
	b.Release(1 << 20)
	if b.JSON == nil || b.References == nil || b.refText == nil {
		t.Error("a small batch was released")
	}
	b.Release(cap(b.refText) + cap(b.References)*referenceBytes - 1)
	if b.References != nil || b.refText != nil {
		t.Error("the references are kept")
	}
	b.Release(0)
	if b.JSON != nil {
		t.Error("the JSON is kept")
	}
}

// FuzzReferences holds the references of records against the walk.
func FuzzReferences(f *testing.F) {
	for _, tc := range referenceCases {
		f.Add(cborOf(tc.record))
	}
	for _, record := range append(recordSeeds(), corpusRecords(f)...) {
		f.Add(record)
	}
	tr := newReferenceTranslator(f)
	f.Fuzz(func(t *testing.T, record []byte) {
		if len(record) <= maxFuzzBytes {
			checkRecordReferences(t, tr, record)
		}
	})
}

// TestGeneratedReferences holds generated records with references against the walk. It prints its
// seed.
func TestGeneratedReferences(t *testing.T) {
	if testwait.Race {
		t.Skip("one goroutine that computes much: the race detector finds nothing")
	}
	seed := rand.Uint64()
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), refers: true}
	tr := newReferenceTranslator(t)
	references := 0
	for i := range 3000 {
		g.wild = i%3 == 2
		record := cborOf(g.object(6))
		checkRecordReferences(t, tr, record)
		references += len(translateRecord(tr, record).References)
		if t.Failed() {
			t.Fatalf("seed %d, record %d: %s", seed, i, hex.EncodeToString(record))
		}
	}
	if references < 3000 {
		t.Errorf("seed %d: only %d references", seed, references)
	}
}

// TestHostileReferences holds that records made to cost much are over in bounded time, that look
// ahead included, and that the memory is not kept. The limit is for slow machines.
func TestHostileReferences(t *testing.T) {
	if testwait.Race {
		t.Skip("one goroutine that computes much: the race detector finds nothing")
	}
	const spare = 4096
	many := func(n int, elements ...any) cborRaw { // as many elements as come to n bytes
		var items []byte
		for _, e := range elements {
			items = append(items, cborOf(e)...)
		}
		times := n / len(items)
		count := times * len(elements)
		return append(cborRaw{0x9a, byte(count >> 24), byte(count >> 16), byte(count >> 8), byte(count)}, bytes.Repeat(items, times)...)
	}
	// Each level's element has a reference first, then what is nested, then its $type.
	nested := cborMap{{"a", "did:a:b"}, {"b", many(maxRecordBytes-spare, "text of ten")}, {"$type", "t"}}
	for range maxDepth/2 - 2 {
		nested = cborMap{{"a", "did:a:b"}, {"b", []any{cborRaw(cborOf(nested))}}, {"$type", "t"}}
	}
	long := any(many(20_000, "did:a:b"))
	for range 40 {
		long = cborMap{{strings.Repeat("k", maxKeyBytes), long}}
	}
	element := cborMap{{"a", "did:a:b"}, {"$type", "t"}}
	var dids []any
	for i := range MaxReferences {
		dids = append(dids, fmt.Sprintf("did:a:%04d", i))
	}
	tr := newReferenceTranslator(t)
	for name, record := range map[string]cborMap{
		"types after what is nested":       {{"x", []any{nested}}},
		"references at each place":         {{"x", many(maxRecordBytes/2, "did:a:b")}, {"y", many(maxRecordBytes/2-spare, "did:a:c")}},
		"references again and again":       {{"x", many(maxRecordBytes-spare, dids...)}},
		"elements of a type":               {{"x", many(maxRecordBytes-spare, element)}},
		"elements of a type in an element": {{"x", []any{cborMap{{"b", many(maxRecordBytes-spare, element)}}}}},
		"references below long names":      {{"x", long}},
		"empty elements":                   {{"x", []any{cborMap{{"a", "did:a:b"}, {"b", many(maxContainerLen, cborMap{})}}}}},
	} {
		rec := cborOf(record)
		took := time.Duration(math.MaxInt64)
		var b *Batch
		for try := 0; try < 3 && took > 5*time.Second; try++ { // again if the machine did something else
			start := time.Now()
			b = translateRecord(tr, rec)
			took = min(took, time.Since(start))
		}
		t.Logf("%s: %d bytes took %v, %d references, %d in excess", name, len(rec), took, len(b.References), b.Counts.ExcessReferences)
		if took > 5*time.Second || len(b.Events) != 1 {
			t.Errorf("%s: %d events took %v", name, len(b.Events), took)
		}
		checkReferences(t, b)
		if r := &tr.record.refs; cap(r.types) > maxKeptEntries || cap(r.path) > maxKeptScratch || r.batch != nil {
			t.Errorf("%s: %d types and %d bytes of a path are kept", name, cap(r.types), cap(r.path))
		}
	}
}
