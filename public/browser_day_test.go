package public

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/replay"
	"millrace/translate"
)

// fillDay gives a server a day of samples, with an hour in which it did not run and one without a
// relay. It returns the last minute, with which the day ends although a minute passes: the server
// keeps its answer until there is another sample.
func fillDay(s *testServer) uint32 {
	s.t.Helper()
	now := minuteOf(time.Now())
	for back := range uint32(dayMinutes) {
		sm := sample{Minute: now - back, LagMS: 40 + back%97, Subscribers: back % 311, DiskBytes: 90e9 - 1e7*int64(back), FreeBytes: 3e11 + 1e8*int64(back)}
		switch {
		case back == 600:
			sm.LagMS = 12_000
		case back/60 == 5:
			continue
		case back/60 == 12:
			sm.LagMS = offlineMS
		}
		s.Server.status.day.add(sm)
	}
	s.Server.status.day.json(now)
	return now
}

// key presses one key in the page, as a user does.
func (p *tab) key(key string) {
	p.t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, " ": 32, "Home": 36, "End": 35, "ArrowRight": 39, "ArrowLeft": 37}
	for _, kind := range []string{"keyDown", "keyUp"} {
		event := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
		if kind == "keyDown" && (key == "Enter" || key == " ") {
			event["text"] = map[string]string{"Enter": "\r", " ": " "}[key]
		}
		p.call("Input.dispatchKeyEvent", event)
	}
}

// tabTo presses Tab until an expression of the focused element e holds.
func (p *tab) tabTo(what, expression string) {
	p.t.Helper()
	for range 80 {
		p.key("Tab")
		if string(p.eval(`((e) => `+expression+`)(document.activeElement)`)) == "true" {
			return
		}
	}
	p.t.Fatalf("Tab does not lead to %s", what)
}

// TestPageDay: the curves have the day that the server has, and the keyboard alone selects a minute
// of it, a filter, and a line for another tool.
func TestPageDay(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	l := newTestLog(t)
	l.add(create(didN(1), "app.bsky.feed.post", "3l00000000001", "a post"))
	free := int64(3e11)
	s := serve(t, l, func(cfg *Config, _ *timing) {
		cfg.Process = func() Process {
			return Process{Relay: &Relay{Host: "relay.test", Connected: true, Since: time.Now()}, FreeBytes: &free}
		}
	})
	last := fillDay(s)
	p := b.open("http://"+s.addr+"/", 1280)
	p.until("it has curves", `document.querySelectorAll('#day svg .edge[d^=M]').length === 3 && !document.querySelector('#day').hidden`)
	p.is("the curves", `document.querySelector('#day .curves').innerText.replace(/\s+/g, ' ')`, `"Lag 40 ms at most 12 s Log on disk 90.0 GB at most 90.0 GB Subscribers 0 at most 310"`)
	// a curve begins anew after each hour without values
	p.is("parts of the curves", `[...document.querySelectorAll('#day .edge')].map((e) => e.getAttribute('d').split('M').length - 1).join()`, `"3,2,2"`)
	if got := p.text("#log"); !strings.Contains(got, "Free disk300 GBFull in2 d 2 h") && !strings.Contains(got, "Free disk300 GBFull in2 d 1 h") {
		t.Errorf("the log's card is %q", got)
	}
	p.tabTo("the slider", `e.type === 'range'`)
	p.key("Home")
	at := time.Unix(60*int64(last-dayMinutes+1), 0).In(machineZone).Format("15:04")
	p.until("the oldest minute is selected", fmt.Sprintf(`document.querySelector('#day output').textContent.endsWith(%q)`, at))
	if got := string(p.eval(`document.querySelector('#day input').getAttribute('aria-valuetext')`)); !strings.Contains(got, at+": Lag 121 ms, Log on disk 75.6 GB, Subscribers 195") {
		t.Errorf("it says %s", got)
	}
	p.key("End")
	p.until("the newest is", `document.querySelector('#day output').textContent === 'Now'`)
	p.tabTo("a collection", `e.dataset.collection === 'app.bsky.feed.post'`)
	p.key(" ")
	p.until("the address has the filter", `location.hash === '#collections=app.bsky.feed.post'`)
	p.tabTo("the tools", `e.id === 'tool'`)
	p.key("ArrowRight")
	p.until("the line is millrace tail's", fmt.Sprintf(`document.querySelector('#line').textContent === "millrace tail --url 'ws://%s/subscribe' --collections 'app.bsky.feed.post'"`, s.addr))
	p.tabTo("Watch", `e.id === 'start'`)
	p.key("Enter")
	p.until("it watches", `document.querySelector('#start').textContent === 'Stop'`)
	p.until("it is connected", `document.querySelector('#watch-state').textContent.startsWith('Connected')`)
	p.key("Enter")
	s.waitNobody()
	p.calm(s.addr)
}

