package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const commitLine = `{"did":"did:plc:abc","time_us":1795211644641595,"kind":"commit","commit":{"rev":"3n2rhrgoy3a3m","operation":"create",` +
	`"collection":"app.bsky.feed.like","rkey":"3n2rhrgoy3afp","record":{"$type":"app.bsky.feed.like","x":["]}\\\"",{}]},"cid":"bafy"},` +
	`"cursor":"b7e1c0-31527015322-0","uids":{"did":"18446744073709551615","uri":"7"}}`

func TestParse(t *testing.T) {
	var p parser
	got, err := p.parse([]byte(commitLine))
	if err != nil {
		t.Fatal(err)
	}
	want := Event{
		DID: "did:plc:abc", TimeUS: 1795211644641595, Kind: KindCommit, Cursor: "b7e1c0-31527015322-0", UIDs: UIDs{1<<64 - 1, 7},
		Raw: json.RawMessage(commitLine), Commit: &Commit{
			Rev: "3n2rhrgoy3a3m", Operation: OpCreate, Collection: "app.bsky.feed.like", RKey: "3n2rhrgoy3afp",
			Record: json.RawMessage(`{"$type":"app.bsky.feed.like","x":["]}\\\"",{}]}`), CID: "bafy",
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Event{})); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	plain := commitLine[:bytes.Index([]byte(commitLine), []byte(`,"cursor"`))] + "}"
	if s := string(got.AppendPlain([]byte("x"))); s != "x"+plain {
		t.Errorf("plain is %s", s)
	}
	for _, bad := range []string{
		"", "{", "{}", "[]", "null", `{"did":"x"}`, `{"did":"x","time_us":"1"}`, `{"did":"x","time_us":1`, `{"did":"x","time_us":1}}`,
		`{"did":"x" "time_us":1}`, `{"did":"x","time_us":1,"commit":[]}`, `{"did":1,"time_us":1}`, `{"did":"x","time_us":1,"uids":{"did":"-1"}}`,
		`{"did":"x\","time_us":1}`, `{"did":"x","time_us":1,"commit":{"rev":"\q"}}`, `{"did":"x","time_us":}`, `{"did":"x","time_us":1,"identity":"x"}`,
		`{"did":"x","time_us":0}`, `{"did":"x","time_us":-1}`,
		`{"did" "x"}`, `{"did`, `{"did":"x","time_us":1,"x":[1`, `{"did":"x","time_us":1,"x":["a}`, `{"did":"x","time_us":1,"x":`, `{"did":"x","time_us":1,"unverified":1}`,
		`{"did":"x","time_us":1,"uids":{"did":7}}`, `{"did":"x","time_us":1,"uids":{"did"}}`, `{"did":"x","time_us":1,"account":1}`, `{"did":"x","time_us":1,"references":1}`,
		`{"did":"x","time_us":1,"deleted_references":1}`, `{"did":"x","time_us":1,"sync":1}`, `{"time_us":1}`,
		`{"did":"x","time_us":1,"kind":"commit"}`, `{"did":"x","time_us":1,"kind":"identity","account":{}}`, `{"did":"x","time_us":1,"kind":"account"}`, `{"did":"x","time_us":1,"kind":"sync"}`,
	} {
		if e, err := p.parse([]byte(bad)); err == nil {
			t.Errorf("%s is read as %+v", bad, e)
		}
	}
}

// TestForeignOrder: an event of another server may have its stamp behind its position.
func TestForeignOrder(t *testing.T) {
	var p parser
	const raw = `{"did":"did:plc:abc","cursor":"b7e1c0-31527015322-0","kind":"x","time_us":7}`
	e, err := p.parse([]byte(raw))
	if err != nil || e.TimeUS != 7 || string(e.AppendPlain(nil)) != raw {
		t.Fatalf("%+v, %v, plain %s", e, err, e.AppendPlain(nil))
	}
	progress := newProgress("", time.Second, false)
	progress.joinByTime(true)
	if !progress.take(&e) || progress.take(&e) {
		t.Error("not taken, or twice")
	}
}

