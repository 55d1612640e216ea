package client_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"millrace/public"
	"millrace/public/client"
)

func testSeed(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("MILLRACE_TEST_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("MILLRACE_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// Everything from the beginning on, then live, then on again after the loop was left: plain and
// compressed, with every field of the envelope.
func TestEvents(t *testing.T) {
	t.Parallel()
	for _, compress := range []bool{false, true} {
		l, s := served(t, traffic(0, 200)...)
		c := newClient(t, client.Config{URL: s.URL, Cursor: "0", Compress: compress})
		check(t, read(t, c, 100), l.all()[:100])
		if got, want := c.Cursor(), l.all()[99].cursor; got != want {
			t.Errorf("cursor %s, want %s", got, want)
		}
		check(t, read(t, c, len(l.all())-100), l.all()[100:])
		check(t, read(t, newClient(t, client.Config{URL: s.URL, Cursor: fmt.Sprint(l.all()[50].timeUS)}), 3), l.all()[50:53])
		live := l.add(traffic(200, 10)...)
		for i, e := range read(t, c, len(live)) {
			checkEnvelope(t, e, live[i])
		}
		checkNoMore(t, c, l)
	}
}

// checkEnvelope holds the typed fields against the JSON.
func checkEnvelope(t *testing.T, e client.Event, want truth) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, `{"did":"%s","time_us":%d,"kind":"%s"`, e.DID, e.TimeUS, e.Kind)
	switch c, i, a := e.Commit, e.Identity, e.Account; {
	case c != nil && i == nil && a == nil:
		fmt.Fprintf(&b, `,"commit":{"rev":"%s","operation":"%s","collection":"%s","rkey":"%s"`, c.Rev, c.Operation, c.Collection, c.RKey)
		if c.Record != nil {
			fmt.Fprintf(&b, `,"record":%s,"cid":"%s"`, c.Record, c.CID)
		}
		b.WriteString("}}")
		if e.URI() != "at://"+e.DID+"/"+c.Collection+"/"+c.RKey {
			t.Errorf("URI %s", e.URI())
		}
	case i != nil && a == nil:
		fmt.Fprintf(&b, `,"identity":{"did":"%s","handle":"%s","seq":%d,"time":"%s"}}`, i.DID, i.Handle, i.Seq, i.Time)
	case a != nil:
		fmt.Fprintf(&b, `,"account":{"active":%t,"did":"%s","seq":%d,"status":"%s","time":"%s"}}`, a.Active, a.DID, a.Seq, a.Status, a.Time)
	case e.Sync != nil:
		fmt.Fprintf(&b, `,"sync":{"blocks":{"$bytes":"%s"},"did":"%s","rev":"%s","seq":%d,"time":"%s"}}`,
			base64.RawStdEncoding.EncodeToString(e.Sync.Blocks), e.Sync.DID, e.Sync.Rev, e.Sync.Seq, e.Sync.Time)
	}
	if b.String() != want.json || e.Cursor != want.cursor {
		t.Errorf("the envelope says\n%s %s\nwant\n%s %s", e.Cursor, &b, want.cursor, want.json)
	}
}

