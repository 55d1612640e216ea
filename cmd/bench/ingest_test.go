package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// TestLags holds quantiles against sorted numbers.
func TestLags(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var l lags
	var all []int64
	for range 20_000 {
		us := int64(rng.ExpFloat64() * 5000)
		l.add(us)
		all = append(all, us)
	}
	slices.Sort(all)
	for _, q := range []float64{0.01, 0.5, 0.99, 1} {
		want := all[int(q*float64(len(all)))-1]
		got := l.quantile(q).Microseconds()
		if got < want || float64(got) > float64(want)*1.04+1 {
			t.Errorf("quantile %v is %d, want %d or up to 4 %% more", q, got, want)
		}
	}
	l.add(1 << 60)
	l.add(-5)
	if got := l.quantile(1); got < time.Minute*30 {
		t.Errorf("a lag beyond the scale counts as %v", got)
	}
}

// TestMatchTruth changes each byte of an event in turn: all but the stamp must be the truth's.
func TestMatchTruth(t *testing.T) {
	want := []byte(`{"did":"did:plc:a","time_us":0,"kind":"commit","commit":{"rev":"3mbx7q2k3c2aa","operation":"delete"}}`)
	got := bytes.Replace(want, []byte(`:0,`), []byte(`:1795211644641595,`), 1)
	us, err := matchTruth(got, want)
	if us != 1795211644641595 || err != nil {
		t.Fatalf("stamp %d, %v", us, err)
	}
	stamp := bytes.Index(got, []byte("1795211644641595"))
	for i := range got {
		other := bytes.Clone(got)
		other[i] ^= 1
		_, err := matchTruth(other, want)
		if inStamp := i >= stamp && i < stamp+16; (err != nil) == inStamp {
			t.Errorf("%s: %v", other, err)
		}
	}
	for i := range got {
		if _, err := matchTruth(got[:i], want); err == nil {
			t.Errorf("%s is taken", got[:i])
		}
	}
	if made := madeAt(got); made != tidMicros(t, "3mbx7q2k3c2aa") {
		t.Errorf("made at %d", made)
	}
	if made := madeAt([]byte(`{"did":"did:plc:a","kind":"identity"}`)); made != 0 {
		t.Errorf("an identity was made at %d", made)
	}
}

func tidMicros(t *testing.T, tid string) int64 {
	t.Helper()
	var n uint64
	for _, c := range tid {
		n = n<<5 | uint64(strings.IndexRune(tidAlphabet, c))
	}
	if again := string(appendTID(nil, n)); again != tid {
		t.Fatalf("%s is %s", tid, again)
	}
	return int64(n >> 10)
}

// TestTruth writes lines in pieces that end anywhere.
func TestTruth(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip(runtime.GOOS)
	}
	truth, err := newTruth(filepath.Join(t.TempDir(), "truth"))
	if err != nil {
		t.Fatal(err)
	}
	const lines = 5000
	long := strings.Repeat("x", 3<<20)
	go func() {
		f, err := os.OpenFile(truth.name, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		var all []byte
		for i := range lines {
			text := ""
			if i == lines/2 {
				text = long
			}
			all = fmt.Appendf(all, `{"epoch":0,"seq":%d,"op":0,"event":{"n":%d%s}}`+"\n", i, i, text)
		}
		for rng := rand.New(rand.NewPCG(3, 4)); len(all) > 0; {
			n := min(len(all), 1+rng.IntN(1<<14))
			if _, err := f.Write(all[:n]); err != nil {
				t.Error(err)
				return
			}
			all = all[n:]
		}
	}()
	for i := range lines {
		want := fmt.Sprintf(`{"n":%d}`, i)
		if i == lines/2 {
			want = fmt.Sprintf(`{"n":%d%s}`, i, long)
		}
		if got, err := truth.next(); string(got) != want || err != nil {
			t.Fatalf("line %d: %.100s, %v", i, got, err)
		}
	}
	if got, err := truth.next(); err == nil {
		t.Errorf("after the end: %.100s", got)
	}
}

// TestFeed reads messages of all sizes and a ping from gorilla's server.
func TestFeed(t *testing.T) {
	sizes := []int{0, 1, 125, 126, 70_000, 1 << 20, 3}
	ponged := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer ws.Close()
		for i, n := range sizes {
			if i == 3 {
				if err := ws.WriteControl(websocket.PingMessage, []byte("are you there"), time.Now().Add(time.Minute)); err != nil {
					t.Error(err)
				}
			}
			if err := ws.WriteMessage(websocket.TextMessage, bytes.Repeat([]byte{byte(i)}, n)); err != nil {
				t.Error(err)
			}
		}
		ws.SetPongHandler(func(data string) error { ponged <- data; return errors.New("enough") })
		_, _, _ = ws.ReadMessage()
	}))
	defer server.Close()
	feed, err := dialFeed(context.Background(), "ws"+strings.TrimPrefix(server.URL, "http")+"/x?y=z")
	if err != nil {
		t.Fatal(err)
	}
	defer feed.conn.Close()
	for i, n := range sizes {
		got, err := feed.next()
		if err != nil || !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, n)) {
			t.Fatalf("message %d: %d bytes, want %d, %v", i, len(got), n, err)
		}
	}
	if got := <-ponged; got != "are you there" {
		t.Errorf("pong %q", got)
	}
	if _, err := feed.next(); err == nil {
		t.Error("the end is no error")
	}
}

