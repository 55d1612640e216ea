package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"millrace/dict"
	"millrace/public/client"
	"millrace/translate"
)

// v2Seq is the seq of an event on v2's wire, in a log of one epoch.
func (e truth) v2Seq(t *testing.T) string {
	t.Helper()
	p, err := translate.ParsePosition(e.cursor)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatInt(p.Seq<<10|int64(p.Op), 10)
}

// checkV2 compares events of v2's wire with the truth.
func checkV2(t *testing.T, got []client.Event, want []truth) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d events, want %d", len(got), len(want))
	}
	for i, e := range got {
		w := want[i]
		w.cursor = w.v2Seq(t)
		checkEnvelope(t, e, w)
	}
}

// Of a server of v2's wire all events come once, in order, and say what they say on v1's: through
// breaks and a change of the server, plain and compressed.
func TestV2(t *testing.T) {
	for _, compress := range []bool{false, true} {
		t.Run(fmt.Sprintf("compress=%t", compress), func(t *testing.T) {
			t.Parallel()
			rng, most := testSeed(t), 60_000
			if compress {
				most = 300_000 // the dictionary must come through
			}
			a, b := newEventLog(t), newEventLog(t)
			first, second := serve(t, a), serve(t, b)
			p := newProxy(t, first.addr())
			a.add(traffic(0, 300)...)
			b.add(traffic(0, 300)...)
			var mu sync.Mutex
			p.breakBy(func() fault {
				mu.Lock()
				defer mu.Unlock()
				return randomFaults(rng, most)()
			})
			c := newClient(t, client.Config{
				URL: p.url() + client.V2Path, Cursor: "0", Compress: compress, Silence: time.Second, OnDisconnect: func(error, time.Duration) {},
			})
			got := read(t, c, len(a.all())/2)
			p.to(second.addr())
			first.stop(0)
			got = append(got, read(t, c, len(a.all())-len(got))...)
			want := append(a.all()[:len(a.all())/2], b.all()[len(a.all())/2:]...)
			checkV2(t, got, want)
			p.breakBy(nil)
			next := b.add(identity(didN(1)))
			checkV2(t, read(t, c, 1), next)

			half := len(want) / 2
			again := newClient(t, client.Config{URL: second.URL + client.V2Path, Cursor: want[half-1].v2Seq(t), Compress: compress})
			checkV2(t, read(t, again, half), b.all()[half:2*half])
			at := newClient(t, client.Config{URL: second.URL + client.V2Path, Cursor: strconv.FormatInt(b.all()[half].timeUS, 10)})
			checkV2(t, read(t, at, half), b.all()[half:2*half])
		})
	}
}

// Filters go into the request, however long that is. An update takes another connection.
func TestV2Filters(t *testing.T) {
	t.Parallel()
	l, s := served(t, traffic(0, 300)...)
	pick := func(of ...string) (picked []truth) {
		for _, e := range l.all() {
			for _, s := range of {
				if strings.Contains(e.json, s) {
					picked = append(picked, e)
					break
				}
			}
		}
		return picked
	}
	likes := pick(`"app.bsky.feed.like"`)
	c := newClient(t, client.Config{
		URL: s.URL + client.V2Path, Cursor: "0", Kinds: []client.Kind{client.KindCommit},
		Options: client.Options{Collections: []string{"app.bsky.feed.like"}},
	})
	checkV2(t, read(t, c, len(likes)), likes)

	dids := []string{didN(3)}
	for len(dids) < client.MaxDIDs {
		dids = append(dids, didN(1000+len(dids)))
	}
	var reasons []string
	c = newClient(t, client.Config{URL: s.URL + client.V2Path, Cursor: "0", Options: client.Options{DIDs: dids},
		OnDisconnect: func(err error, _ time.Duration) { reasons = append(reasons, err.Error()) }})
	want := pick(`{"did":"` + didN(3))
	l.add(identity(didN(4)), identity(didN(5)))
	l.add(identity(didN(4)))
	after := pick(`{"did":"` + didN(4))
	var got []client.Event
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for e, err := range c.Events(ctx) {
		if err != nil {
			t.Fatalf("after %d events: %v", len(got), err)
		}
		if got = append(got, e); len(got) == len(want) {
			if err := c.Update(client.Options{DIDs: []string{didN(4)}}); err != nil {
				t.Fatal(err)
			}
		}
		if e.Cursor == after[len(after)-1].v2Seq(t) {
			break
		}
	}
	last := want[len(want)-1]
	for _, e := range after {
		if e.timeUS > last.timeUS {
			want = append(want, e)
		}
	}
	checkV2(t, got, want)
	if len(reasons) != 1 || reasons[0] != "the options have changed" {
		t.Errorf("disconnected by %q", reasons)
	}

	limited := newClient(t, client.Config{URL: s.URL + client.V2Path, Cursor: "0", Options: client.Options{MaxMessageBytes: 500}})
	for _, e := range read(t, limited, 50) {
		if len(e.Raw) > 500 {
			t.Errorf("an event has %d bytes", len(e.Raw))
		}
	}
}