// A proxy cuts connections after any number of bytes, or lets them stall. The server behind it is
// started again and again and changes places with one that lags behind. The events are the truth,
// each once and in order.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, compress := range []bool{false, true} {
		t.Run(fmt.Sprintf("compress=%v", compress), func(t *testing.T) {
			t.Parallel()
			rng := testSeed(t)
			const frames = 900
			logs := []*eventLog{newEventLog(t), newEventLog(t)}
			servers := []*instance{serve(t, logs[0]), serve(t, logs[1])}
			p := newProxy(t, servers[0].addr())
			p.breakBy(randomFaults(rand.New(rand.NewPCG(rng.Uint64(), 1)), 40_000))
			breaks := map[string]int{}
			c := newClient(t, client.Config{
				URL: p.url(), Cursor: "0", Compress: compress, Silence: time.Second,
				OnDisconnect: func(err error, _ time.Duration) {
					what, _, _ := strings.Cut(err.Error(), ":")
					breaks[what]++
				},
				OnInfo: func(i client.Info) {
					if i.Name == client.InfoClamped || i.Name == client.InfoGap {
						t.Errorf("OnInfo got %+v", i)
					}
				},
			})

			ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
			defer cancel()
			logs[0].add(traffic(0, 300)...)
			logs[1].add(traffic(0, 250)...)
			fed := []int{300, 250}
			feed := func(i, n int) {
				n = min(n, frames-fed[i])
				if n > 0 {
					logs[i].add(traffic(fed[i], n)...)
					fed[i] += n
				}
			}
			// In the loop's own goroutine, so that a seed repeats what it can.
			var got []client.Event
			for e, err := range c.Events(ctx) {
				if err != nil {
					t.Fatalf("after %d events: %v", len(got), err)
				}
				got = append(got, e)
				if all := logs[0].all(); fed[0] == frames && fed[1] == frames && len(got) == len(all) {
					break
				}
				// Nobody may get ahead of what there is: feed before it runs dry.
				if i := len(got); i%40 == 0 || i > len(logs[1].all())-5 || i > len(logs[0].all())-5 {
					feed(0, 30)
					feed(1, 20+20*(i%2))
				}
				switch rng.IntN(250) {
				case 0:
					p.to(servers[1].addr())
					p.breakAll()
				case 1:
					p.to(servers[0].addr())
				case 2:
					i := rng.IntN(2)
					servers[i].stop(0)
					servers[i] = serve(t, logs[i])
					p.to(servers[i].addr())
				}
			}
			check(t, got, logs[0].all())
			p.breakBy(nil)
			checkNoMore(t, c, logs...)
			t.Logf("%d events over %d connections: %v", len(got), p.count(), breaks)
			if p.count() < 5 {
				t.Errorf("only %d connections: the proxy did not cut", p.count())
			}
		})
	}
}

// A connection that is cut at each byte of an event in turn.
func TestCutAtEveryByte(t *testing.T) {
	t.Parallel()
	l, s := served(t, identity(didN(1)), identity(didN(2)), account(didN(3)))
	p := newProxy(t, s.addr())
	var cut atomic.Int64
	p.breakBy(func() fault { return fault{cut: int(cut.Add(1))} })
	c := newClient(t, client.Config{URL: p.url(), Cursor: "0", MinBackoff: time.Microsecond, MaxBackoff: time.Millisecond})
	check(t, read(t, c, 3), l.all())
	if cut.Load() < 500 {
		t.Errorf("everything arrived after a cut at %d bytes", cut.Load())
	}
}