// TestBudget: 100,000 events a second on two cores are 20 µs for everything.
func TestBudget(t *testing.T) {
	sum := 0.0
	for _, line := range eventBudget() {
		sum += line.us
	}
	if sum != 20 {
		t.Errorf("the budget adds up to %v µs, want 20", sum)
	}
	if d := milliseconds("12.50ms"); d != 12500*time.Microsecond {
		t.Errorf("12.50ms is %v", d)
	}
}

// TestMain lets the program under test start itself again, for the Jetstream way and in place of
// Jetstream itself.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "jetstream":
		main()
	case len(os.Args) > 1 && os.Args[1] == "--ws-url":
		fmt.Fprintln(os.Stderr, fakeJetstream(os.Args[1:]))
		os.Exit(1)
	default:
		os.Exit(m.Run())
	}
}

// fakeJetstream takes the flags that the bench gives Jetstream, and sends each subscriber what they
// are.
func fakeJetstream(args []string) error {
	fs := flag.NewFlagSet("fake", flag.ContinueOnError)
	relay, listen := fs.String("ws-url", "", ""), fs.String("listen-addr", "", "")
	for _, name := range []string{"data-dir", "metrics-listen-addr", "max-sub-rate"} {
		fs.String(name, "", "")
	}
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *relay == "ws://refused"+subscribeRepos {
		return errors.New("this relay refuses")
	}
	http.HandleFunc("GET /subscribe", func(w http.ResponseWriter, r *http.Request) {
		if ws, err := (&websocket.Upgrader{}).Upgrade(w, r, nil); err == nil {
			_ = ws.WriteMessage(websocket.TextMessage, []byte(strings.Join(args, " ")))
		}
	})
	return http.ListenAndServe(*listen, nil) //nolint:gosec // its only client is ours
}

// TestOriginal: Jetstream is started with flags that it has, and what it says when it ends is
// passed on.
func TestOriginal(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &cellParts{}
	address, err := p.serveOriginal(t.Context(), self, "/data", "ws://relay")
	if err != nil {
		t.Fatal(err)
	}
	defer p.server.stop()
	feed, err := dialFeed(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer feed.conn.Close()
	got, err := feed.next()
	if want := "--ws-url ws://relay/xrpc/com.atproto.sync.subscribeRepos --data-dir /data"; err != nil || !strings.HasPrefix(string(got), want) {
		t.Errorf("started with %s, %v, want %s", got, err, want)
	}
	if _, err = (&cellParts{}).serveOriginal(t.Context(), self, "/data", "ws://refused"); err == nil || !strings.Contains(err.Error(), "this relay refuses") {
		t.Errorf("it ended: %v", err)
	}
}

// TestJetstreamFlag: what is no program is refused at once.
func TestJetstreamFlag(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"/nowhere/jetstream", t.TempDir(), text} {
		err := run(t.Context(), []string{"ingest", "-only", "jetstream", "-bin", "/nowhere", "-jetstream", file}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "-jetstream") || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
	}
	f := &ingestFlags{jetstream: "x"}
	cells := f.cells()
	at := slices.IndexFunc(cells, func(c ingestCell) bool { return c.original })
	if at < 0 || cells[at].name != originalCell || !slices.Contains(f.relayArgs(&cells[at]), "--keep-record-keys") {
		t.Errorf("no cell for Jetstream itself in %v", cells)
	}
	if at := slices.IndexFunc((&ingestFlags{}).cells(), func(c ingestCell) bool { return c.original }); at >= 0 {
		t.Error("Jetstream itself is measured without -jetstream")
	}
}

// TestIngest runs every cell, briefly.
func TestIngest(t *testing.T) {
	if os.Getenv("MILLRACE_TEST_LONG") == "" {
		t.Skip("builds three programs and runs them: MILLRACE_TEST_LONG=1")
	}
	var out bytes.Buffer
	args := []string{"ingest", "-dir", t.TempDir(), "-duration", "2s", "-time", "2s", "-warm", "1s", "-generate", "1000", "-rates", "500",
		"-cpuprofile", filepath.Join(t.TempDir(), "profile")}
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	for _, c := range (&ingestFlags{rates: []int{500}}).cells() {
		if !strings.Contains(out.String(), "| "+c.name) {
			t.Errorf("no row %q in\n%s", c.name, out.String())
		}
	}
	for _, line := range eventBudget() {
		if !strings.Contains(out.String(), "| "+line.what+" ") {
			t.Errorf("no row %q in\n%s", line.what, out.String())
		}
	}
}
