package public

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/replay/links"
	"millrace/replay/references"
)

// hostileText is what a post might say.
const hostileText = `</bdi></li><img src=x onerror="document.title='taken'"><script>document.title='taken'</script> ‮txt`

// feed appends a block of events of five accounts now and then, until the returned function is
// called.
func feed(l *testLog) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; n++ {
			rkey := fmt.Sprintf("3l%011d", n)
			l.add(
				create(didN(1), "app.bsky.feed.post", rkey, hostileText),
				create(didN(2), "app.bsky.feed.like", rkey, fmt.Sprint("like ", n)),
				create(didN(3), "app.bsky.graph.follow", rkey, fmt.Sprint("follow ", n)),
				create(didN(4), "com.example."+strings.Repeat("long", 15), rkey, strings.Repeat("wide", 200)),
				identity(didN(5)),
			)
			select {
			case <-ended:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return func() { close(ended); <-done }
}

const (
	// cells returns an expression for the distinct contents of a column of the live view.
	cells = `[...new Set([...document.querySelectorAll('#events .%s')].map((e) => e.%s))].sort().join()`
	press = `[...document.querySelectorAll('button')].find((b) => b.textContent === %q).click()`
)

// TestPage drives the page in Chromium: it renders, updates, filters, pauses, and leaves what it
// shows text.
func TestPage(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	l := newTestLog(t)
	stop := feed(l)
	defer stop()
	s := serve(t, l, func(cfg *Config, _ *timing) {
		cfg.Process = func() Process {
			return Process{Relay: &Relay{Host: "relay.test", Connected: true, Since: time.Now()}, UIDs: &UIDCount{Total: 1234567}}
		}
	})
	p := b.open("http://"+s.addr+"/", 1280)
	p.until("it renders", `document.querySelectorAll('#legend li').length === 5 && document.querySelector('#chart svg') !== null`)
	for selector, want := range map[string]string{
		"#state-text": "Following relay.test", "#uids-total": "1,234,567", "#server": "Versiontest", "#relay": "relay.test",
	} {
		if got := p.text(selector); !strings.Contains(got, want) {
			t.Errorf("%s is %q, not %q", selector, got, want)
		}
	}
	p.eval(`window.total = document.querySelector('#total').textContent`)
	p.until("it updates", `window.total !== document.querySelector('#total').textContent && Number(document.querySelector('#rate').textContent) > 0`)
	p.eval(`document.querySelector('[value=kinds]').click()`)
	p.until("it splits by kind", `document.querySelector('#legend').textContent.includes('identity')`)
	testChartByKeyboard(p)

	p.eval(fmt.Sprintf(press, "app.bsky.feed.post"))
	if got, want := p.text("#line"), fmt.Sprintf("websocat 'ws://%s/subscribe?wantedCollections=app.bsky.feed.post'", s.addr); got != want {
		t.Errorf("the command is %s, not %s", got, want)
	}
	p.eval(fmt.Sprintf(press, "Watch"))
	p.until("posts and identities come", fmt.Sprintf(cells, "op", "dataset.op")+` === 'create,identity'`)
	p.is("with that filter came", fmt.Sprintf(cells, "what", "textContent"), `",app.bsky.feed.post"`)
	// A command in a shell must not be left by what somebody types.
	p.eval(`document.querySelector('#dids').value = "did:plc:x'; reboot"; document.querySelector('#dids').dispatchEvent(new Event('input'))`)
	p.until("a bad DID is refused", `document.querySelector('#problem').textContent.includes('not a DID') && !document.querySelector('#line').textContent.includes('reboot')`)
	p.eval(fmt.Sprintf(press, "app.bsky.feed.post"))
	p.eval(fmt.Sprintf(`document.querySelector('#dids').value = %q; document.querySelector('#dids').dispatchEvent(new Event('input'))`, didN(2)))
	p.until("one account's come", fmt.Sprintf(cells, "what", "textContent")+` === 'app.bsky.feed.like'`)
	if got, want := p.text("#line"), fmt.Sprintf("websocat 'ws://%s/subscribe?wantedDids=%s'", s.addr, didN(2)); got != want {
		t.Errorf("the command is %s, not %s", got, want)
	}
	testPageIsBounded(p)
	p.eval(fmt.Sprintf(press, "Stop"))
	s.waitNobody()
	p.calm(s.addr)
}

// TestPageAboutAnAccount: on a server that has references the page shows what others do about an
// account, and what they undo. On another it offers no such thing.
func TestPageAboutAnAccount(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	l := fewReferences(t)
	s := serve(t, l.testLog, l.config)
	p := b.open("http://"+s.addr+"/", 1280)
	const label = `document.querySelector('#about')?.parentElement`
	p.until("it offers that", label+`?.hidden === false`)
	p.eval(fmt.Sprintf(`document.querySelector('#dids').value = %q; document.querySelector('#from').value = 'oldest'; document.querySelector('#about').click()`, didN(8)))
	want := fmt.Sprintf("websocat 'ws://%s/subscribe?wantedSubjectDids=%s&wantedKinds=commit&extended=true&references=true&cursor=0'", s.addr, didN(8))
	if got := p.text("#line"); got != want {
		t.Errorf("the command is %s, not %s", got, want)
	}
	p.eval(fmt.Sprintf(press, "Watch"))
	p.until("all of it comes", fmt.Sprintf(cells, "op", "dataset.op")+` === 'create,delete' && document.querySelectorAll('#events details').length === 4`)
	p.until("a like that is undone has its post", fmt.Sprintf(`document.querySelector('#events [data-op=delete]').parentElement.textContent.includes(%q)`, postURI(8)))
	p.calm(s.addr)

	s = serve(t, newTestLog(t), nil)
	p = b.open("http://"+s.addr+"/", 1280)
	p.until("it renders", `document.querySelectorAll('#legend li').length > 0`)
	p.is("without references it is hidden", label+`.hidden`, "true")
}

// mostLinks answers which subjects are most linked, and nothing else.
type mostLinks struct {
	links.Queries
	view mostView
}

func (m *mostLinks) View() (links.View, error) { return &m.view, nil }
func (*mostLinks) Since() references.Position  { return references.Position{} }
func (*mostLinks) InexactSince() int64         { return 0 }

type mostView struct {
	links.View
	most  links.MostLinked
	asked atomic.Int64
}

func (*mostView) Position() references.Position { return references.Position{} }
func (*mostView) Close() error                  { return nil }

func (v *mostView) MostLinked(context.Context, int) (links.MostLinked, error) {
	v.asked.Add(1)
	return v.most, nil
}

// TestPageMostLinked: a server with links shows which subjects are most linked. Another shows
// nothing of that.
func TestPageMostLinked(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	l := fewReferences(t)
	source, _ := l.FindSource("app.bsky.graph.follow:subject")
	uids := make([]uint64, 2)
	if err := l.uids.LookupStrings(t.Context(), []string{didN(8), postURI(9)}, uids); err != nil || source == 0 {
		t.Fatal(err, source)
	}
	m := &mostLinks{view: mostView{most: links.MostLinked{Since: time.Now(), Sets: []links.RecentCount{
		{Set: links.Set{Path: source, Subject: uids[0]}, Records: 12345}, {Set: links.Set{Path: source, Subject: uids[1]}, Records: 7},
	}}}}
	s := serve(t, l.testLog, func(cfg *Config, t *timing) {
		l.config(cfg, t)
		cfg.Log, cfg.Links = l.Log, m
	})
	p := b.open("http://"+s.addr+"/", 1280)
	const row = "12,345app.bsky.graph.follow:subject"
	p.until("it shows them", fmt.Sprintf(`[...document.querySelectorAll('#linked-subjects li')].map((e) => e.textContent).join() === %q`,
		row+didN(8)+",7app.bsky.graph.follow:subject"+postURI(9)))
	if state := p.text("#linked-state"); !strings.HasPrefix(state, "New links since ") {
		t.Errorf("it says %q", state)
	}
	var to string
	if err := json.Unmarshal(p.eval(`document.querySelector('#linked-subjects a').href`), &to); err != nil || to != "http://"+s.addr+"/links/all?target="+url.QueryEscape(didN(8)) {
		t.Errorf("the first leads to %s, %v", to, err)
	}
	p.until("it shows the status anew", `document.dispatchEvent(new Event('visibilitychange')) &&
		performance.getEntriesByType('resource').filter((e) => e.name.includes('/status?')).length > 3`)
	asked, ms := m.view.asked.Load(), 0.0
	if err := json.Unmarshal(p.eval(`performance.now()`), &ms); err != nil || float64(asked) > 1+ms/10_000 {
		t.Errorf("it asked %d times within %.0f ms, %v", asked, ms, err)
	}
	p.calm(s.addr)

	s = serve(t, newTestLog(t), nil)
	p = b.open("http://"+s.addr+"/", 1280)
	p.until("it renders", `document.querySelectorAll('#legend li').length > 0`)
	p.is("without links it is hidden", `document.querySelector('#linked').hidden`, "true")
}

// testChartByKeyboard: the arrow keys select a moment, the legend and the chart's description have
// its rates, and Escape goes back to the mean.
func testChartByKeyboard(p *tab) {
	p.t.Helper()
	const key = `document.querySelector('#chart').dispatchEvent(new KeyboardEvent('keydown', {key: '%s', cancelable: true}))`
	p.until("there are two moments", `Number(document.querySelector('#chart').getAttribute('aria-valuemax')) > 0`)
	p.eval(`document.querySelector('#chart').focus()`)
	p.is("the focus", `document.activeElement.id`, `"chart"`)
	p.eval(fmt.Sprintf(key, "Home"))
	p.eval(fmt.Sprintf(key, "ArrowRight"))
	for _, want := range []string{
		`document.querySelector('#legend-when').textContent.startsWith('At ')`,
		`document.querySelector('#chart').getAttribute('aria-valuenow') === '1'`,
		`/^At .*: create [0-9.,]+, .*, identity [0-9.,]+, account 0, sync 0$/.test(document.querySelector('#chart').getAttribute('aria-valuetext'))`,
		`document.querySelector('#chart .marker').style.display === ''`,
	} {
		p.until("a moment is selected", want)
	}
	p.eval(fmt.Sprintf(key, "Escape"))
	p.until("no moment is selected", `document.querySelector('#legend-when').textContent.startsWith('Mean') &&
		document.querySelector('#chart').getAttribute('aria-valuetext').startsWith('Mean')`)
}

func (s *testServer) waitNobody() {
	s.t.Helper()
	eventually(s.t, "nobody watches", func() bool { return s.count.Load() == 0 })
}

// testPageIsBounded: the list holds but so many rows, shows hostile text as it is, and stands still
// while it is paused.
func testPageIsBounded(p *tab) {
	p.t.Helper()
	p.eval(`document.querySelector('#dids').value = ''; document.querySelector('#from').value = 'oldest'; document.querySelector('#from').dispatchEvent(new Event('input'))`)
	p.until("all kinds come", fmt.Sprintf(cells, "op", "dataset.op")+` === 'create,identity' && document.querySelectorAll('#events li').length > 20`)
	p.until("hostile text is text", fmt.Sprintf(`[...document.querySelectorAll('#events .text')].some((e) => e.textContent === %q)`, hostileText))
	if title := p.text("title"); title != "millrace" {
		p.t.Errorf("the title is %q", title)
	}
	p.eval(`document.querySelector('#events summary').click()`)
	p.until("an open event pauses", `document.querySelector('#pause').textContent === 'Go on' && document.querySelector('#events pre').textContent.includes('"time_us"')`)
	p.eval(`window.first = document.querySelector('#events').firstElementChild`)
	for range 2 { // what came meanwhile is not drawn
		p.eval(`window.state = document.querySelector('#watch-state').textContent`)
		p.until("more has come", `window.state !== document.querySelector('#watch-state').textContent &&
			document.querySelector('#watch-state').textContent.startsWith('Paused')`)
	}
	p.is("it stands still", `window.first === document.querySelector('#events').firstElementChild`, "true")
	p.eval(fmt.Sprintf(press, "Go on"))
	p.until("it goes on", `window.first !== document.querySelector('#events').firstElementChild`)
	p.until("it is bounded", `document.querySelectorAll('#events li').length === 100`)
}

// TestPageOnAPhone: nothing is wider than the screen, in the light and in the dark, and what is
// there has a name.
func TestPageOnAPhone(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	l := newTestLog(t)
	stop := feed(l)
	defer stop()
	s := serve(t, l, nil)
	p := b.open("http://"+s.addr+"/", 390)
	p.until("it renders", `document.querySelector('#chart svg') !== null && document.querySelectorAll('#chips button').length === 4`)
	p.eval(fmt.Sprintf(press, "Watch"))
	p.until("events come", `document.querySelectorAll('#events li').length > 5`)
	p.eval(`document.querySelector('#events summary').click()`)
	var grounds []string
	for _, scheme := range []string{"light", "dark"} {
		p.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
		p.until("it fits in the "+scheme, `document.documentElement.scrollWidth <= 390 && document.querySelector('#chart svg') !== null`)
		grounds = append(grounds, string(p.eval(`getComputedStyle(document.body).backgroundColor`)))
	}
	if grounds[0] == grounds[1] {
		t.Errorf("light is as dark: %s", grounds)
	}
	var nameless []string
	err := json.Unmarshal(p.eval(`[...document.querySelectorAll('button, input, select, a')].filter((e) =>
		!(e.textContent.trim() || e.labels?.length || e.getAttribute('aria-label'))).map((e) => e.outerHTML)`), &nameless)
	if err != nil || len(nameless) > 0 {
		t.Errorf("without a name: %v %v", nameless, err)
	}
	p.calm(s.addr)
}

// TestBrowserFromAnotherOrigin: a page that another server served subscribes, replays, updates its
// filter and looks up cursors.
func TestBrowserFromAnotherOrigin(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	l, all := mixed(t)
	s := serve(t, l, nil)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<!doctype html><link rel="icon" href="data:,"><title>elsewhere</title>`)
	}))
	defer other.Close()
	p := b.open(other.URL+"/", 800)
	p.until("it is there", `document.title === 'elsewhere'`)
	p.eval(fmt.Sprintf(`window.events = []; window.socket = new WebSocket('ws://%s/subscribe?cursor=0&wantedDids=%s');
		socket.onmessage = (e) => events.push(e.data)`, s.addr, all[0].did))
	var want []string
	for _, e := range all {
		if e.did == all[0].did {
			want = append(want, e.json)
		}
	}
	received := func(n int) (got []string) {
		t.Helper()
		p.until(fmt.Sprintf("%d events come", n), fmt.Sprintf(`window.events.length >= %d`, n))
		if err := json.Unmarshal(p.eval(`window.events`), &got); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if diff := cmp.Diff(want, received(len(want))); diff != "" || len(want) == 0 {
		t.Errorf("-want +got\n%s", diff)
	}
	p.eval(`socket.send(JSON.stringify({type: 'options_update', payload: {wantedCollections: ['app.bsky.graph.follow']}}))`)
	s.waitUpdates(1)
	added := l.add(
		create(didN(7), "app.bsky.feed.post", "3l00000000001", "not asked for"),
		create(didN(8), "app.bsky.graph.follow", "3l00000000002", "asked for"),
	)
	want = append(want, added[1].json)
	if diff := cmp.Diff(want, received(len(want))); diff != "" {
		t.Errorf("after the update: -want +got\n%s", diff)
	}
	cursors := string(p.eval(fmt.Sprintf(`fetch('http://%s/cursors').then((r) => r.text())`, s.addr)))
	if !strings.Contains(cursors, added[1].cursor()) {
		t.Errorf("/cursors from another origin: %s", cursors)
	}
	p.calm(s.addr, strings.TrimPrefix(other.URL, "http://"))
	p.mu.Lock()
	defer p.mu.Unlock()
	if !slices.ContainsFunc(p.requests, func(u string) bool { return strings.HasPrefix(u, "ws://"+s.addr) }) {
		t.Errorf("no websocket was seen among %v", p.requests)
	}
}
