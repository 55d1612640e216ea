package public

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"millrace/consume/relaysim/cbor"
	"millrace/intern"
	"millrace/public/internal/testframe"
	"millrace/replay"
	"millrace/translate"
)

// wireReference is a reference as subscribers get it.
type wireReference struct {
	Source  string `json:"source"`
	Subject string `json:"subject"`
	UID     uint64 `json:"uid,string"`
}

// authority returns the DID of the subject, "" if it has none.
func (r *wireReference) authority() string {
	s := strings.TrimPrefix(r.Subject, "at://")
	s, _, _ = strings.Cut(s, "/")
	if !strings.HasPrefix(s, "did:") {
		return ""
	}
	return s
}

// referenceTruth is an event with what it refers to.
type referenceTruth struct {
	truth
	kind       translate.Kind
	collection string
	has, had   []wireReference
	uids       string // its member, with a comma before it
}

// extended is the event as extended subscribers get it.
func (e *referenceTruth) extended(t testing.TB, references bool) string {
	t.Helper()
	s := strings.TrimSuffix(extendedJSON(e.truth), "}") + e.uids
	if !references {
		return s + "}"
	}
	var gone []wireReference
	for _, r := range e.had {
		if !slices.Contains(e.has, r) {
			gone = append(gone, r)
		}
	}
	for _, m := range []struct {
		name string
		refs []wireReference
	}{{"references", e.has}, {"deleted_references", gone}} {
		if len(m.refs) == 0 {
			continue
		}
		b, err := json.Marshal(m.refs)
		if err != nil {
			t.Fatal(err)
		}
		s += `,"` + m.name + `":` + string(b)
	}
	return s + "}"
}

// referenceLog is a log whose events have references, and the UID store that it is of.
type referenceLog struct {
	*testLog
	uids    *intern.Interner
	metrics *prometheus.Registry
	records map[string][]wireReference // what those that are alive point at, by path
	all     []referenceTruth
}

func newReferenceLog(t *testing.T) *referenceLog {
	t.Helper()
	l := &referenceLog{metrics: prometheus.NewRegistry(), records: make(map[string][]wireReference)}
	l.uids = newInterner(t, l.metrics)
	names := func(uids []uint64, strings []string) error {
		return l.uids.LookupUIDs(context.Background(), uids, strings)
	}
	// Most is read from the disk.
	l.testLog = openTestLog(t, replay.Config{References: true, Strings: names, TailBytes: 10_000}, translate.Config{References: true})
	return l
}

// config makes a server one of l.
func (l *referenceLog) config(cfg *Config, _ *timing) { cfg.UIDs = l.uids }

