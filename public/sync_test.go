package public

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/public/internal/testframe"
)

// withSyncs makes a log with two #sync events, the events 1 and 4.
func withSyncs(t *testing.T) (l *testLog, all []truth) {
	l = newTestLog(t)
	l.add(create(didN(1), "app.bsky.feed.post", "1", "one"), testframe.Sync(didN(2)))
	l.add(identity(didN(3)))
	l.add(create(didN(2), "com.example.thing", "2", "two"), testframe.Sync(didN(1)), account(didN(1)))
	return l, l.all()
}

// TestSyncsAreAskedFor: only subscribers that ask for #sync events get them, replayed and live, and
// whatever collections they want.
func TestSyncsAreAskedFor(t *testing.T) {
	l, all := withSyncs(t)
	s := serve(t, l, nil)
	queries := map[string][]int{
		"":                                {0, 2, 3, 5},
		"wantedKinds=":                    {0, 2, 3, 5},
		"wantedDids=" + didN(1):           {0, 5},
		"wantedCollections=com.example.*": {2, 3, 5},
		"maxMessageSizeBytes=100000":      {0, 2, 3, 5},
		"wantedKinds=sync":                {1, 4},
		"wantedKinds=sync,identity":       {1, 2, 4},
		"wantedKinds=commit,identity,account,sync":                  {0, 1, 2, 3, 4, 5},
		"wantedKinds=commit,sync&wantedCollections=a.b.c":           {1, 4},
		"wantedKinds=commit&wantedKinds=sync&wantedDids=" + didN(2): {1, 3},
		"wantedKinds=sync&maxMessageSizeBytes=10":                   {},
	}
	clients := make(map[string]*client, len(queries))
	for query, want := range queries {
		c := s.dial("cursor=0&" + query)
		c.want(pick(all, want...)...)
		clients[query] = c
		extended := s.dial("cursor=0&extended=true&" + query)
		extended.wantExtended(pick(all, want...)...)
		extended.info("live")
		compressed := s.dial("cursor=0&compress=true&" + query)
		if query == "wantedKinds=sync&maxMessageSizeBytes=10" {
			continue
		}
		for _, i := range want {
			if kind, p := compressed.next(); kind != websocket.BinaryMessage || decode(t, jetstreams(t), p) != all[i].json {
				t.Errorf("%s: compressed, event %d is %x", query, i, p)
			}
		}
	}
	more := append(l.add(testframe.Sync(didN(2))), l.add(identity(didN(2)), account(didN(1)))...)
	clients[""].want(more[1:]...)
	clients["wantedKinds=commit,identity,account,sync"].want(more...)
	clients["wantedKinds=sync"].want(more[0])
	clients["wantedKinds=sync,identity"].want(more[:2]...)
}

// TestSyncEvent: the event is v1's envelope with the members of the frame.
func TestSyncEvent(t *testing.T) {
	l, all := withSyncs(t)
	want := fmt.Sprintf(`{"did":"%s","time_us":%d,"kind":"sync","sync":{"blocks":{"$bytes":"%s"},"did":"%[1]s","rev":"3kabcdefghi2a","seq":1002,"time":"2026-01-02T03:04:05.678Z"}}`,
		didN(2), all[1].timeUS, syncBlocks(t, all[1]))
	if _, got := serve(t, l, nil).dial("cursor=0&wantedKinds=sync").next(); string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// syncBlocks returns the CAR of a #sync, unpadded base64.
func syncBlocks(t *testing.T, e truth) string {
	t.Helper()
	var event struct {
		Sync struct{ Blocks map[string]string }
	}
	if err := json.Unmarshal([]byte(e.json), &event); err != nil {
		t.Fatal(err)
	}
	car := event.Sync.Blocks["$bytes"]
	if b, err := base64.RawStdEncoding.DecodeString(car); err != nil || len(b) < 100 || len(event.Sync.Blocks) != 1 {
		t.Fatalf("%s: %v", e.json, err)
	}
	return car
}

// TestV2Sync: on v2's wire #sync events come unless other kinds are named.
func TestV2Sync(t *testing.T) {
	l, all := withSyncs(t)
	s := serve(t, l, nil)
	at := time.UnixMicro(all[1].timeUS).UTC().Format("2006-01-02T15:04:05.000000") + "Z"
	want := fmt.Sprintf(`{"$type":"message","payload":{"$type":"network.bsky.jetstream.subscribeEvents#sync","did":"%s","seq":1026048,`+
		`"sync":{"blocks":{"$bytes":"%s"},"did":"%[1]s","rev":"3kabcdefghi2a","seq":1002,"time":"2026-01-02T03:04:05.678Z"},"time":"%[3]s"}}`, didN(2), syncBlocks(t, all[1]), at)
	if _, got := s.dialV2("cursor=0&kinds=sync").next(); string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for query, want := range map[string][]int{
		"": {0, 1, 2, 3, 4, 5}, "kinds=sync": {1, 4}, "kinds=sync&kinds=account": {1, 4, 5}, "kinds=commit": {0, 3}, "dids=" + didN(1): {0, 4, 5},
		"collections=a.b.c": {1, 2, 4, 5}, "collections=com.example.thing&kinds=commit&kinds=sync": {1, 3, 4}, "maxMessageSizeBytes=100000": {0, 1, 2, 3, 4, 5},
	} {
		s.dialV2("cursor=0&" + query).wantV2(pick(all, want...)...)
		d := l.dictionaries.Stored()
		c := s.dialV2(fmt.Sprintf("cursor=0&zstdDictionary=%d&%s", d.ID(), query))
		for _, i := range want {
			if got := c.nextV2(d); got != all[i].v2(t) {
				t.Errorf("%s: event %d is %s", query, i, got)
			}
		}
	}
}

// TestKindsUpdate: an options update replaces the kinds if it names some, or an empty list.
func TestKindsUpdate(t *testing.T) {
	l := newTestLog(t)
	s := serve(t, l, nil)
	c := s.dial("wantedKinds=commit")
	all := func() []truth {
		return l.add(create(didN(1), "app.bsky.feed.post", "a", "one"), testframe.Sync(didN(1)), identity(didN(1)), account(didN(1)))
	}
	c.want(pick(all(), 0)...)
	for i, tc := range []struct {
		payload string
		want    []int
	}{
		{`{"wantedKinds":["sync","commit","sync"]}`, []int{0, 1}},
		{`{"wantedCollections":["a.b.c"]}`, []int{1}}, // the kinds stay
		{`{"wantedKinds":["identity"]}`, []int{2}},
		{`{"wantedKinds":[]}`, []int{0, 2, 3}},
		{`{"wantedKinds":["sync"],"wantedDids":["` + didN(1) + `"]}`, []int{1}},
		{`{"wantedKinds":null}`, []int{0, 2, 3}},
	} {
		c.update(tc.payload)
		s.waitUpdates(i + 1)
		c.want(pick(all(), tc.want...)...)
	}
	c.update(`{"wantedKinds":["post"]}`)
	c.wantClose(1000, "invalid kind")
}
