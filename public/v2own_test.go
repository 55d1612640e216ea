package public

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"millrace/public/internal/testframe"
)

// v2References is the event on v2's wire, with its references.
func (e *referenceTruth) v2References(t testing.TB) string {
	t.Helper()
	var message struct {
		Type    string                     `json:"$type"`
		Payload map[string]json.RawMessage `json:"payload"`
	}
	if err := json.Unmarshal([]byte(e.v2(t)), &message); err != nil {
		t.Fatal(err)
	}
	put := func(name string, refs []wireReference) {
		if len(refs) == 0 {
			return
		}
		b, err := json.Marshal(refs)
		if err != nil {
			t.Fatal(err)
		}
		message.Payload[name] = b
	}
	put("references", e.has)
	put("deleted_references", slices.DeleteFunc(slices.Clone(e.had), func(r wireReference) bool { return slices.Contains(e.has, r) }))
	b, err := json.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// wantV2References reads exactly these events.
func (c *client) wantV2References(references bool, events ...referenceTruth) {
	c.t.Helper()
	for i := range events {
		want := events[i].v2(c.t)
		if references {
			want = events[i].v2References(c.t)
		}
		if _, got := c.next(); string(got) != want {
			c.t.Fatalf("event %d of %d is\n%s\nwant\n%s", i, len(events), got, want)
		}
	}
}

func TestV2References(t *testing.T) {
	l := fewReferences(t)
	s := serve(t, l.testLog, l.config)
	c := s.dialV2("cursor=0&references=true")
	c.wantV2References(true, l.all...)
	c.wantV2References(true, l.add(testframe.Ops(didN(2), op("delete", "app.bsky.feed.post/2", nil)))...)
	for _, query := range []string{"cursor=0", "cursor=0&references=false", "cursor=0&extended=true"} {
		s.dialV2(query).wantV2References(false, l.all...)
	}
	d := l.dictionaries.Stored()
	c = s.dialV2(fmt.Sprintf("cursor=0&references=true&zstdDictionary=%d", d.ID()))
	for _, e := range l.all {
		if got, want := c.nextV2(d), e.v2References(t); got != want {
			t.Fatalf("compressed: got\n%s\nwant\n%s", got, want)
		}
	}
}

func TestV2WantedSubjects(t *testing.T) {
	l := fewReferences(t)
	s := serve(t, l.testLog, l.config)
	for query, want := range map[string][]int{
		"wantedSubjects=" + postURI(8) + "&kinds=commit":                                 {0, 1, 5},
		"wantedSubjects=" + didN(8):                                                      {3, 7},
		"wantedSubjectDids=" + didN(8) + "&collections=app.bsky.graph.*":                 {3, 7},
		"wantedSubjectDids=" + didN(8) + "&dids=" + didN(2):                              {1},
		"wantedSources=app.bsky.feed.like:subject.uri&kinds=commit":                      {0, 5},
		"wantedSources=app.bsky.feed.post:reply.uri&wantedSubjectDids=" + didN(8):        {1, 3},
		"wantedSubjects=&wantedSubjectDids=&wantedSources=":                              {0, 1, 2, 3, 4, 5, 6, 7},
		"wantedSubjectDids=" + didN(8) + "&kinds=commit&references=true&zstdDictionary=": {0, 1, 5, 7},
	} {
		c := s.dialV2("cursor=0&" + query)
		c.wantV2References(query[len(query)-1] == '=' && len(want) == 4, pickReferences(l.all, want...)...)
		c.Close()
	}
}

func TestV2OwnParametersAreChecked(t *testing.T) {
	l := fewReferences(t)
	s := serve(t, l.testLog, l.config)
	for query, words := range map[string]string{
		"heartbeat=0": "heartbeat", "heartbeat=x": "heartbeat", "heartbeat=3601": "1 to 3600",
		"references=yes":                   "references",
		"wantedSubjects=alice.test":        "invalid subject",
		"wantedSources=app.bsky.feed.like": "invalid source",
		manySources(101):                   "at most 100",
	} {
		s.wantV2Refused(query, http.StatusBadRequest, v2InvalidRequest, words)
	}
	off := serve(t, newTestLog(t), nil)
	for _, query := range []string{"references=true", "wantedSubjects=" + didN(1), "wantedSubjectDids=" + didN(1), "wantedSources=a.b.c:d"} {
		off.wantV2Refused(query, http.StatusBadRequest, v2InvalidRequest, "--references=on")
	}
}

// v2Own is a message of ours about the log up to a point.
func v2Own(name string, seq, timeUS int64) string {
	return fmt.Sprintf(`{"$type":"message","payload":{"$type":"millrace#%s","seq":%d,"time":"%s"}}`,
		name, seq, time.UnixMicro(timeUS).UTC().Format("2006-01-02T15:04:05.000000Z"))
}

func TestV2ReferencesBegin(t *testing.T) {
	l, begin, s := serveLateReferences(t)
	for _, query := range []string{"references=true", "wantedSubjects=" + didN(8)} {
		if _, got := s.dialV2("cursor=0&" + query).next(); string(got) != v2Own("references_begin", begin.seq(), begin.timeUS) {
			t.Errorf("%s: references begin: %s", query, got)
		}
	}
	s.dialV2("cursor=0").wantV2References(false, l.all...)
	s.dialV2(fmt.Sprintf("references=true&cursor=%d", l.all[4].seq())).wantV2References(true, l.all[4:]...)
}

// TestV2Heartbeat: a heartbeat has the seq up to which all was sent, wherever the reader is.
func TestV2Heartbeat(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newTestLog(t)
		s := serveBubble(t, l, nil)
		next := func(c *client) string {
			t.Helper()
			_, got := c.next()
			return string(got)
		}
		if got := next(s.dialV2("heartbeat=1")); got != `{"$type":"message","payload":{"$type":"millrace#heartbeat"}}` {
			t.Errorf("the log is empty: %s", got)
		}
		last := l.add(posts(10)...)[9]
		begin := time.Now()
		c := s.dialV2("heartbeat=1&collections=com.example.none&cursor=0")
		for range 2 {
			if got := next(c); got != v2Own("heartbeat", last.seq(), last.timeUS) {
				t.Errorf("heartbeat %s, want %d", got, last.seq())
			}
		}
		if took := time.Since(begin); took < 1900*time.Millisecond || took > 2100*time.Millisecond {
			t.Errorf("two heartbeats within %v", took)
		}
		again := l.add(posts(1)...)[0]
		if got := next(c); got != v2Own("heartbeat", again.seq(), again.timeUS) {
			t.Errorf("heartbeat %s, want %d", got, again.seq())
		}
		c = s.dialV2(fmt.Sprintf("heartbeat=1&collections=com.example.none&kinds=commit&cursor=%d", again.seq()))
		if got := next(c); got != v2Own("heartbeat", again.seq(), again.timeUS) {
			t.Errorf("heartbeat %s, want %d", got, again.seq())
		}
	})
}
