package public

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"millrace/dict"
	"millrace/replay"
	"millrace/translate"
)

const otherDictionaryID = 77_777

// otherDictionary is another than the built-in one: half of its content is missing.
func otherDictionary(t testing.TB) *dict.Dictionary {
	t.Helper()
	d := dict.BuiltIn()
	raw := bytes.Clone(d.Bytes()[:len(d.Bytes())-len(d.Content())/2])
	binary.LittleEndian.PutUint32(raw[4:], otherDictionaryID)
	other, err := dict.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return other
}

// restartable is a log with a server, on a disk that both can be started on again.
type restartable struct {
	t   *testing.T
	fs  vfs.FS
	now time.Time
	l   *testLog
	s   *testServer
}

// restart ends what runs and starts it with d as the stored dictionary, and no other at hand.
func (r *restartable) restart(d *dict.Dictionary) {
	r.t.Helper()
	next := &testLog{t: r.t, seq: 1000}
	if r.l != nil {
		ctx, cancel := context.WithTimeout(r.t.Context(), patience())
		defer cancel()
		if err := r.s.Shutdown(ctx); err != nil {
			r.t.Fatal(err)
		}
		if err := r.l.Close(); err != nil {
			r.t.Fatal(err)
		}
		next.seq, next.events = r.l.seq, r.l.events
	}
	var err error
	if next.dictionaries, err = dict.NewRegistry(d, jetstreams(r.t)); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(next.dictionaries.Close)
	next.Log, err = replay.Open(replay.Config{
		Dir: "log", FS: r.fs, Relay: "relay.test", Retention: 36 * time.Hour, Dictionaries: next.dictionaries,
		Now: func() time.Time { return r.now },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = next.Close() })
	if next.translator, err = translate.New(translate.Config{}); err != nil {
		r.t.Fatal(err)
	}
	next.stamper = replay.NewStamper(next.Progress().TimeUS, nil)
	r.l, r.s = next, serve(r.t, next, nil)
}

// list returns what /dictionaries says.
func (r *restartable) list() []dictionaryJSON {
	r.t.Helper()
	var answer struct{ Dictionaries []dictionaryJSON }
	if err := json.Unmarshal(r.s.get("GET", "/dictionaries", nil).Body.Bytes(), &answer); err != nil {
		r.t.Fatal(err)
	}
	return answer.Dictionaries
}

// entry is a line of the list for d.
func entry(d *dict.Dictionary, stored, inLog bool, since time.Time) dictionaryJSON {
	j := dictionaryJSON{ID: d.ID(), Bytes: len(d.Bytes()), SHA256: fmt.Sprintf("%x", d.SHA256()), Stored: stored, InLog: inLog,
		URL: fmt.Sprintf("/dictionaries/%d", d.ID())}
	if !since.IsZero() {
		j.Since = &since
	}
	return j
}

// readers are subscribers from the oldest event on: plain, with compress=true, and with each of ds.
func (r *restartable) readers(what string, ds ...*dict.Dictionary) (read func(events []truth)) {
	r.t.Helper()
	type subscription struct {
		query string
		d     *dict.Dictionary // nil: plain
	}
	all := []subscription{{"", nil}, {"&compress=true", jetstreams(r.t)}}
	for _, d := range ds {
		all = append(all, subscription{fmt.Sprintf("&zstdDictionary=%d", d.ID()), d})
	}
	var clients []*client
	for _, sub := range all {
		c, resp := r.s.dialWith(&websocket.Dialer{}, "cursor=0"+sub.query, nil)
		want := ""
		if sub.d != nil {
			want = fmt.Sprint(sub.d.ID())
		}
		if got := resp.Header.Get(headerDictionary); got != want {
			r.t.Errorf("%s: cursor=0%s: the response names dictionary %q, want %q", what, sub.query, got, want)
		}
		clients = append(clients, c)
	}
	return func(events []truth) {
		r.t.Helper()
		for i, sub := range all {
			for n, e := range events {
				kind, p := clients[i].next()
				got, wantKind := string(p), websocket.TextMessage
				if sub.d != nil {
					got, wantKind = decode(r.t, sub.d, p), websocket.BinaryMessage
				}
				if got != e.json || kind != wantKind {
					r.t.Fatalf("%s: cursor=0%s: event %d is kind %d, %s\nwant %s", what, sub.query, n, kind, got, e.json)
				}
			}
			clients[i].Close()
		}
	}
}