// TestNamesAreBounded: a server cannot make a parser keep much.
func TestNamesAreBounded(t *testing.T) {
	var p parser
	if long := strings.Repeat("x", maxNameBytes+1); p.name([]byte(long)) != long || len(p.names) != 0 {
		t.Errorf("%d names are kept", len(p.names))
	}
	for n := range maxNames + 1 {
		p.name([]byte(strconv.Itoa(n)))
	}
	if len(p.names) != 1 {
		t.Errorf("%d names are kept", len(p.names))
	}
}

// TestMembers walks objects as other servers may write them, and stays at the end of one that is
// none.
func TestMembers(t *testing.T) {
	for object, want := range map[string]string{
		` { "a" : [ { } , "]\"}" ] , "b" : -1e5 , "c":{"d":[]} } `: `a=[ { } , "]\"}" ] b=-1e5 c={"d":[]} `, "{}": "", "{ }": "", `{"a":null}`: "a=null ",
		`{"a":1}x`: "a=1 !", `{"a":1,`: "a=1 !", `{"a":1,}`: "a=1 !", `{"a":1 2}`: "a=1 !", `{"a"1}`: "!", `{"a":}`: "!", `{"a":"x}`: "!", `{"a":{"x}`: "!", `{"a":[}`: "a=[} !", `{"a":`: "!", `{a:1}`: "!",
		`["a"]`: "!", "": "!", "{": "!",
	} {
		m, got := members{b: []byte(object)}, ""
		for {
			name, value, at, ok := m.next()
			if !ok {
				break
			}
			if got += fmt.Sprintf("%s=%s ", name, value); object[at:at+len(value)] != string(value) {
				t.Errorf("%s: %s is not at %d", object, value, at)
			}
		}
		if m.err != nil {
			got += "!"
			m = members{b: []byte(`{"a":1}`), err: m.err}
			if _, _, _, ok := m.next(); ok {
				t.Errorf("%s goes on after its error", object)
			}
		}
		if got != want {
			t.Errorf("%s: %s, want %s", object, got, want)
		}
	}
	for _, bad := range []string{"", `"`, "1", "12"} {
		if s, err := text([]byte(bad)); err == nil {
			t.Errorf("%q is the text %q", bad, s)
		}
	}
	for in, want := range map[string]string{`""`: "", `"a"`: "a", `"\u0061"`: "a", "\"\xff\"": "\ufffd"} {
		if s, err := text([]byte(in)); err != nil || string(s) != want {
			t.Errorf("%s is %q, %v", in, s, err)
		}
	}
}

// TestParseV2: what is no message of v2's wire is an error; an event has all that the client goes
// by.
func TestParseV2(t *testing.T) {
	var p parser
	message := func(payload string) string { return `{"$type":"message","payload":` + payload + `}` }
	event := func(kind, rest string) string {
		return message(`{"$type":"` + v2Types + kind + `","did":"did:web:a","seq":7,"time":"2026-08-01T02:03:04.000006Z"` + rest + `}`)
	}
	good, err := p.parseV2([]byte(event("commit", `,"rev":"r","operation":"create","collection":"a.b.c","rkey":"k","record":{},"cid":"c","references":[{"path":"a"}],"more":1`)))
	at := time.Date(2026, 8, 1, 2, 3, 4, 6000, time.UTC)
	if e := good.event; err != nil || e.Kind != KindCommit || e.DID != "did:web:a" || e.Cursor != "7" || !e.Time().Equal(at) || e.Commit.Rev != "r" || e.Commit.RKey != "k" ||
		e.Commit.CID != "c" || e.Commit.Collection != "a.b.c" || e.Commit.Operation != OpCreate || string(e.Commit.Record) != "{}" || len(e.References) != 1 {
		t.Errorf("%+v, %v", good, err)
	}
	if m, err := p.parseV2([]byte(`{"$type":"error","error":"a","message":"b"}`)); err != nil || m.failure != "a: b" {
		t.Errorf("%+v, %v", m, err)
	}
	own := func(rest string) string { return message(`{"$type":"` + v2OwnTypes + `heartbeat"` + rest + `}`) }
	if m, err := p.parseV2([]byte(own(`,"seq":9,"time":"2026-08-01T02:03:04.000006Z"`))); err != nil || m.info.Name != InfoHeartbeat || m.info.Cursor != "9" || m.info.TimeUS != at.UnixMicro() {
		t.Errorf("%+v, %v", m, err)
	}
	for _, bad := range []string{
		"", "x", `{"$type":1}`, `{"$type":"message"}`, `{"payload":{}}`, `{"$type":"other","payload":{}}`, `{"$type":"error","error":1}`, `{"$type":"error","message":1}`,
		message(`[]`), message(`{}`), message(`{"a":1}`), message(`{"a"}`), message(`{"$type":1}`), message(`{"$type":"` + v2Types + `info","name":1}`),
		own(`,"seq":"x"`), own(`,"seq":1.5`), own(`,"time":1`), own(`,"time":"noon"`),
		event("commit", `,"rev":1`), event("commit", `,"references":1`), event("commit", `,"deleted_references":1`), event("identity", `,"identity":1`), event("account", `,"account":1`),
		event("identity", ""), event("account", `,"identity":{}`), event("sync", ""), event("sync", `,"sync":1`), event("commit", `,"did":""`), event("commit", `,"did":1`), event("commit", `,"seq":"7"`), event("commit", `,"time":"noon"`), event("commit", `,"time":"1969-12-31T23:59:59Z"`),
		message(`{"$type":"` + v2Types + `account","seq":7,"time":"2026-08-01T02:03:04.000006Z"}`), message(`{"$type":"` + v2Types + `account","did":"did:web:a","seq":7}`),
		message(`{"$type":"` + v2Types + `account","did":"did:web:a","time":"2026-08-01T02:03:04.000006Z"}`),
	} {
		if m, err := p.parseV2([]byte(bad)); err == nil {
			t.Errorf("%s is read as %+v", bad, m)
		}
	}
}