// A server that is started again on the same log says so, and one that is live misses nothing of
// what came meanwhile. So it is if nothing had come before.
func TestRestartWhileLive(t *testing.T) {
	t.Parallel()
	for _, before := range []int{0, 5} {
		l, s := served(t, traffic(0, before)...)
		p := newProxy(t, s.addr())
		had := len(l.all())
		told := map[string]int{}
		var last error
		var stopping sync.WaitGroup
		c := newClient(t, client.Config{
			URL:          p.url(),
			OnDisconnect: func(err error, _ time.Duration) { last = errors.Join(last, err) },
			OnInfo: func(i client.Info) {
				told[i.Name]++
				if i.Name == client.InfoLive && told[i.Name] == 1 {
					stopping.Go(func() { s.stop(patience) })
				}
				if i.Name == client.InfoGoingAway {
					l.add(traffic(100, 20)...)
					p.to(serve(t, l).addr())
				}
			},
		})
		check(t, read(t, c, len(l.all())-had+len(newEventLog(t).add(traffic(100, 20)...))), l.all()[had:])
		stopping.Wait()
		var closed *client.ClosedError
		if told[client.InfoLive] < 1 || told[client.InfoGoingAway] != 1 || !errors.As(last, &closed) || closed.Code != 1012 {
			t.Errorf("told %v, ended with %v", told, last)
		}
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	l, s := served(t, traffic(0, 300)...)
	pick := func(ok func(string) bool) (out []truth) {
		for _, e := range l.all() {
			if ok(e.json) {
				out = append(out, e)
			}
		}
		return out
	}
	isCommit := func(s string) bool { return strings.Contains(s, `"kind":"commit"`) }
	many := []string{didN(3)}
	for i := range 2000 { // more than a URL takes
		many = append(many, didN(1000+i))
	}
	for name, tc := range map[string]struct {
		cfg  client.Config
		want func(string) bool
	}{
		"a collection": {client.Config{Options: client.Options{Collections: []string{"app.bsky.feed.like"}}, Kinds: []client.Kind{client.KindCommit}},
			func(s string) bool { return strings.Contains(s, `"collection":"app.bsky.feed.like"`) }},
		"DIDs, by URL": {client.Config{Options: client.Options{DIDs: []string{didN(2), didN(5)}}},
			func(s string) bool { return strings.Contains(s, didN(2)) || strings.Contains(s, didN(5)) }},
		"DIDs, by update": {client.Config{Options: client.Options{DIDs: many}}, func(s string) bool { return strings.Contains(s, didN(3)) }},
		"DIDs, by update, and collections in the URL": {
			client.Config{URL: "/subscribe?wantedCollections=app.bsky.feed.*", Options: client.Options{DIDs: many}, Kinds: []client.Kind{client.KindCommit}},
			func(s string) bool {
				return strings.Contains(s, didN(3)) && strings.Contains(s, `"collection":"app.bsky.feed.`)
			}},
		"kinds": {client.Config{Kinds: []client.Kind{client.KindIdentity, client.KindAccount}},
			func(s string) bool { return !isCommit(s) }},
		"size": {client.Config{Options: client.Options{MaxMessageBytes: 400}, Kinds: []client.Kind{client.KindAccount}},
			func(s string) bool { return strings.Contains(s, `"kind":"account"`) }},
	} {
		tc.cfg.URL, tc.cfg.Cursor = s.URL+tc.cfg.URL, "0"
		c := newClient(t, tc.cfg)
		want := pick(tc.want)
		check(t, read(t, c, len(want)), want)
		l.add(traffic(len(l.all()), 100)...)
		more := pick(tc.want)[len(want):]
		if len(want) == 0 || len(more) == 0 {
			t.Fatalf("%s: nothing to want", name)
		}
		check(t, read(t, c, len(more)), more)
	}
}

// Options that are replaced in mid-stream hold for later connections too.
func TestUpdate(t *testing.T) {
	t.Parallel()
	l, s := served(t)
	p := newProxy(t, s.addr())
	c := newClient(t, client.Config{URL: p.url(), Options: client.Options{DIDs: []string{didN(20)}},
		OnInfo: onceLive(func() { l.add(identity(didN(21)), identity(didN(20))) })})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	var adding sync.WaitGroup
	defer adding.Wait()
	defer cancel()
	var got []string
	for e, err := range c.Events(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.DID)
		switch len(got) {
		case 1:
			if err := c.Update(client.Options{DIDs: []string{didN(21)}}); err != nil {
				t.Fatal(err)
			}
			// The server reads it when it likes: events of the new kind until one comes.
			adding.Go(func() { keepAdding(ctx, l, identity(didN(21))) })
		case 2:
			p.breakAll()
		case 5:
			cancel()
		}
		if len(got) == 5 {
			break
		}
	}
	if want := strings.Repeat(" "+didN(21), 4); strings.Join(got, " ") != didN(20)+want {
		t.Errorf("got %v", got)
	}
	if err := c.Update(client.Options{Collections: make([]string, 101)}); err == nil {
		t.Error("101 collections are taken")
	}
}

// What asking again cannot cure ends the iteration, with the server's own words.
func TestPermanentErrors(t *testing.T) {
	t.Parallel()
	_, s := served(t, traffic(0, 10)...)
	for name, tc := range map[string]struct {
		cfg  client.Config
		want string
	}{
		"collection":     {client.Config{Options: client.Options{Collections: []string{"a b"}}}, "400 Bad Request: invalid subscriber options"},
		"unknown stream": {client.Config{Cursor: "ffffff-1-0"}, "400 Bad Request: invalid subscriber options"},
		"too old":        {client.Config{Cursor: "1", Strict: true}, "400 Bad Request: "},
		"no such path":   {client.Config{URL: s.URL + "/nothing"}, "404 Not Found"},
	} {
		if tc.cfg.URL == "" {
			tc.cfg.URL = s.URL
		}
		var refused *client.RefusedError
		if err := firstError(t, newClient(t, tc.cfg)); !errors.As(err, &refused) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	var c *client.Client
	c = newClient(t, client.Config{URL: s.URL, OnInfo: onceLive(func() { c.Update(client.Options{Collections: []string{"a b"}}) })})
	var closed *client.ClosedError
	if err := firstError(t, c); !errors.As(err, &closed) || closed.Code != 1000 || !strings.Contains(closed.Reason, "a b") {
		t.Errorf("a bad update ends with %v", err)
	}
}

// onceLive returns an OnInfo that does something when the server first says that the client is
// live.
func onceLive(do func()) func(client.Info) {
	var once sync.Once
	return func(i client.Info) {
		if i.Name == client.InfoLive {
			once.Do(do)
		}
	}
}

// firstError reads until an error comes.
func firstError(t *testing.T, c *client.Client) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return firstErrorOf(ctx, c)
}

