package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/gorilla/websocket"
)

// TestLags holds quantiles against sorted numbers.
func TestLags(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var l lags
	var all []int64
	for range 20_000 {
		us := int64(rng.ExpFloat64() * 5000)
		l.addMicros(us)
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
	l.addMicros(1 << 60)
	l.addMicros(-5)
	if got := l.quantile(1); got < time.Minute*30 {
		t.Errorf("a lag beyond the scale counts as %v", got)
	}
	if l = (lags{}); l.quantile(1) != 0 {
		t.Errorf("%v of none", l.quantile(1))
	}
	for i := range int64(20) { // so short lags are counted exactly
		for range 3 {
			l.addMicros(i + 1)
		}
	}
	if p50, p99 := l.quantile(0.5).Microseconds(), l.quantile(0.99).Microseconds(); p50 != 10 || p99 != 20 {
		t.Errorf("of 1 to 20, three times each, p50 is %d and p99 %d", p50, p99)
	}
	for range 60 {
		l.addMicros(30)
	}
	if p51 := l.quantile(0.51).Microseconds(); p51 != 30 {
		t.Errorf("where half of all lags are 30, p51 is %d", p51)
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
		n = n<<5 | uint64(strings.IndexRune(syntax.Base32SortAlphabet, c))
	}
	if again := syntax.NewTIDFromInteger(n).String(); again != tid {
		t.Fatalf("%s is %s", tid, again)
	}
	return int64(n >> 10)
}

// TestTruth writes lines in pieces that end anywhere.
func TestTruth(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip(runtime.GOOS)
	}
	truth, f, err := newTruth()
	if err != nil {
		t.Fatal(err)
	}
	const lines = 5000
	long := strings.Repeat("x", 3<<20)
	go func() {
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

// TestProfile: what pprof prints is read as times of functions with what they call.
func TestProfile(t *testing.T) {
	total, by := parseProfile("File: millrace\nType: cpu\nDuration: 4s, Total samples = 1500ms (37.5%)\nShowing nodes accounting for 1500ms\n" +
		"      flat  flat%   sum%        cum   cum%\n" +
		"         0     0%     0%     1200ms 80.00%  millrace/public.(*subscriber).run\n" +
		"     100ms  6.67%  6.67%   300.50ms 20.03%  millrace/consume.(*Client).Run (inline)\n")
	want := map[string]time.Duration{"millrace/public.(*subscriber).run": 1200 * time.Millisecond, "millrace/consume.(*Client).Run": 300500 * time.Microsecond}
	if total != 1500*time.Millisecond || !maps.Equal(by, want) {
		t.Errorf("the profile has %v: %v", total, by)
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

// fakeJetstream takes the flags that the bench gives Jetstream, and sends them to each subscriber.
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
	s, err := startOriginal(t.Context(), self, "ws://relay", "/data")
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	c, err := dial(t.Context(), s.subscribe(""), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	got, err := c.next()
	if want := "--ws-url ws://relay/xrpc/com.atproto.sync.subscribeRepos --data-dir /data"; err != nil || !strings.HasPrefix(string(got), want) {
		t.Errorf("started with %s, %v, want %s", got, err, want)
	}
	if _, err = startOriginal(t.Context(), self, "ws://refused", "/data"); err == nil || !strings.Contains(err.Error(), "this relay refuses") {
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
		err := run(t.Context(), []string{"subscribers", "-only", "jetstream", "-bin", "/nowhere", "-jetstream", file}, io.Discard)
		if err == nil || !strings.Contains(err.Error(), "-jetstream") || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v", file, err)
		}
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
	rows := []string{profileRest, profileRelay, profileClients}
	for _, line := range profileLines() {
		rows = append(rows, line.what)
	}
	for _, row := range rows {
		if !strings.Contains(out.String(), "| "+row+" ") {
			t.Errorf("no row %q in\n%s", row, out.String())
		}
	}
}

// TestProfileNames: millrace has each function that the profile names, so that none is counted
// under all else since it was renamed.
func TestProfileNames(t *testing.T) {
	if os.Getenv("MILLRACE_TEST_LONG") == "" {
		t.Skip("builds a program: MILLRACE_TEST_LONG=1")
	}
	p := programs{}
	if err := p.build(t.Context(), t.TempDir(), false); err != nil {
		t.Fatal(err)
	}
	symbols, err := exec.Command("go", "tool", "nm", p.millrace()).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range profileLines() {
		for _, name := range line.of {
			if !bytes.Contains(symbols, []byte(" "+name+"\n")) {
				t.Errorf("%s: millrace has no function %s", line.what, name)
			}
		}
	}
}