// waiting is how many strings wait for their UIDs.
func (l *referenceLog) waiting() float64 {
	n, err := testutil.GatherAndCount(l.metrics, "millrace_intern_waiting_strings")
	if err != nil || n != 1 {
		l.t.Fatal(n, err)
	}
	families, _ := l.metrics.Gather()
	for _, f := range families {
		if f.GetName() == "millrace_intern_waiting_strings" {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

// add appends one block of the frames' events, as the daemon does, and returns them.
func (l *referenceLog) add(frames ...frame) []referenceTruth {
	l.t.Helper()
	first := l.seq + 1
	var b translate.Batch
	for _, f := range frames {
		l.seq++
		l.translator.AppendFrame(&b, f(l.seq))
	}
	l.stamper.StampBatch(&b)
	added := l.resolve(&b)
	block, err := l.Seal(replay.Input{
		Epoch: l.Progress().Epoch, FirstSeq: first, LastSeq: l.seq, Batch: &b, References: l.numbers(&b, added),
	})
	if err == nil {
		err = l.Append(block)
	}
	if err != nil || len(added) < len(frames) {
		l.t.Fatalf("%d frames gave %d events: %+v: %v", len(frames), len(added), b.Counts, err)
	}
	l.all = append(l.all, added...)
	return added
}

// resolve gives the events and references of b their UIDs, and returns what they are.
func (l *referenceLog) resolve(b *translate.Batch) []referenceTruth {
	l.t.Helper()
	var reqs []intern.Request
	for i := range b.Events {
		reqs = append(reqs, intern.Request{DID: b.DID(i), Collection: b.Collection(i), RecordKey: b.RecordKey(i)})
	}
	for i := range b.References {
		reqs = append(reqs, intern.Request{Name: b.Subject(i)})
	}
	out := make([]intern.Result, len(reqs))
	if err := l.uids.Resolve(context.Background(), reqs, out); err != nil {
		l.t.Fatal(err)
	}
	added := make([]referenceTruth, len(b.Events))
	for i := range b.Events {
		e := &b.Events[i]
		e.DIDUID, e.URIUID = out[i].DIDUID, out[i].URIUID
		added[i] = referenceTruth{
			truth: truth{json: string(b.Payload(i)), did: string(b.DID(i)), timeUS: e.TimeUS,
				pos: translate.Position{Stream: l.Progress().Stream, Seq: e.Seq, Op: e.Op}},
			kind: e.Kind, collection: string(b.Collection(i)), uids: fmt.Sprintf(`,"uids":{"did":"%d"}`, e.DIDUID),
		}
		if e.URIUID != 0 {
			added[i].uids = fmt.Sprintf(`,"uids":{"did":"%d","uri":"%d"}`, e.DIDUID, e.URIUID)
		}
	}
	for i := range b.References {
		r, u := &b.References[i], out[len(b.Events)+i]
		if r.SubjectUID, r.AuthorityUID = u.DIDUID, u.DIDUID; r.IsURI() {
			r.SubjectUID = u.URIUID
		}
		e := &added[r.Event]
		e.has = append(e.has, wireReference{e.collection + ":" + string(b.ReferencePath(i)), string(b.Subject(i)), r.SubjectUID})
	}
	for i := range added {
		if added[i].kind != translate.KindCommit {
			continue
		}
		path := added[i].did + "/" + added[i].collection + "/" + string(b.RecordKey(i))
		added[i].had, l.records[path] = l.records[path], added[i].has
	}
	return added
}

// numbers returns the references of the events in numbers.
func (l *referenceLog) numbers(b *translate.Batch, events []referenceTruth) *replay.EventReferences {
	l.t.Helper()
	refs := &replay.EventReferences{}
	for i := range events {
		for _, list := range [][]wireReference{events[i].has, events[i].had} {
			for _, r := range list {
				path, ok := l.PathNumber([]byte(r.Source))
				authority, known, err := l.uids.Lookup(context.Background(), r.authorityString())
				if !ok || !known || err != nil {
					l.t.Fatalf("%+v: %t, %t, %v", r, ok, known, err)
				}
				refs.List = append(refs.List, replay.Reference{
					Path: path, Subject: r.UID, Authority: authority, Had: len(events[i].had) > 0 && &list[0] == &events[i].had[0],
				})
			}
		}
		refs.Ends = append(refs.Ends, uint32(len(refs.List)))
	}
	return refs
}

// authorityString is the string that the authority's UID stands for.
func (r *wireReference) authorityString() string {
	if a := r.authority(); a != "" {
		return a
	}
	handle, _, _ := strings.Cut(strings.TrimPrefix(r.Subject, "at://"), "/")
	return "at://" + handle
}

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
		"wantedSources=app.bsky.feed.like":                     `invalid source: "app.bsky.feed.like"`,
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
	for i := range 3 {
		c.update(`{"wantedSubjects":[` + strings.Join(few[i:], ",") + `]}`)
		s.waitUpdates(i + 1)
	}
	if n := s.admission.Stats().Bytes; n < 57*(200+intern.WaitingBytes) || l.waiting() != 58 {
		t.Errorf("%d bytes are counted while %v strings wait", n, l.waiting())
	}
	c.info("live")
	c.update(`{"wantedSubjects":[` + strings.Join(many, ",") + `]}`)
	c.wantClose(1013, "no memory left for the filter")
	eventually(t, "no string waits", func() bool { return l.waiting() == 0 && s.admission.Stats().Bytes == 0 })
}

// TestSubjectThatComesLater: a subscriber that waits at the end of the log, for a subject and a
// source that nobody knows, gets the first event that has them.
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

func TestReferencesBegin(t *testing.T) {
	l := fewReferences(t)
	begin := l.all[3]
	src := logSource(l.Log)
	src.rangeOf = func() replay.Range {
		rng := l.Range()
		rng.References = &replay.Mark{TimeUS: begin.timeUS, Position: begin.pos}
		return rng
	}
	s := serveSource(t, src, l.dictionaries, l.config)
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

// referenceWants is a filter, in strings.
type referenceWants struct {
	Collections []string `json:"wantedCollections"`
	DIDs        []string `json:"wantedDids"`
	Subjects    []string `json:"wantedSubjects"`
	SubjectDIDs []string `json:"wantedSubjectDids"`
	Sources     []string `json:"wantedSources"`
}

func (w *referenceWants) query() string {
	return url.Values{"wantedCollections": w.Collections, "wantedDids": w.DIDs, "wantedSubjects": w.Subjects,
		"wantedSubjectDids": w.SubjectDIDs, "wantedSources": w.Sources}.Encode()
}

// of returns those of the events that pass, as wire.md has it.
func (w *referenceWants) of(events []referenceTruth) (passing []referenceTruth) {
	for _, e := range events {
		ok := len(w.DIDs) == 0 || slices.Contains(w.DIDs, e.did)
		if e.kind == translate.KindCommit {
			ok = ok && (len(w.Collections) == 0 || slices.Contains(w.Collections, e.collection))
			ok = ok && (len(w.Subjects)+len(w.SubjectDIDs)+len(w.Sources) == 0 || slices.ContainsFunc(slices.Concat(e.has, e.had), w.wants))
		}
		if ok {
			passing = append(passing, e)
		}
	}
	return passing
}

func (w *referenceWants) wants(r wireReference) bool {
	subject := len(w.Subjects)+len(w.SubjectDIDs) == 0 || slices.Contains(w.Subjects, r.Subject) ||
		slices.Contains(w.SubjectDIDs, r.authority())
	return subject && (len(w.Sources) == 0 || slices.Contains(w.Sources, r.Source))
}

// referenceWorld draws events and filters. The later, the more accounts there are.
type referenceWorld struct {
	*referenceLog
	rng   *rand.Rand
	keys  int
	alive []string // DID/collection/rkey
}

func (w *referenceWorld) account() int { return w.rng.IntN(6 + w.keys/20) }

func (w *referenceWorld) record(collection string) cbor.Map {
	switch collection {
	case "app.bsky.feed.like":
		return like(postURI(w.account()))
	case "app.bsky.feed.post":
		return post(postURI(w.account()), didN(w.account()))
	}
	return cbor.Map{{Key: fmt.Sprint("of", w.keys/30), Value: didN(w.account())}}
}

var worldCollections = []string{"app.bsky.feed.like", "app.bsky.feed.post", "com.example.thing"}

func (w *referenceWorld) frame() frame {
	switch k := w.rng.IntN(10); {
	case k == 0:
		return identity(didN(w.account()))
	case k < 4 && len(w.alive) > 0:
		i := w.rng.IntN(len(w.alive))
		path := strings.SplitN(w.alive[i], "/", 2)
		if w.rng.IntN(2) == 0 {
			collection, _, _ := strings.Cut(path[1], "/")
			return testframe.Ops(path[0], op("update", path[1], w.record(collection)))
		}
		w.alive = slices.Delete(w.alive, i, i+1)
		return testframe.Ops(path[0], op("delete", path[1], nil))
	}
	w.keys++
	collection := worldCollections[w.rng.IntN(len(worldCollections))]
	did, path := didN(w.account()), fmt.Sprintf("%s/%d", collection, w.keys)
	w.alive = append(w.alive, did+"/"+path)
	return testframe.Ops(did, op("create", path, w.record(collection)))
}

func (w *referenceWorld) more() []referenceTruth {
	var frames []frame
	for range 1 + w.rng.IntN(25) {
		frames = append(frames, w.frame())
	}
	return w.add(frames...)
}

// some draws up to n of what draw makes, most often none.
func (w *referenceWorld) some(n int, draw func() string) (all []string) {
	for range w.rng.IntN(2) * w.rng.IntN(n+1) {
		if s := draw(); !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

func (w *referenceWorld) filter() referenceWants {
	did := func() string { return didN(w.rng.IntN(20)) }
	return referenceWants{
		Collections: w.some(2, func() string { return worldCollections[w.rng.IntN(3)] }),
		DIDs:        w.some(8, did),
		Subjects: w.some(6, func() string {
			if w.rng.IntN(2) == 0 {
				return did()
			}
			return postURI(w.rng.IntN(20))
		}),
		SubjectDIDs: w.some(4, did),
		Sources: w.some(4, func() string {
			return []string{"app.bsky.feed.like:subject.uri", "app.bsky.feed.post:reply.uri", "app.bsky.feed.post:<text>",
				fmt.Sprint("com.example.thing:of", w.rng.IntN(5))}[w.rng.IntN(4)]
		}),
	}
}

// cursor draws one, and returns the events that come from there on.
func (w *referenceWorld) cursor() (cursor string, events []referenceTruth) {
	i := w.rng.IntN(len(w.all))
	switch w.rng.IntN(4) {
	case 0:
		return "", nil
	case 1:
		return "0", w.all
	case 2:
		return fmt.Sprint(w.all[i].timeUS), w.all[i:]
	}
	return w.all[i].cursor(), w.all[i+1:]
}

// TestSubjectFiltersEqualAFullScan has subscribers with random filters and cursors read a log while
// it grows by subjects that are new, and change their filters: each gets what a look at everything
// finds.
func TestSubjectFiltersEqualAFullScan(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	w := &referenceWorld{referenceLog: newReferenceLog(t), rng: rand.New(rand.NewPCG(seed, 0))}
	s := serve(t, w.testLog, w.config)
	type reading struct {
		*client
		wants                referenceWants
		extended, references bool
	}
	w.more()
	var readers []*reading
	for updates := 0; updates < 60; {
		if len(readers) < 12 {
			cursor, events := w.cursor()
			r := &reading{wants: w.filter(), extended: w.rng.IntN(2) == 0}
			r.references = r.extended && w.rng.IntN(2) == 0
			r.client = s.dial(fmt.Sprintf("cursor=%s&extended=%t&references=%t&%s", cursor, r.extended, r.references, r.wants.query()))
			r.wantReferences(r.extended, r.references, r.wants.of(events)...)
			if r.extended {
				r.info("live")
			}
			readers = append(readers, r)
		}
		i := w.rng.IntN(len(readers))
		switch r := readers[i]; w.rng.IntN(4) {
		case 0:
			r.wants = w.filter()
			payload, err := json.Marshal(r.wants)
			if err != nil {
				t.Fatal(err)
			}
			r.update(string(payload))
			updates++
			s.waitUpdates(updates)
		case 1:
			r.Close()
			readers = slices.Delete(readers, i, i+1)
		default:
			added := w.more()
			for _, r := range readers {
				r.wantReferences(r.extended, r.references, r.wants.of(added)...)
			}
		}
	}
	for _, r := range readers {
		r.Close()
	}
	eventually(t, "no string waits", func() bool { return w.waiting() == 0 })
}
