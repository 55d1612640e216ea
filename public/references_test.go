package public

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"millrace/consume/relaysim/cbor"
	"millrace/intern"
	"millrace/public/internal/testframe"
	"millrace/replay"
)

// wantReferences reads exactly these events, in the form that the subscriber asked for.
func (c *client) wantReferences(extended, references bool, events ...referenceTruth) {
	c.t.Helper()
	for i := range events {
		want := events[i].json
		if extended {
			want = events[i].extended(c.t, references)
		}
		if _, got := c.next(); string(got) != want {
			c.t.Fatalf("event %d of %d is\n%s\nwant\n%s", i, len(events), got, want)
		}
	}
}

func op(action, path string, record cbor.Map) testframe.Op {
	return testframe.Op{Action: action, Path: path, Record: record}
}

func like(uri string) cbor.Map {
	return cbor.Map{{Key: "subject", Value: cbor.Map{{Key: "uri", Value: uri}}}}
}

func post(reply, mention string) cbor.Map {
	return cbor.Map{
		{Key: "<text>", Value: mention}, {Key: "root", Value: "at://root.example.com/a.b.c/1"},
		{Key: "reply", Value: cbor.Map{{Key: "uri", Value: reply}}},
	}
}

// postURI is the AT URI of a post of account n.
func postURI(n int) string { return fmt.Sprintf("at://%s/app.bsky.feed.post/%d", didN(n), n) }

// fewReferences is a log with a like, its update and its delete, and other events.
func fewReferences(t *testing.T) *referenceLog {
	t.Helper()
	l := newReferenceLog(t)
	l.add(
		testframe.Ops(didN(1), op("create", "app.bsky.feed.like/1", like(postURI(8)))), // 0
		testframe.Ops(didN(2), op("create", "app.bsky.feed.post/1", post(postURI(8), "x")), // 1
			op("create", "app.bsky.feed.post/2", post(postURI(9), didN(7)))), // 2
		identity(didN(1)), // 3
	)
	l.add(
		testframe.Ops(didN(2), op("update", "app.bsky.feed.post/2", post(postURI(9), didN(6)))),                     // 4
		testframe.Ops(didN(1), op("delete", "app.bsky.feed.like/1", nil)),                                           // 5
		create(didN(3), "app.bsky.feed.post", "1", "of nothing"),                                                    // 6
		testframe.Ops(didN(1), op("create", "app.bsky.graph.follow/1", cbor.Map{{Key: "subject", Value: didN(8)}})), // 7
	)
	return l
}

func pickReferences(events []referenceTruth, indices ...int) (picked []referenceTruth) {
	for _, i := range indices {
		picked = append(picked, events[i])
	}
	return picked
}

func TestReferencesOfEvents(t *testing.T) {
	l := fewReferences(t)
	s := serve(t, l.testLog, l.config)
	c := s.dial("cursor=0&extended=true&references=true")
	c.wantReferences(true, true, l.all...)
	c.info("live")
	c.wantReferences(true, true, l.add(testframe.Ops(didN(2), op("delete", "app.bsky.feed.post/2", nil)))...)
	if gone := l.all[4]; len(gone.had) != 3 || !strings.Contains(gone.extended(t, true), `"deleted_references":[{"source":"app.bsky.feed.post:\u003ctext\u003e"`) {
		t.Errorf("the update is %s", gone.extended(t, true))
	}
	s.dial("cursor=0&extended=true").wantReferences(true, false, l.all...)
	s.dial("cursor=0").wantReferences(false, false, l.all...)
	c = s.dial("cursor=0&extended=true&references=true&compress=true")
	for _, e := range l.all {
		if _, p := c.next(); decode(t, jetstreams(t), p) != e.extended(t, true) {
			t.Fatalf("compressed: %s", decode(t, jetstreams(t), p))
		}
	}
	if got := s.metric("subscribers", "references"); got != 1 {
		t.Errorf("%v subscribers of references", got)
	}
	s.want400("references=true", "needs extended=true")
	s.want400("references=yes&extended=true", "references")
}