// v2Message is a message of v2's wire.
func v2Message(payload string) []byte {
	return []byte(`{"$type":"message","payload":{"$type":"` + payload + `}}`)
}

func v2Account(seq int) []byte {
	return v2Message(fmt.Sprintf(`network.bsky.jetstream.subscribeEvents#account","account":{"active":true,"did":"did:plc:a","seq":7,"time":"t"},`+
		`"did":"did:plc:a","seq":%d,"time":"2026-08-01T02:03:04.000005Z"`, seq))
}

// v2Server answers the handshakes that it takes with what say says; the others, and other requests,
// are for refuse.
func v2Server(t *testing.T, refuse func(w http.ResponseWriter, r *http.Request) bool, say func(n int, q url.Values, ws *websocket.Conn)) string {
	t.Helper()
	up, n := websocket.Upgrader{Subprotocols: []string{"xrpc.v1.json"}}, 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse(w, r) {
			return
		}
		ws, err := up.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		defer ws.Close()
		if ws.Subprotocol() == "" {
			t.Error("the client offers no subprotocol")
		}
		n++ // a connection after the other
		say(n, r.URL.Query(), ws)
	}))
	t.Cleanup(srv.Close)
	return srv.URL + client.V2Path
}

func v2Refusal(w http.ResponseWriter, name, message string) bool {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	fmt.Fprintf(w, `{"error":%q,"message":%q}`, name, message)
	return true
}

// What a server of v2's wire says beside events: errors end the connection, and no more; what is
// not known is left out.
func TestV2Messages(t *testing.T) {
	t.Parallel()
	var asked []string
	var infos []client.Info
	address := v2Server(t, func(http.ResponseWriter, *http.Request) bool { return false }, func(n int, q url.Values, ws *websocket.Conn) {
		asked = append(asked, q.Get("cursor"))
		say := func(m []byte) { _ = ws.WriteMessage(websocket.TextMessage, m) }
		if n == 1 {
			say(v2Message(`network.bsky.jetstream.subscribeEvents#info","message":"old","name":"OutdatedCursor"`))
			say(v2Message(`network.bsky.jetstream.subscribeEvents#info","name":"Other"`))
			say(v2Message(`somebody.else#event","seq":"none","did":1`))
			say(v2Account(8))
			say([]byte(`{"$type":"error","error":"ConsumerTooSlow","message":"read faster"}`))
			return
		}
		say(v2Account(7))
		say(v2Account(8))
		say(v2Message(`network.bsky.jetstream.subscribeEvents#sync","did":"did:plc:a","seq":9,"sync":{"blocks":{"$bytes":"AA"}},"time":"2026-08-01T02:03:04.000006Z"`))
	})
	var ended []string
	c := newClient(t, client.Config{
		URL: address, Cursor: "5", OnInfo: func(i client.Info) { i.Raw = nil; infos = append(infos, i) },
		OnDisconnect: func(err error, _ time.Duration) { ended = append(ended, err.Error()) },
	})
	got := read(t, c, 2)
	if got[0].Cursor != "8" || got[0].TimeUS != 1785549784000005 || got[0].Account == nil || !got[0].Account.Active || got[0].Account.Seq != 7 {
		t.Errorf("the first event is %+v", got[0])
	}
	if got[1].Cursor != "9" || got[1].Kind != "sync" || string(got[1].AppendPlain(nil)) != string(got[1].Raw) {
		t.Errorf("the second event is %+v", got[1])
	}
	if diff := cmp.Diff([]client.Info{{Name: client.InfoClamped, Message: "old"}, {Name: "Other"}, {}}, infos); diff != "" {
		t.Errorf("infos (-want +got):\n%s", diff)
	}
	if len(ended) != 1 || !strings.Contains(ended[0], "ConsumerTooSlow: read faster") {
		t.Errorf("disconnected by %q", ended)
	}
	if diff := cmp.Diff([]string{"5", "8"}, asked); diff != "" {
		t.Errorf("cursors (-want +got):\n%s", diff)
	}
}