func firstErrorOf(ctx context.Context, c *client.Client) error {
	for _, err := range c.Events(ctx) {
		if err != nil {
			return err
		}
	}
	return nil
}

// 429, 503 and the like are asked again, but not before the server wants to be.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	l := newEventLog(t, traffic(0, 3)...)
	for _, status := range []int{429, 503, 502} {
		srv := httptest.NewServer(refusing(1, status, http.Header{"Retry-After": {"1"}}, "later", serve(t, l).public.Handler()))
		var waits []time.Duration
		begin := time.Now()
		c := newClient(t, client.Config{URL: srv.URL, Cursor: "0", OnDisconnect: func(_ error, wait time.Duration) { waits = append(waits, wait) }})
		check(t, read(t, c, 3), l.all()[:3])
		if len(waits) != 1 || waits[0] < time.Second || time.Since(begin) < time.Second {
			t.Errorf("%d: waited %v", status, waits)
		}
		srv.Close()
	}
}

// A client that has been served does not give up at the first instance that does not know what it
// asks for.
func TestRefusedByOneInstance(t *testing.T) {
	t.Parallel()
	l, s := served(t, traffic(0, 20)...)
	unknown := httptest.NewServer(refusing(3, 400, nil, "never heard of it", s.public.Handler()))
	defer unknown.Close()
	p := newProxy(t, s.addr())
	c := newClient(t, client.Config{URL: p.url(), Cursor: "0"})
	check(t, read(t, c, 7), l.all()[:7])
	p.to(strings.TrimPrefix(unknown.URL, "http://"))
	check(t, read(t, c, 5), l.all()[7:12])

	all := httptest.NewServer(refusing(1<<30, 400, nil, "never heard of it", nil))
	defer all.Close()
	p.to(strings.TrimPrefix(all.URL, "http://"))
	p.breakAll()
	c.SetPatience(100 * time.Millisecond)
	begin := time.Now()
	var err error
	for _, err = range c.Events(t.Context()) {
	}
	var refused *client.RefusedError
	if took := time.Since(begin); !errors.As(err, &refused) || refused.Reason != "never heard of it" || took < 100*time.Millisecond {
		t.Errorf("all instances refuse it: %v after %v", err, took)
	}
}

// Silence of a connection that stalls is noticed; the loop's own slowness is none.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newEventLog(t, traffic(0, 3)...)
		all := l.all()
		p, err := public.New(public.Config{Log: l.Log, Dictionaries: l.dictionaries})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Shutdown(t.Context())
		stalls, up := true, websocket.Upgrader{}
		var ends []error
		begin := time.Now()
		c := servePipes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !stalls {
				p.Handler().ServeHTTP(w, r)
				return
			}
			stalls = false
			ws, err := up.Upgrade(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer ws.Close()
			_ = ws.WriteMessage(websocket.TextMessage, []byte(strings.TrimSuffix(all[0].json, "}")+`,"cursor":"`+all[0].cursor+`"}`))
			_, _ = io.Copy(io.Discard, ws.NetConn()) // pings are not answered
		}), client.Config{Cursor: "0", Silence: 5 * time.Second, OnDisconnect: func(err error, _ time.Duration) { ends = append(ends, err) }})
		check(t, read(t, c, len(all)), all)
		if took := time.Since(begin); len(ends) != 1 || !errors.Is(ends[0], client.ErrSilent) || took < 5*time.Second || took > 6*time.Second {
			t.Errorf("connections ended with %v, within %v", ends, took)
		}
		ends = nil
		slow := servePipes(t, p.Handler(), client.Config{
			Cursor: "0", Silence: 3 * time.Second, OnDisconnect: func(err error, _ time.Duration) { ends = append(ends, err) },
		})
		n := 0
		for range slow.Events(t.Context()) {
			if n++; n == len(all) {
				break
			}
			time.Sleep(3600 * time.Millisecond / time.Duration(n*n))
		}
		if len(ends) > 0 {
			t.Errorf("connections of a slow loop ended with %v", ends)
		}
	})
}

