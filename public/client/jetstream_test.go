package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"millrace/public/client"
)

// jetstream is a server without anything of ours: no positions, no info messages, stamps of its
// own.
type jetstream struct {
	after  int64         // µs that it stamps events later than the first instance does
	breaks func(int) int // events until the n-th connection breaks

	mu     sync.Mutex
	conns  int
	events []string
	stamps []int64
}

// add stamps an event. Its JSON is that of a millrace's event.
func (j *jetstream) add(e truth) {
	j.mu.Lock()
	defer j.mu.Unlock()
	us := e.timeUS + j.after
	j.events = append(j.events, timeMember.ReplaceAllString(e.json, fmt.Sprintf(`"time_us":%d`, us)))
	j.stamps = append(j.stamps, us)
}

func (j *jetstream) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.conns
}

func (j *jetstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	cursor := int64(-1)
	if s := r.URL.Query().Get("cursor"); s != "" {
		var err error
		if cursor, err = strconv.ParseInt(s, 10, 64); err != nil {
			http.Error(w, "invalid cursor: "+s, http.StatusBadRequest)
			return
		}
	}
	up := websocket.Upgrader{}
	ws, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer ws.Close()
	j.mu.Lock()
	j.conns++
	left, next := j.breaks(j.conns), 0
	if cursor < 0 {
		next = len(j.events)
	}
	j.mu.Unlock()
	pings := time.NewTicker(5 * time.Millisecond) // while there are no events
	defer pings.Stop()
	for ; left > 0; left-- {
		j.mu.Lock()
		for next < len(j.events) && j.stamps[next] < cursor {
			next++
		}
		event := ""
		if next < len(j.events) {
			event = j.events[next]
			next++
		}
		j.mu.Unlock()
		if event == "" {
			if ws.WriteControl(websocket.PingMessage, nil, time.Now().Add(time.Second)) != nil {
				return
			}
			<-pings.C
			continue
		}
		if ws.WriteMessage(websocket.TextMessage, []byte(event)) != nil {
			return
		}
	}
}

// TestPlainJetstream: a Jetstream breaks connections, and another one with other stamps answers at
// the same address. Each wanted event since the start comes once.
func TestPlainJetstream(t *testing.T) {
	t.Parallel()
	rng := testSeed(t)
	l := newEventLog(t)
	var all []truth
	for i := range 300 {
		for _, e := range l.add(traffic(i, 1)...) {
			e.timeUS = 1_790_000_000_000_000 + int64(len(all))*50_000 // 20 a second
			e.json = strings.Replace(e.json, `"rev":"3kabcdefghi2a"`, fmt.Sprintf(`"rev":"3k%011d"`, len(all)), 1)
			all = append(all, e)
		}
	}
	breaks := func(int) int { return 1 + rng.IntN(120) }
	a := &jetstream{breaks: breaks}
	b := &jetstream{breaks: breaks, after: 130_000}
	for _, e := range all {
		a.add(e)
		b.add(e)
	}
	var mu sync.Mutex // rng's
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		first := rng.IntN(2) == 0
		mu.Unlock()
		if first {
			a.ServeHTTP(w, r)
		} else {
			b.ServeHTTP(w, r)
		}
	}))
	defer srv.Close()
	a.mu.Lock() // as rng is drawn from under either's lock
	a.breaks, b.breaks = locked(&mu, breaks), locked(&mu, breaks)
	a.mu.Unlock()

	start := 100
	c := newClient(t, client.Config{
		URL: srv.URL, Cursor: fmt.Sprint(all[start].timeUS), Kinds: []client.Kind{client.KindCommit},
		OnInfo: func(i client.Info) { t.Errorf("OnInfo got %+v", i) },
	})
	index := map[string]int{}
	var want []int
	for i, e := range all {
		index[timeMember.ReplaceAllString(e.json, "")] = i
		if i >= start && strings.Contains(e.json, `"kind":"commit"`) {
			want = append(want, i)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	before := map[int]bool{}
	for e, err := range c.Events(ctx) {
		if err != nil {
			t.Fatalf("%d events are missing: %v", len(want), err)
		}
		i, ok := index[timeMember.ReplaceAllString(string(e.Raw), "")]
		if !ok || e.Cursor != "" || string(e.AppendPlain(nil)) != string(e.Raw) {
			t.Fatalf("%s %s was never sent", e.Cursor, e.Raw)
		}
		// By the other instance's stamps the start is a little earlier.
		if i < start && i >= start-3 && !before[i] {
			before[i] = true
			continue
		}
		if i != want[0] {
			t.Fatalf("event %d came, want %d", i, want[0])
		}
		if want = want[1:]; len(want) == 0 {
			break
		}
	}
	last := l.add(commit(didN(1), "app.bsky.feed.post", "the last one", "last"))[0]
	last.timeUS = all[len(all)-1].timeUS + 50_000
	a.add(last)
	b.add(last)
	if got := read(t, c, 1); timeMember.ReplaceAllString(string(got[0].Raw), "") != timeMember.ReplaceAllString(last.json, "") {
		t.Errorf("%s came before the last one", got[0].Raw)
	}
	if n := a.count() + b.count(); n < 5 {
		t.Errorf("%d connections", n)
	}
	if !regexp.MustCompile(`^\d{16}$`).MatchString(c.Cursor()) {
		t.Errorf("cursor %q", c.Cursor())
	}
}

func locked(mu *sync.Mutex, f func(int) int) func(int) int {
	return func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return f(n)
	}
}

// A quiet Jetstream sends no heartbeats; its answers to pings are enough.
func TestQuietJetstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, conns := fakeHandler(func(_ int, ws *websocket.Conn) { _ = ws.WriteMessage(websocket.TextMessage, []byte(oneEvent)) })
		c := servePipes(t, h, client.Config{Silence: 3 * time.Second, OnDisconnect: func(err error, _ time.Duration) { t.Error(err) }})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		n := 0
		for e, err := range c.Events(ctx) {
			if err == nil && e.Identity.Seq == 1 {
				n++
			}
		}
		if n != 1 || conns.Load() != 1 {
			t.Errorf("%d events over %d connections", n, conns.Load())
		}
	})
}
