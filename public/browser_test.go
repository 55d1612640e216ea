package public

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/testwait"
)

// browser is a headless Chromium of the test's own.
type browser struct {
	t    *testing.T
	base string // of its DevTools, http://127.0.0.1:port
}

// startBrowser skips the test, saying so, where there is no Chromium, or the race detector slows
// the server that a browser waits for.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	if testwait.Race {
		t.Skip("SKIPPED: no browser with the race detector")
	}
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("SKIPPED: there is no chromium: the page is not tested in a browser")
	}
	dir, err := os.MkdirTemp("", "millrace-browser")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir="+dir, "--remote-debugging-port=0", "about:blank")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	var read sync.WaitGroup
	read.Go(func() {
		lines, listening := bufio.NewScanner(stderr), regexp.MustCompile(`DevTools listening on ws://([^/]+)/`)
		for lines.Scan() {
			if m := listening.FindStringSubmatch(lines.Text()); m != nil {
				address <- m[1]
			}
		}
		_, _ = io.Copy(io.Discard, stderr)
	})
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		read.Wait()
		_ = cmd.Wait()
		// when its children have ended, too
		testwait.Becomes(patience(), func() bool { return os.RemoveAll(dir) == nil })
	})
	select {
	case a := <-address:
		return &browser{t: t, base: "http://" + a}
	case <-time.After(2 * patience()):
		t.Fatal("chromium does not start")
		return nil
	}
}

// tab is a page that is open. Its methods fail the test.
type tab struct {
	t    *testing.T
	conn *websocket.Conn

	mu       sync.Mutex
	id       int
	answers  map[int]chan json.RawMessage
	problems []string // exceptions, errors and warnings of the console
	requests []string // all URLs that were asked for, websockets too
}

// devtoolsMessage is an answer or an event of the DevTools protocol.
type devtoolsMessage struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
	Params json.RawMessage `json:"params"`
}

// open opens a page in a window of a given width.
func (b *browser) open(url string, width int) *tab {
	b.t.Helper()
	req, err := http.NewRequest(http.MethodPut, b.base+"/json/new?about:blank", nil)
	if err != nil {
		b.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	var target struct {
		URL string `json:"webSocketDebuggerUrl"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&target); err != nil {
		b.t.Fatal(err)
	}
	conn, _, err := websocket.DefaultDialer.Dial(target.URL, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	p := &tab{t: b.t, conn: conn, answers: make(map[int]chan json.RawMessage)}
	var reading sync.WaitGroup
	reading.Go(p.read)
	b.t.Cleanup(func() {
		conn.Close()
		reading.Wait()
	})
	for _, domain := range []string{"Runtime", "Log", "Page", "Network"} {
		p.call(domain+".enable", nil)
	}
	p.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600})
	p.call("Page.navigate", map[string]any{"url": url})
	return p
}

// read takes answers and notes what happens, until the connection ends.
func (p *tab) read() {
	for {
		var m devtoolsMessage
		if err := p.conn.ReadJSON(&m); err != nil {
			return
		}
		p.mu.Lock()
		switch m.Method {
		case "":
			result := m.Result
			if m.Error != nil {
				result = fmt.Appendf(nil, `{"failed":%s}`, m.Error)
			}
			p.answers[m.ID] <- result
			delete(p.answers, m.ID)
		case "Runtime.exceptionThrown", "Log.entryAdded":
			p.problems = append(p.problems, string(m.Params))
		case "Runtime.consoleAPICalled":
			if !bytes.Contains(m.Params, []byte(`"type":"log"`)) {
				p.problems = append(p.problems, string(m.Params))
			}
		case "Network.requestWillBeSent", "Network.webSocketCreated":
			var event struct {
				URL     string
				Request struct{ URL string }
			}
			if err := json.Unmarshal(m.Params, &event); err == nil {
				p.requests = append(p.requests, event.URL+event.Request.URL)
			}
		}
		p.mu.Unlock()
	}
}

func (p *tab) call(method string, params any) json.RawMessage {
	p.t.Helper()
	answer := make(chan json.RawMessage, 1)
	p.mu.Lock()
	p.id++
	p.answers[p.id] = answer
	err := p.conn.WriteJSON(map[string]any{"id": p.id, "method": method, "params": params})
	p.mu.Unlock()
	if err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
	select {
	case result := <-answer:
		if bytes.HasPrefix(result, []byte(`{"failed"`)) {
			p.t.Fatalf("%s: %s", method, result)
		}
		return result
	case <-time.After(patience()):
		p.t.Fatalf("%s is not answered", method)
		return nil
	}
}

// eval returns what a JavaScript expression comes to, as JSON.
func (p *tab) eval(expression string) json.RawMessage {
	p.t.Helper()
	var answer struct {
		Result    struct{ Value json.RawMessage }
		Exception json.RawMessage `json:"exceptionDetails"`
	}
	raw := p.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true})
	if err := json.Unmarshal(raw, &answer); err != nil || answer.Exception != nil {
		p.t.Fatalf("%s: %v %s", expression, err, raw)
	}
	return answer.Result.Value
}

// is checks what a JavaScript expression comes to, as JSON.
func (p *tab) is(what, expression, want string) {
	p.t.Helper()
	if got := string(p.eval(expression)); got != want {
		p.t.Errorf("%s: %s comes to %s, want %s", what, expression, got, want)
	}
}

// text returns the text of the first element that a selector finds.
func (p *tab) text(selector string) string {
	p.t.Helper()
	var text string
	if err := json.Unmarshal(p.eval(fmt.Sprintf(`document.querySelector(%q)?.textContent ?? ''`, selector)), &text); err != nil {
		p.t.Fatal(err)
	}
	return text
}

// until waits until an expression is true.
func (p *tab) until(what, expression string) {
	p.t.Helper()
	var got string
	if !testwait.Becomes(patience(), func() bool { got = string(p.eval(expression)); return got == "true" }) {
		p.t.Fatalf("never happened: %s: %s is %s; page: %.3000s", what, expression, got, p.text("body"))
	}
}

// calm checks that the console has nothing to complain of, and that only these servers were asked.
func (p *tab) calm(hosts ...string) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.problems) > 0 {
		p.t.Errorf("problems on the console:\n%s", strings.Join(p.problems, "\n"))
	}
	if len(p.requests) == 0 {
		p.t.Error(errors.New("no requests were seen"))
	}
next:
	for _, url := range p.requests {
		for _, host := range hosts {
			if _, rest, ok := strings.Cut(url, "://"); ok && strings.HasPrefix(rest, host+"/") {
				continue next
			}
		}
		p.t.Errorf("it asked for %s", url)
	}
}