// TestV2Own: what a millrace adds to v2's wire is asked for and read. The client goes on after a
// heartbeat.
func TestV2Own(t *testing.T) {
	t.Parallel()
	var asked []string
	var infos []client.Info
	address := v2Server(t, func(http.ResponseWriter, *http.Request) bool { return false }, func(n int, q url.Values, ws *websocket.Conn) {
		asked = append(asked, fmt.Sprint(q.Get("cursor"), q.Get("heartbeat"), q.Get("references"), q["wantedSubjects"], q["wantedSubjectDids"], q["wantedSources"]))
		say := func(m []byte) { _ = ws.WriteMessage(websocket.TextMessage, m) }
		if n == 1 {
			say(v2Message(`millrace#references_begin","seq":3,"time":"2026-08-01T02:03:04.000003Z"`))
			say(v2Message(`millrace#heartbeat"`))
			say(v2Message(`millrace#heartbeat","seq":6,"time":"2026-08-01T02:03:04.000005Z"`))
			return
		}
		say(v2Account(6))
		say(v2Message(`network.bsky.jetstream.subscribeEvents#commit","collection":"a.b.c","deleted_references":[{"source":"a.b.c:y","uid":"6"}],"did":"did:plc:a",` +
			`"operation":"delete","references":[{"source":"a.b.c:x","subject":"did:web:y.test","uid":"5"}],"rev":"r","rkey":"k","seq":9,"time":"2026-08-01T02:03:04.000006Z"`))
	})
	c := newClient(t, client.Config{
		URL: address, Cursor: "5", References: true, Heartbeat: 7 * time.Second, OnDisconnect: func(error, time.Duration) {},
		Options: client.Options{Subjects: []string{"did:plc:s"}, SubjectDIDs: []string{"did:plc:d"}, Sources: []string{"a.b.c:x"}},
		OnInfo:  func(i client.Info) { i.Raw = nil; infos = append(infos, i) },
	})
	e := read(t, c, 1)[0]
	if e.Cursor != "9" || len(e.References) != 1 || e.References[0] != (client.Reference{Source: "a.b.c:x", Subject: "did:web:y.test", UID: 5}) ||
		len(e.DeletedReferences) != 1 || e.DeletedReferences[0] != (client.Reference{Source: "a.b.c:y", UID: 6}) {
		t.Errorf("the event is %+v", e)
	}
	if diff := cmp.Diff([]client.Info{
		{Name: client.InfoReferencesBegin, Cursor: "3", TimeUS: 1785549784000003}, {Name: client.InfoHeartbeat},
		{Name: client.InfoHeartbeat, Cursor: "6", TimeUS: 1785549784000005},
	}, infos); diff != "" {
		t.Errorf("infos (-want +got):\n%s", diff)
	}
	const rest = "7true[did:plc:s] [did:plc:d] [a.b.c:x]"
	if diff := cmp.Diff([]string{"5" + rest, "6" + rest}, asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// A seq that is older than the log: the client begins with the oldest event, or strictly ends.
func TestV2CursorTooOld(t *testing.T) {
	t.Parallel()
	address := v2Server(t, func(w http.ResponseWriter, r *http.Request) bool {
		cursor := r.URL.Query().Get("cursor") // 6: the event after the cursor
		return (cursor == "5" || cursor == "6") && v2Refusal(w, "CursorTooOld", "the log begins at 7")
	}, func(_ int, q url.Values, ws *websocket.Conn) {
		if q.Get("cursor") != "1000000000000000" {
			t.Errorf("cursor %s", q.Get("cursor"))
		}
		_ = ws.WriteMessage(websocket.TextMessage, v2Message(`network.bsky.jetstream.subscribeEvents#info","message":"old","name":"OutdatedCursor"`))
		_ = ws.WriteMessage(websocket.TextMessage, v2Account(7))
	})
	clamped := 0
	c := newClient(t, client.Config{URL: address, Cursor: "5", OnInfo: func(i client.Info) {
		if i.Name == client.InfoClamped {
			clamped++
		}
	}})
	if got := read(t, c, 1); got[0].Cursor != "7" || clamped != 1 {
		t.Errorf("seq %s, clamped %d times", got[0].Cursor, clamped)
	}
	for cursor, want := range map[string]string{"5": "CursorTooOld: the log begins at 7", "1000000000000000": "the cursor is older than the server's log"} {
		c := newClient(t, client.Config{URL: address, Cursor: cursor, Strict: true})
		if err := firstError(t, c); !strings.HasSuffix(err.Error(), want) {
			t.Errorf("cursor %s: %v", cursor, err)
		}
	}
}

// The event of the cursor was trimmed, as after days without one, but nothing after it.
func TestV2CursorJustTrimmed(t *testing.T) {
	t.Parallel()
	address := v2Server(t, func(w http.ResponseWriter, r *http.Request) bool {
		return r.URL.Query().Get("cursor") == "5" && v2Refusal(w, "CursorTooOld", "the log is empty")
	}, func(_ int, q url.Values, ws *websocket.Conn) {
		if q.Get("cursor") != "6" {
			t.Errorf("cursor %s", q.Get("cursor"))
		}
		_ = ws.WriteMessage(websocket.TextMessage, v2Account(7))
	})
	c := newClient(t, client.Config{URL: address, Cursor: "5", Strict: true})
	if got := read(t, c, 1); got[0].Cursor != "7" {
		t.Errorf("seq %s", got[0].Cursor)
	}
}

// The dictionary is the server's, by its ID, and a new one if the server has changed it.
func TestV2Dictionaries(t *testing.T) {
	t.Parallel()
	registry, err := dict.NewRegistry(dict.BuiltIn(), jetstreams(t))
	if err != nil {
		t.Fatal(err)
	}
	defer registry.Close()
	served := []*dict.Dictionary{dict.BuiltIn(), jetstreams(t)}
	var fetched []string
	address := v2Server(t, func(w http.ResponseWriter, r *http.Request) bool {
		q := r.URL.Query()
		switch {
		case strings.HasSuffix(r.URL.Path, ".getZstdDictionary"):
			fetched = append(fetched, r.URL.RawQuery)
			_, _ = w.Write(served[0].Bytes())
			if len(served) > 1 {
				served = served[1:]
			}
			return true
		case q.Get("zstdDictionary") != strconv.FormatUint(uint64(served[0].ID()), 10):
			return v2Refusal(w, "UnknownZstdDictionary", "it has changed")
		}
		return false
	}, func(_ int, q url.Values, ws *websocket.Conn) {
		enc, err := registry.Encoder(jetstreams(t).ID())
		if err != nil {
			t.Error(err)
			return
		}
		_ = ws.WriteMessage(websocket.BinaryMessage, enc.Append(nil, v2Account(7)))
	})
	c := newClient(t, client.Config{URL: address, Compress: true})
	if got := read(t, c, 1); got[0].Cursor != "7" {
		t.Errorf("seq %s", got[0].Cursor)
	}
	if diff := cmp.Diff([]string{"", ""}, fetched); diff != "" {
		t.Errorf("fetched (-want +got):\n%s", diff)
	}
	refusing := v2Server(t, func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, ".getZstdDictionary") {
			_, _ = w.Write(dict.BuiltIn().Bytes())
			return true
		}
		return v2Refusal(w, "UnknownZstdDictionary", "none is known")
	}, nil)
	if err := firstError(t, newClient(t, client.Config{URL: refusing, Compress: true})); !strings.Contains(err.Error(), "none is known") {
		t.Errorf("ends with %v", err)
	}
}

// What v2's wire does not have is refused by the client.
func TestV2Config(t *testing.T) {
	for want, cfg := range map[string]client.Config{
		"field Cursor": {Cursor: "b7e1c0-1-0"},
	} {
		cfg.URL = "localhost" + client.V2Path
		if _, err := client.New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