// TestPageThatIsLeft: a page that is left by a link watches no more, although the browser keeps it
// for the way back.
func TestPageThatIsLeft(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	s := serve(t, newTestLog(t), nil)
	p := b.open("http://"+s.addr+"/", 1280)
	p.until("it renders", `document.querySelector('#line')?.textContent.startsWith('websocat')`)
	p.eval(`document.querySelector('#start').click()`)
	p.until("it is connected", `document.querySelector('#watch-state').textContent.startsWith('Connected')`)
	// Later, as it ends what is evaluated in the page.
	p.eval(`void setTimeout(() => document.querySelector('a[href=status]').click())`)
	s.waitNobody()
}

// TestPageFilterInAddress: an address with a filter fills the form, one that is edited does so
// again, and each tool's line is of that filter. What is no filter is left out.
func TestPageFilterInAddress(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	l := fewReferences(t)
	s := serve(t, l.testLog, l.config)
	hash := "#collections=app.bsky.feed.like,app.bsky.graph.*&dids=" + didN(8) + "&from=600&commits=1&extended=1"
	p := b.open("http://"+s.addr+"/"+hash, 1280)
	p.until("it renders", `document.querySelector('#about')?.parentElement.hidden === false`)
	wants := func(lines map[string]string) {
		t.Helper()
		for tool, want := range lines {
			p.eval(fmt.Sprintf(`document.querySelector('#tool').value = %q; document.querySelector('#tool').dispatchEvent(new Event('change'))`, tool))
			if got := p.text("#line"); !strings.HasPrefix(got, strings.ReplaceAll(want, "HOST", s.addr)) {
				t.Errorf("%s: %s", tool, got)
			}
		}
	}
	query := "ws://HOST/subscribe?wantedCollections=app.bsky.feed.like&wantedCollections=app.bsky.graph.*&wantedDids=" + didN(8) + "&wantedKinds=commit&extended=true&cursor="
	wants(map[string]string{
		"websocat":   "websocat '" + query,
		"curl":       "curl -sN '" + query,
		"javascript": "new WebSocket('" + query,
		"tail":       "millrace tail --url 'ws://HOST/subscribe' --collections 'app.bsky.feed.like,app.bsky.graph.*' --dids '" + didN(8) + "' --kinds commit --extended --since 10m",
	})
	p.is("the address", `location.hash`, `"`+hash+`"`)
	p.eval(fmt.Sprintf(`location.hash = "#collections=app.bsky.feed.post,'; reboot,*&dids=%s&from=77&about=1"`, didN(8)))
	p.until("the new filter is there", `document.querySelector('#about').checked && document.querySelector('#from').value === ''`)
	wants(map[string]string{
		"websocat": "websocat 'ws://HOST/subscribe?wantedCollections=app.bsky.feed.post&wantedSubjectDids=" + didN(8) + "&wantedKinds=commit&extended=true&references=true'",
		"tail":     "millrace tail --url 'ws://HOST/subscribe' --collections 'app.bsky.feed.post' --subject-dids '" + didN(8) + "' --kinds commit --references",
	})
	// JavaScript's line works as it stands.
	p.eval(`location.hash = '#from=oldest'`)
	p.until("from the oldest on", `document.querySelector('#from').value === 'oldest'`)
	wants(map[string]string{"javascript": "new WebSocket('ws://HOST/subscribe?cursor=0').onmessage = "})
	p.eval(`window.said = []; console.log = (e) => said.push(e); ` + p.text("#line"))
	p.until("it prints events", `window.said.length > 3 && window.said.every((e) => e.time_us > 0)`)
	p.calm(s.addr)
}