func TestWantedSubjects(t *testing.T) {
	l := fewReferences(t)
	s := serve(t, l.testLog, l.config)
	for query, want := range map[string][]int{
		"wantedSubjects=" + postURI(8):                                                       {0, 1, 3, 5},
		"wantedSubjects=" + didN(8):                                                          {3, 7},
		"wantedSubjectDids=" + didN(8):                                                       {0, 1, 3, 5, 7},
		"wantedSubjects=" + didN(8) + "&wantedSubjectDids=" + didN(9):                        {2, 3, 4, 7},
		"wantedSubjects=" + didN(7):                                                          {2, 3, 4},
		"wantedSubjects=at://root.example.com/a.b.c/1&wantedDids=" + didN(2):                 {1, 2, 4},
		"wantedSubjects=at://root.example.com":                                               {3},
		"wantedSources=app.bsky.feed.like:subject.uri":                                       {0, 3, 5},
		"wantedSources=app.bsky.feed.like:subject.uri&wantedSources=app.bsky.feed.post:none": {0, 3, 5},
		"wantedSources=app.bsky.feed.post:reply.uri&wantedSubjectDids=" + didN(8):            {1, 3},
		"wantedSources=app.bsky.feed.post:%3Ctext%3E&wantedSubjects=" + postURI(9):           {3},
		"wantedSources=app.bsky.feed.like:subject&wantedKinds=commit,account":                {},
		"wantedSubjectDids=" + didN(8) + "&wantedCollections=app.bsky.graph.*":               {3, 7},
		"wantedSubjects=&wantedSubjectDids=&wantedSources=":                                  {0, 1, 2, 3, 4, 5, 6, 7},
		"wantedSubjects=" + didN(99) + "&wantedSubjectDids=did:web:never.test":               {3},
		"wantedSubjectDids=" + didN(8) + "&wantedKinds=commit&extended=true&references=true": {0, 1, 5, 7},
	} {
		t.Run(query, func(t *testing.T) {
			c := s.dial("cursor=0&" + query)
			extended := strings.Contains(query, "extended")
			c.t = t
			c.wantReferences(extended, extended, pickReferences(l.all, want...)...)
			c.Close()
		})
	}
	eventually(t, "no string waits", func() bool { return l.waiting() == 0 })
}

func TestWantedSubjectsAreChecked(t *testing.T) {
	l := fewReferences(t)
	s := serve(t, l.testLog, l.config)
	for query, words := range map[string]string{
		"wantedSubjects=alice.test":                            `invalid subject: "alice.test"`,
		"wantedSubjects=" + escape("at://"+didN(1)+"/a b/c"):   "invalid subject",
		"wantedSubjectDids=" + escape(postURI(1)):              "invalid subject DID",
		"wantedSources=app.bsky.feed.like":                     `invalid source: "app.bsky.feed.like" is not <collection>:<path>`,
		"wantedSources=app.bsky.feed.like:":                    "invalid source",
		"wantedSources=app.bsky.feed.like:.subject.uri":        "invalid source",
		"wantedSources=like:subject.uri":                       "invalid source",
		"wantedSources=a.b.c:" + strings.Repeat("x", 513):      "invalid source",
		manySources(101):                                       "too many wanted sources: at most 100",
		"wantedSubjectDids=" + manyDIDs("wantedSubjectDids"):   "too many wanted subject DIDs: at most 10000",
		"wantedSubjects=did:web:x.test&references=true":        "extended",
		"wantedSubjects=" + escape("at://xn--.test/a.b.c/d#e"): "invalid subject",
	} {
		s.want400(query, words)
	}
	s.dial(manySources(100))
	off := serve(t, newTestLog(t), l.config)
	for _, query := range []string{"references=true&extended=true", "wantedSubjects=" + didN(1), "wantedSubjectDids=" + didN(1), "wantedSources=a.b.c:d"} {
		off.want400(query, "--references=on")
	}
	off.dial("references=false")
	c := off.dial("")
	c.update(`{"wantedSources":["a.b.c:d"]}`)
	c.wantClose(1000, "--references=on")
	c = s.dial("")
	c.update(`{"wantedSubjects":["a.b.c"]}`)
	c.wantClose(1000, `invalid subject: "a.b.c"`)
	down := serve(t, l.testLog, func(cfg *Config, _ *timing) { l.config(cfg, nil); cfg.UIDs = downUIDs{} })
	if resp, body := down.refused("wantedSubjects="+didN(1), nil); resp.StatusCode != 503 || !strings.Contains(body, "UID store") {
		t.Errorf("without UID store: %s %s", resp.Status, body)
	}
	c = down.dial("extended=true&wantedKinds=identity")
	c.update(`{"wantedSubjects":["` + didN(1) + `"]}`)
	c.wantClose(1013, "UID store")
}

func manySources(n int) string {
	q := url.Values{}
	for i := range n {
		q.Add("wantedSources", fmt.Sprintf("a.b.c:x%d", i))
	}
	return q.Encode()
}

func manyDIDs(name string) string {
	var q []string
	for i := range maxWantedDIDs + 1 {
		q = append(q, didN(i))
	}
	return strings.Join(q, "&"+name+"=")
}