// TestUnverified: why an event is not verified comes with it.
func TestUnverified(t *testing.T) {
	var p parser
	if e, err := p.parse([]byte(`{"did":"x","time_us":1,"unverified":"signature"}`)); err != nil || e.Unverified != "signature" {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestParseNumbers: a number in place of any string that is read is an error.
func TestParseNumbers(t *testing.T) {
	var p parser
	for _, name := range []string{"did", "kind", "rev", "operation", "collection", "rkey", "cid", "cursor"} {
		begin := strings.Index(commitLine, `"`+name+`":"`) + len(name) + 3
		end := begin + 1 + strings.IndexByte(commitLine[begin+1:], '"') + 1
		if e, err := p.parse([]byte(commitLine[:begin] + "7" + commitLine[end:])); err == nil {
			t.Errorf("%s 7 is read as %+v", name, e)
		}
	}
}

// TestReferences: what is asked for is in the URL, or in an update if that would be too long. What
// comes is in the event.
func TestReferences(t *testing.T) {
	o := Options{Subjects: []string{"at://did:web:x.test/a.b.c/1"}, SubjectDIDs: []string{"did:web:y.test"}, Sources: []string{"a.b.c:x"}}
	cfg := Config{References: true}
	const asked = "extended=true&heartbeat=0&references=true&wantedSources=a.b.c%3Ax&wantedSubjectDids=did%3Aweb%3Ay.test&" +
		"wantedSubjects=at%3A%2F%2Fdid%3Aweb%3Ax.test%2Fa.b.c%2F1"
	if query, hello := cfg.query(url.Values{}, o, ""); query != asked || hello {
		t.Errorf("it asks for %s, %t", query, hello)
	}
	msg := updateMessage(inURL(o))
	const update = `{"type":"options_update","payload":{"wantedCollections":[],"wantedDids":[],"maxMessageSizeBytes":0,` +
		`"wantedSubjects":["at://did:web:x.test/a.b.c/1"],"wantedSubjectDids":["did:web:y.test"],"wantedSources":["a.b.c:x"]}}`
	if string(msg) != update {
		t.Errorf("the update is %s", msg)
	}
	o.Subjects = slices.Repeat(o.Subjects, 1000)
	if query, hello := cfg.query(url.Values{}, o, ""); len(query) > maxQueryBytes || !hello {
		t.Errorf("a long one asks for %s, %t", query, hello)
	}
	for _, o := range []Options{{Subjects: make([]string, MaxSubjects+1)}, {SubjectDIDs: make([]string, MaxSubjects+1)}, {Sources: make([]string, MaxSources+1)}} {
		if o.validate() == nil {
			t.Error("too many are taken")
		}
	}
	var p parser
	line := commitLine[:len(commitLine)-1] + `,"references":[{"source":"a.b.c:x","subject":"did:web:y.test","uid":"18446744073709551615"}],` +
		`"deleted_references":[{"source":"a.b.c:y","subject":"at://x.test","uid":"5"},{"source":"a.b.c:z","uid":"6"}]}`
	got, err := p.parse([]byte(line))
	want := Event{
		References:        []Reference{{"a.b.c:x", "did:web:y.test", 1<<64 - 1}},
		DeletedReferences: []Reference{{"a.b.c:y", "at://x.test", 5}, {"a.b.c:z", "", 6}},
	}
	if diff := cmp.Diff(want, Event{References: got.References, DeletedReferences: got.DeletedReferences}, cmpopts.IgnoreUnexported(Event{})); diff != "" || err != nil {
		t.Errorf("%v: -want +got\n%s", err, diff)
	}
	if plain := got.AppendPlain(nil); bytes.Contains(plain, []byte("references")) {
		t.Errorf("plain is %s", plain)
	}
	if _, err := p.parse([]byte(commitLine[:len(commitLine)-1] + `,"references":[{"uid":"x"}]}`)); err == nil {
		t.Error("a UID that is none is read")
	}
}

// TestFilterOfTheURL: a filter in the URL holds, whether the options are sent in the URL or in an
// update.
func TestFilterOfTheURL(t *testing.T) {
	c := newOf(t, Config{URL: "ws://h/subscribe?wantedCollections=a.b.c&wantedDids=did:web:x.test&wantedDids=&wantedSources=a.b.c:x&maxMessageSizeBytes=1000"})
	o := Options{DIDs: []string{"did:web:y.test"}}
	base := c.servers[0].subscribe.Query()
	if query, _ := c.cfg.query(base, o, ""); !strings.Contains(query, "&wantedCollections=a.b.c&wantedDids=did%3Aweb%3Ax.test&wantedDids=&wantedDids=did%3Aweb%3Ay.test&") {
		t.Errorf("it asks for %s", query)
	}
	const update = `{"type":"options_update","payload":{"wantedCollections":["a.b.c"],"wantedDids":["did:web:x.test","did:web:y.test"],` +
		`"maxMessageSizeBytes":1000,"wantedSources":["a.b.c:x"]}}`
	if msg := updateMessage(base); string(msg) != update { // query has added what it asks for
		t.Errorf("the update is %s", msg)
	}
	if query, hello := c.cfg.query(url.Values{"requireHello": {"true"}}, o, ""); hello || strings.Contains(query, "requireHello") {
		t.Errorf("it waits for an update that is not sent: %s", query)
	}
	o.MaxMessageBytes = 5
	if o.addTo(base, "wantedCollections", "wantedDids"); !strings.Contains(string(updateMessage(base)), `"maxMessageSizeBytes":5,`) {
		t.Errorf("the update is %s", updateMessage(base))
	}
}

// FuzzParse: nothing makes the parser panic, and what encoding/json takes for an event it reads
// alike.
func FuzzParse(f *testing.F) {
	f.Add([]byte(commitLine))
	f.Add([]byte(` { "did" : "\u00e9\"" , "time_us" : 1 , "kind" : "account", "account":{"active":true,"seq":1} } `))
	f.Add([]byte("{\"did\":\"did:plc:\xff\",\"time_us\":1,\"cursor\":\"b7e1c0\xff-1-0\"}"))
	f.Add([]byte(`{"kind":"info","info":{"name":"live","message":"m","oldest":1}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		_, _ = parseInfo(raw)
		var p parser
		e, err := p.parse(raw)
		if err != nil {
			return
		}
		e.AppendPlain(nil)
		var w window
		w.hash(&e)
		var want struct {
			DID    string `json:"did"`
			TimeUS int64  `json:"time_us"`
			Cursor string `json:"cursor"`
		}
		if !json.Valid(raw) || json.Unmarshal(raw, &want) != nil || hasCaseTwins(raw) {
			return
		}
		if e.DID != want.DID || e.TimeUS != want.TimeUS || e.Cursor != want.Cursor {
			t.Errorf("%s: read as %+v, want %+v", raw, e, want)
		}
	})
}

// hasCaseTwins says whether encoding/json could take a member for another: names in other letters
// or with escapes, or names twice.
func hasCaseTwins(raw []byte) bool {
	seen := map[string]bool{}
	m := members{b: raw}
	for {
		name, _, _, ok := m.next()
		if !ok {
			return false
		}
		s := string(bytes.ToLower(name))
		if seen[s] || s != string(name) || bytes.IndexByte(name, '\\') >= 0 || !isASCII(name) {
			return true
		}
		seen[s] = true
	}
}

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= 0x80 {
			return false
		}
	}
	return true
}

// An event costs the Commit and its strings, beside the message.
func TestParseAllocations(t *testing.T) {
	var p parser
	raw := []byte(commitLine)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := p.parse(raw); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkParse(b *testing.B) {
	var p parser
	raw := []byte(commitLine)
	b.ReportAllocs()
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := p.parse(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func TestParseInfo(t *testing.T) {
	for raw, want := range map[string]Info{
		`{"kind":"heartbeat","time_us":5,"cursor":"a-1-0"}`:                                                   {Name: InfoHeartbeat, TimeUS: 5, Cursor: "a-1-0"},
		`{"kind":"info","info":{"name":"live","message":"m","time_us":5,"cursor":"a-1-0"}}`:                   {Name: InfoLive, Message: "m", TimeUS: 5, Cursor: "a-1-0"},
		`{"kind":"info","info":{"name":"gap","from":"a-1-0","to":"a-3-0","time_us":5}}`:                       {Name: InfoGap, From: "a-1-0", To: "a-3-0", TimeUS: 5},
		`{"kind":"info","info":{"name":"left_out","events":7}}`:                                               {Name: InfoLeftOut, LeftOut: 7},
		`{"kind":"info","info":{"name":"cursor_clamped","requested":"1","oldest":9,"oldest_cursor":"a-1-0"}}`: {Name: InfoClamped, Requested: "1", OldestUS: 9, OldestCursor: "a-1-0"},
		`{"kind":"info","info":{"name":"cursor_clamped","requested":1,"oldest":9}}`:                           {Name: InfoClamped, Requested: "1", OldestUS: 9},
		`{"kind":"news"}`: {},
	} {
		want.Raw = json.RawMessage(raw)
		got, err := parseInfo([]byte(raw))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v, -want +got\n%s", raw, err, diff)
		}
	}
	if _, err := parseInfo([]byte("{")); !errors.Is(err, errJSON) {
		t.Error(err)
	}
}

func TestPositionsOrder(t *testing.T) {
	for _, tc := range []struct {
		p, q string
		want bool
	}{
		{"a-2-0", "a-1-5", true}, {"a-1-1", "a-1-0", true}, {"a-1-0", "a-1-0", false}, {"a-1-9", "a-2-0", false}, {"b-1-0", "a-9-9", true},
	} {
		p, ok1 := parsePosition(tc.p)
		q, ok2 := parsePosition(tc.q)
		if !ok1 || !ok2 || p.follows(q) != tc.want {
			t.Errorf("%s follows %s: %v", tc.p, tc.q, !tc.want)
		}
	}
	for _, bad := range []string{"", "a", "a-1", "-1-0", "a-x-0", "a-1-x", "a--1-0", "a--0", "a-1--1", "a-1-4294967296", "a-1-0-0"} {
		if _, ok := parsePosition(bad); ok {
			t.Errorf("%q is a position", bad)
		}
	}
}

func TestBackoff(t *testing.T) {
	b := newBackoff(time.Second, 8*time.Second)
	for _, extreme := range []time.Duration{0, 1} {
		b.random = func(n time.Duration) time.Duration { return extreme * (n - 1) }
		b.reset()
		for _, base := range []time.Duration{1, 2, 4, 8, 8, 8} {
			if got, want := b.wait(), base*time.Second/2+extreme*base*time.Second; got != want {
				t.Errorf("waited %v, want %v", got, want)
			}
		}
	}
	b = newBackoff(time.Second, time.Millisecond)
	if got := b.wait(); got > 1500*time.Microsecond {
		t.Errorf("waited %v, want about 1 ms at most", got)
	}
}

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for s, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, "-5": 0, "soon": 0, "99999": 10 * time.Minute,
		"Fri, 20 Nov 2026 12:00:07 GMT": 7 * time.Second, "Fri, 20 Nov 2026 11:00:00 GMT": 0,
	} {
		if got := parseRetryAfter(s, now); got != want {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
	}
}

// The window forgets what is old, by time and by number, and nothing else.
func TestWindow(t *testing.T) {
	w := window{spanUS: 1000}
	for n := range int64(3 * maxWindow) {
		e := plain(t, 1+n)
		e.TimeUS = n / 200
		if !w.add(e) || w.add(e) {
			t.Fatalf("event %d: not new, or new twice", n)
		}
		if n == 5000 && w.add(plain(t, 1)) {
			t.Fatal("event 1 is forgotten already")
		}
	}
	if len(w.seen) != maxWindow || len(w.order) > 2*maxWindow+1 {
		t.Errorf("%d remembered, %d kept", len(w.seen), len(w.order))
	}
	late := plain(t, 4*maxWindow)
	late.TimeUS = w.newest + 2000
	if w.add(late); len(w.seen) != 1 {
		t.Errorf("%d remembered from before the span", len(w.seen))
	}
	if w.forget(); len(w.seen) != 0 || !w.add(late) {
		t.Error("not forgotten")
	}
}

// TestPlainPlaceAfterUpdate: a server without positions is asked again for what came before the
// newest event. It is asked for nothing from before the newest options update.
func TestPlainPlaceAfterUpdate(t *testing.T) {
	const second = 1_000_000
	p := newProgress("", 5*time.Second, false)
	for us := int64(100 * second); us <= 110*second; us += second {
		p.take(plain(t, us))
	}
	if got := p.resume(false); got != strconv.Itoa(105*second) {
		t.Errorf("before the update it resumes at %s", got)
	}
	p.changed()
	if got := p.resume(false); got != strconv.Itoa(110*second) {
		t.Errorf("after the update it resumes at %s", got)
	}
	p.take(plain(t, 112*second))
	if got := p.resume(false); got != strconv.Itoa(110*second) {
		t.Errorf("after one more event it resumes at %s", got)
	}
}

// TestLiveOfEmptyLog: a server whose log is empty gives a place to a client without one, and moves
// no other's.
func TestLiveOfEmptyLog(t *testing.T) {
	now := time.UnixMicro(1_790_000_000_000_000)
	for start, want := range map[string]string{"": strconv.FormatInt(now.Add(-clockSkew).UnixMicro(), 10), "123": "123", "b7e1c0-1-0": "b7e1c0-1-0"} {
		p := newProgress(start, time.Second, false)
		p.live("", 0, now)
		if got := p.resume(false); got != want {
			t.Errorf("from %q it resumes at %q, not at %q", start, got, want)
		}
	}
}

// TestBackslashes: strings end where JSON says, whatever backslashes are before their quotes.
func TestBackslashes(t *testing.T) {
	for n := range 5 {
		text := strings.Repeat(`\\`, n) + `\"` + strings.Repeat(`\\`, n)
		raw := fmt.Sprintf(`{"did":"did:plc:a","time_us":1,"kind":"commit","commit":{"rev":"r","operation":"create","collection":"a.b.c",`+
			`"rkey":"%s","record":{"text":"%s","n":[{"%[1]s":1}]},"cid":"c"}}`, text, text)
		var want struct {
			Commit struct {
				RKey   string
				Record json.RawMessage
				CID    string
			}
		}
		if err := json.Unmarshal([]byte(raw), &want); err != nil {
			t.Fatal(err)
		}
		e, err := new(parser).parse([]byte(raw))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if c := e.Commit; c.RKey != want.Commit.RKey || string(c.Record) != string(want.Commit.Record) || c.CID != want.Commit.CID {
			t.Errorf("%s: %+v", raw, c)
		}
	}
}

// TestPlainPlaceAfterPositions: a plain server whose clock is behind that of the millrace before is
// asked by its own stamps.
func TestPlainPlaceAfterPositions(t *testing.T) {
	const second = 1_000_000
	p := newProgress("", 5*time.Second, false)
	p.take(&Event{DID: "did:plc:a", TimeUS: 200 * second, Cursor: "b7e1c0-1-0"})
	for _, us := range []int64{100 * second, 120 * second} {
		p.take(&Event{DID: "did:plc:a", TimeUS: us})
	}
	if cursor, us := p.current(), p.lastUS; cursor != strconv.Itoa(120*second) || us != 120*second || p.resume(false) != strconv.Itoa(115*second) {
		t.Errorf("it is at %s, %d, and resumes at %s", cursor, us, p.resume(false))
	}
}