// A heartbeat takes the cursor along while nothing matches.
func TestHeartbeatMovesTheCursor(t *testing.T) {
	t.Parallel()
	l, s := served(t, traffic(0, 10)...)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var c *client.Client
	c = newClient(t, client.Config{
		URL: s.URL, Cursor: "0", Options: client.Options{DIDs: []string{didN(99)}}, Heartbeat: time.Second,
		OnInfo: func(i client.Info) {
			all := l.all()
			if i.Name == client.InfoLive {
				l.add(traffic(10, 1)...)
			}
			if i.Name == client.InfoHeartbeat && i.Cursor == all[len(all)-1].cursor && c.Cursor() == i.Cursor {
				cancel()
			}
		},
	})
	if err := firstErrorOf(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("no heartbeat took the cursor along: %v", err)
	}
}

// The dictionary is fetched once, and found in the directory by the next client; what is broken
// there is fetched anew.
func TestDictionaryCache(t *testing.T) {
	t.Parallel()
	l, s := served(t, traffic(0, 10)...)
	var fetched atomic.Int64
	counting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/dictionaries/") {
			fetched.Add(1)
		}
		s.public.Handler().ServeHTTP(w, r)
	}))
	defer counting.Close()
	dir := filepath.Join(t.TempDir(), "made")
	cfg := client.Config{URL: counting.URL, Cursor: "0", Compress: true, DictionaryDir: dir}
	p := newProxy(t, strings.TrimPrefix(counting.URL, "http://"))
	c := newClient(t, cfg)
	check(t, read(t, c, 5), l.all()[:5])
	check(t, read(t, c, 5), l.all()[5:10])
	check(t, read(t, newClient(t, cfg), 5), l.all()[:5])
	if fetched.Load() != 1 {
		t.Errorf("fetched %d times, want once", fetched.Load())
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v in the directory, want one file", files, err)
	}
	if err := os.WriteFile(filepath.Join(dir, files[0].Name()), []byte("broken"), 0o644); err != nil {
		t.Fatal(err)
	}
	check(t, read(t, newClient(t, cfg), 5), l.all()[:5])
	cfg.URL = p.url() // another server, for all that is known
	check(t, read(t, newClient(t, cfg), 5), l.all()[:5])
	if fetched.Load() != 3 {
		t.Errorf("fetched %d times, want 3", fetched.Load())
	}
	cut := filepath.Join(dir, files[0].Name())
	whole, err := os.ReadFile(cut)
	if err == nil {
		err = os.WriteFile(cut, whole[:len(whole)-17], 0o644) // its ID is right
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg.URL = counting.URL
	check(t, read(t, newClient(t, cfg), 5), l.all()[:5])
	if again, err := os.ReadFile(cut); fetched.Load() != 4 || !bytes.Equal(again, whole) {
		t.Errorf("a cut dictionary: fetched %d times, %d of %d bytes are kept, %v", fetched.Load(), len(again), len(whole), err)
	}
}

func TestRange(t *testing.T) {
	t.Parallel()
	l, s := served(t)
	c := newClient(t, client.Config{URL: s.URL})
	if r, err := c.Range(t.Context()); err != nil || r.Oldest != nil || r.Newest != nil || r.Retention != 36*time.Hour {
		t.Errorf("empty log: %+v, %v", r, err)
	}
	all := l.add(traffic(0, 10)...)
	r, err := c.Range(t.Context())
	if err != nil || *r.Oldest != (client.Point{TimeUS: all[0].timeUS, Cursor: all[0].cursor}) || r.Newest.Cursor != all[len(all)-1].cursor {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestOneLoopAtATime(t *testing.T) {
	t.Parallel()
	_, s := served(t, traffic(0, 2)...)
	c := newClient(t, client.Config{URL: s.URL, Cursor: "0"})
	for range c.Events(t.Context()) {
		if err := firstError(t, c); !errors.Is(err, client.ErrRunning) {
			t.Errorf("a second loop ended with %v", err)
		}
		break
	}
}