// TestPageState: the tab's title and icon say how the server is. The page has the relay's trouble
// with advice, and the gaps. What it shows of a server that is gone is dimmed, until it is back.
func TestPageState(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	l := newTestLog(t)
	l.add(create(didN(1), "app.bsky.feed.post", "3l00000000001", "a post"))
	var relay atomic.Pointer[Relay]
	var disk atomic.Pointer[Check]
	disk.Store(&Check{Name: "disk_free", OK: true})
	relay.Store(&Relay{Host: "relay.test", Connected: true, Since: time.Now()})
	s := serve(t, l, func(cfg *Config, _ *timing) {
		cfg.Process = func() Process { return Process{Relay: relay.Load()} }
		cfg.Health = func() []Check { return []Check{*disk.Load()} }
	})
	fillDay(s)
	p := b.open("http://"+s.addr+"/", 1280)
	is := func(what, title, icon, text string) {
		t.Helper()
		p.until(what, fmt.Sprintf(`document.title === %q && document.querySelector('link[rel=icon]')?.getAttribute('href') === 'web/%s.svg' &&
			document.querySelector('#state-text')?.textContent.startsWith(%q) && document.body.classList.contains('gone') === %t`,
			title, icon, text, strings.HasPrefix(title, "Gone")))
	}
	is("it is fine", "millrace", "icon", "Following relay.test")
	p.is("without gaps they are hidden", `document.querySelector('#gaps').hidden`, "true")
	relay.Store(&Relay{Host: "relay.test", Connected: true, Since: time.Now(), Lag: 2 * time.Minute})
	is("it is behind", "Behind · millrace", "icon-behind", "Catching up with relay.test")
	disk.Store(&Check{Name: "disk_free", Detail: "7 MiB are free"})
	is("it is not ready", "Not ready · millrace", "icon-unready", "7 MiB are free")
	relay.Store(&Relay{Host: "relay.test", Since: time.Now(), Error: "dial: refused", Advice: "check --relay"})
	is("it has no relay", "Not ready · millrace", "icon-unready", "relay.test is not connected")
	if got := p.text("#relay"); !strings.Contains(got, "Becausedial: refusedAdvicecheck --relay") {
		t.Errorf("the relay's card is %q", got)
	}
	gap := &replay.Gap{From: translate.Position{Stream: l.Progress().Stream, Seq: l.seq}, To: translate.Position{Stream: l.Progress().Stream, Seq: l.seq + 10}}
	l.seq += 10
	l.addAfter(gap, create(didN(1), "app.bsky.feed.post", "3l00000000002", "a post"))
	var cursors cursorsJSON
	if err := json.Unmarshal(s.get("GET", "/cursors", nil).Body.Bytes(), &cursors); err != nil || len(cursors.Gaps) != 1 {
		t.Fatal(err, cursors)
	}
	p.until("it lists the gap", fmt.Sprintf(`document.querySelector('#gap-list code')?.textContent === '%s to %s'`, cursors.Gaps[0].From, cursors.Gaps[0].To))
	p.calm(s.addr)

	offline := map[string]any{"offline": true, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
	p.call("Network.emulateNetworkConditions", offline)
	is("it is gone", "Gone · millrace", "icon-gone", "The server does not answer since ")
	p.until("numbers are dimmed", `[...document.querySelectorAll('.hero, .figure, #chart, .curves')].every((e) => getComputedStyle(e).opacity < 0.5)`)
	// the icon is at hand
	p.until("its icon is there", `new Promise((done) => { const i = new Image(); i.onload = () => done(true); i.onerror = () => done(false); i.src = document.querySelector('link[rel=icon]').href; })`)
	disk.Store(&Check{Name: "disk_free", OK: true})
	relay.Store(&Relay{Host: "relay.test", Connected: true, Since: time.Now()})
	offline["offline"] = false
	p.call("Network.emulateNetworkConditions", offline)
	is("it is back", "millrace", "icon", "Following relay.test")
}