// TestSubjectFilterMemory: strings that wait count against the budget, and are given back.
func TestSubjectFilterMemory(t *testing.T) {
	l := newReferenceLog(t)
	s := serve(t, l.testLog, func(cfg *Config, tm *timing) { l.config(cfg, tm); cfg.ClientBytes = 100_000 })
	long := "at://did:web:never.test/a.b.c/" + strings.Repeat("x", 200)
	var few, many []string
	for i := range 300 {
		many = append(many, fmt.Sprintf(`"%s%d"`, long, i))
	}
	few = many[:60]
	c := s.dial("extended=true")
	var alone int64 // what the first filter takes
	for i := range 3 {
		c.update(`{"wantedSubjects":[` + strings.Join(few[i:], ",") + `],"wantedSubjectDids":["did:web:never.test"]}`)
		s.waitUpdates(i + 1)
		if i == 0 {
			alone = s.admission.Stats().Bytes
		}
		// A filter is in force before that which it replaces is given back, and three have no room.
		eventually(t, "the last filter alone is counted", func() bool {
			return l.waiting() == float64(61-i) && s.admission.Stats().Bytes <= alone
		})
	}
	if n := s.admission.Stats().Bytes; n < 57*(200+intern.WaitingBytes) {
		t.Errorf("%d bytes are counted while 59 strings wait", n)
	}
	c.info("live")
	c.update(`{"wantedSubjects":[` + strings.Join(many[:120], ",") + `]}`) // alone they would have room
	c.wantClose(1013, "no memory left for the filter")
	eventually(t, "no string waits", func() bool { return l.waiting() == 0 && s.admission.Stats().Bytes == 0 })
}

// TestSubjectThatComesLater: a subscriber at the end of the log, that waits for an unknown subject
// and source, gets the first event that has them.
func TestSubjectThatComesLater(t *testing.T) {
	l := fewReferences(t)
	s := serve(t, l.testLog, l.config)
	subject := s.dial("wantedSubjects=" + postURI(50))
	did := s.dial("wantedSubjectDids=" + didN(50))
	source := s.dial("wantedSources=com.example.new:of")
	hello := s.dial("requireHello=true")
	hello.update(`{"wantedSubjects":["` + postURI(50) + `"],"wantedSubjectDids":["` + didN(51) + `"]}`)
	s.waitUpdates(1)
	s.waitIdle(4)
	added := l.add(
		testframe.Ops(didN(1), op("create", "app.bsky.feed.like/2", like(postURI(51)))),
		testframe.Ops(didN(1), op("create", "app.bsky.feed.like/3", like(postURI(50)))),
		testframe.Ops(didN(1), op("create", "com.example.new/1", cbor.Map{{Key: "of", Value: didN(50)}})),
	)
	subject.wantReferences(false, false, added[1])
	did.wantReferences(false, false, added[1:]...)
	source.wantReferences(false, false, added[2])
	hello.wantReferences(false, false, added[:2]...)
}

// serveLateReferences serves the log of fewReferences as one whose references begin at the fourth
// event.
func serveLateReferences(t *testing.T) (*referenceLog, referenceTruth, *testServer) {
	t.Helper()
	l := fewReferences(t)
	begin := l.all[3]
	src := eventLogOf(l.Log)
	src.rangeOf = func() replay.Range {
		rng := l.Range()
		rng.References = &replay.Point{TimeUS: begin.timeUS, Position: begin.pos}
		return rng
	}
	return l, begin, serveSource(t, src, l.dictionaries, l.config)
}

func TestReferencesBegin(t *testing.T) {
	l, begin, s := serveLateReferences(t)
	for _, query := range []string{"wantedSubjects=" + didN(8) + "&wantedKinds=commit", "wantedSources=app.bsky.graph.follow:subject&wantedKinds=commit"} {
		for _, cursor := range []string{"0", fmt.Sprint(begin.timeUS), l.all[2].cursor()} {
			c := s.dial("extended=true&cursor=" + cursor + "&" + query)
			if m := c.info("references_begin"); m["cursor"] != begin.cursor() || fmt.Sprint(m["time_us"]) != fmt.Sprint(begin.timeUS) {
				t.Errorf("references begin: %v, want %s", m, begin.cursor())
			}
			c.wantReferences(true, false, l.all[7])
			s.want400("strict=true&cursor="+cursor+"&"+query, begin.cursor())
		}
		for _, cursor := range []string{begin.cursor(), fmt.Sprint(begin.timeUS + 1), l.all[4].cursor()} {
			s.dial("strict=true&extended=true&cursor="+cursor+"&"+query).wantReferences(true, false, l.all[7])
		}
		s.dial("cursor=0&"+query).wantReferences(false, false, l.all[7])
	}
	s.dial("extended=true&references=true&cursor=0").info("references_begin")
	s.dial("extended=true&strict=true&cursor=0").wantReferences(true, false, l.all...)
	c := s.dial("extended=true&cursor=0&requireHello=true&wantedKinds=commit")
	c.update(`{"wantedSubjects":["` + didN(8) + `"]}`)
	c.info("references_begin")
	c.wantReferences(true, false, l.all[7])
	c = s.dial("strict=true&cursor=0&requireHello=true")
	c.update(`{"wantedSubjects":["` + didN(8) + `"]}`)
	c.wantClose(1000, "older than the references")
}