// decode decompresses a message of a compressed connection.
func decode(t testing.TB, d *dict.Dictionary, payload []byte) string {
	t.Helper()
	dec, err := dict.NewDecoder(1<<20, d)
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	out, err := dec.Append(nil, payload)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestCompressed: whichever dictionary is stored, compress=true and its header mean Jetstream's.
func TestCompressed(t *testing.T) {
	for _, stored := range []*dict.Dictionary{dict.BuiltIn(), jetstreams(t), otherDictionary(t)} {
		t.Run(fmt.Sprintf("stored %d", stored.ID()), func(t *testing.T) {
			r := &restartable{t: t, fs: vfs.NewMem(), now: time.Now()}
			r.restart(stored)
			all := append(r.l.add(posts(20)...), r.l.add(identity(didN(1)))...)
			byHeader := func(v string) *client {
				c, _ := r.s.dialWith(&websocket.Dialer{}, "cursor=0", http.Header{"Socket-Encoding": {v}})
				return c
			}
			for _, c := range []*client{r.s.dial("cursor=0&compress=true"), byHeader("zstd"), byHeader("gzip, zstd")} {
				for i, e := range all {
					kind, p := c.next()
					if got := decode(t, jetstreams(t), p); kind != websocket.BinaryMessage || got != e.json {
						t.Fatalf("event %d: kind %d, %s\nwant %s", i, kind, got, e.json)
					}
				}
			}
			r.s.dial("cursor=0&compress=1").want(all...)
			byHeader("gzip").want(all...)
		})
	}
}

// TestDictionaryChange: the dictionary of a log on disk is replaced, and the old file is gone. A
// subscriber that reads across the change gets the dictionary it asked for; the old one is served
// until no block needs it.
func TestDictionaryChange(t *testing.T) {
	older, newer := dict.BuiltIn(), otherDictionary(t)
	began := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC)
	r := &restartable{t: t, fs: vfs.NewMem(), now: began}
	r.restart(older)
	r.l.add(posts(20)...)
	v1 := entry(jetstreams(t), false, false, time.Time{}) // always there, though not in the log
	want := []dictionaryJSON{entry(older, true, true, began), v1}
	if diff := cmp.Diff(want, r.list()); diff != "" {
		t.Errorf("before the change: -want +got\n%s", diff)
	}
	before := r.l.Range().Bytes

	changed := began.Add(time.Hour)
	r.now = changed
	r.restart(newer)
	read := r.readers("live across the change", older, newer)
	r.l.add(posts(20)...)
	read(r.l.all())
	want = []dictionaryJSON{entry(older, false, true, began), entry(newer, true, true, changed), v1}
	if diff := cmp.Diff(want, r.list()); diff != "" {
		t.Errorf("after the change: -want +got\n%s", diff)
	}

	r.now = changed.Add(time.Hour)
	r.restart(newer)
	r.readers("after a restart", older, newer)(r.l.all())
	if diff := cmp.Diff(want, r.list()); diff != "" {
		t.Errorf("after a restart: -want +got\n%s", diff)
	}
	path := fmt.Sprintf("/dictionaries/%d", older.ID())
	if w := r.s.get("GET", path, nil); w.Code != http.StatusOK || !bytes.Equal(w.Body.Bytes(), older.Bytes()) {
		t.Errorf("the older one: %d, %d bytes", w.Code, w.Body.Len())
	}

	if err := r.l.TrimTo(t.Context(), r.l.Range().Bytes-before); err != nil {
		t.Fatal(err)
	}
	want = []dictionaryJSON{entry(older, false, false, time.Time{}), entry(newer, true, true, changed), v1}
	if diff := cmp.Diff(want, r.list()); diff != "" {
		t.Errorf("after a trim: -want +got\n%s", diff)
	}
	r.readers("after a trim", older, newer)(r.l.all()[20:])

	r.restart(newer)
	r.readers("after a trim and a restart", newer)(r.l.all()[20:])
	if diff := cmp.Diff(want[1:], r.list()); diff != "" {
		t.Errorf("after a trim and a restart: -want +got\n%s", diff)
	}
	if w := r.s.get("GET", path, nil); w.Code != http.StatusNotFound {
		t.Errorf("the older one: %d", w.Code)
	}
	r.s.want400(fmt.Sprintf("zstdDictionary=%d", older.ID()), fmt.Sprintf("stored one is %d", newer.ID()))
}
