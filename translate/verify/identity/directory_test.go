package identity

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/consume/relaysim"
	"millrace/consume/relaysim/pipenet"
	"millrace/consume/relaysim/testmetrics"
	"millrace/consume/relaysim/testwait"
)

// harness is a directory and the PLC directory that it asks, in a bubble.
type harness struct {
	*Directory
	t      *testing.T
	plc    *relaysim.PLC
	cfg    Config
	last   float64       // requests at the last call of asked
	passed time.Duration // ahead of the bubble's time
}

// inBubble runs f with a directory in a bubble.
func inBubble(t *testing.T, cfg Config, f func(h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &harness{t: t, plc: &relaysim.PLC{}, cfg: cfg}
		listener := pipenet.Listen()
		server := &http.Server{Handler: h.plc}
		done := make(chan struct{})
		go func() { defer close(done); _ = server.Serve(listener) }()
		h.cfg.FS, h.cfg.Dir, h.cfg.hooks.dial = vfs.NewMem(), "identities", listener.Dial
		if h.cfg.PLC == "" {
			h.cfg.PLC = "http://plc.example"
		}
		h.cfg.Now = func() time.Time { return time.Now().Add(h.passed) }
		h.open()
		f(h)
		h.shut()
		server.Close()
		listener.Close()
		<-done
	})
}

func (h *harness) open() {
	h.t.Helper()
	h.cfg.Registerer = prometheus.NewRegistry()
	var err error
	if h.Directory, err = Open(h.cfg); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) shut() {
	h.t.Helper()
	for range 2 {
		if err := h.Close(); err != nil {
			h.t.Error(err)
		}
	}
	synctest.Wait()
}

// metric returns the value of a metric.
func (h *harness) metric(name string) float64 {
	h.t.Helper()
	values := testmetrics.Values(h.t, h.cfg.Registerer.(*prometheus.Registry), "millrace_identity_")
	value, ok := values[name]
	if !ok {
		h.t.Fatalf("no metric %s", name)
	}
	return value
}

// expect asks for a key and compares the state, and the key with that of signer.
func (h *harness) expect(n int, state State, signer string) {
	h.t.Helper()
	before := time.Now()
	key, got := h.Key(uint64(n), didOf(n))
	if got != state {
		h.t.Fatalf("account %d is %v, not %v", n, got, state)
	}
	if (key != nil) != (signer != "") || key != nil && !key.Equal(keyOf(h.t, signer)) {
		h.t.Fatalf("account %d has the key %v", n, key)
	}
	if time.Now() != before {
		h.t.Fatal("Key has waited")
	}
	synctest.Wait()
}

// pass lets the caches' time pass.
func (h *harness) pass(d time.Duration) { h.passed += d }

// known has an account fetched.
func (h *harness) known(n int) {
	h.t.Helper()
	h.expect(n, Unknown, "")
	h.expect(n, Current, didOf(n))
}

// asked compares the number of requests since the last time.
func (h *harness) asked(want float64) {
	h.t.Helper()
	synctest.Wait()
	now := float64(h.plc.Requests())
	if now-h.last != want {
		h.t.Fatalf("%v requests, not %v", now-h.last, want)
	}
	h.last = now
}

// TestKey: the first call starts a fetch, the next one has the key, which survives a restart and
// expires.
func TestKey(t *testing.T) {
	inBubble(t, Config{Bytes: minBytes}, func(h *harness) {
		for n := range 8 {
			h.known(n)
		}
		h.asked(8)
		h.shut()
		h.open()
		for n := range 8 {
			h.expect(n, Current, didOf(n))
		}
		h.asked(0)
		h.pass(24 * time.Hour)
		h.expect(3, Stale, didOf(3))
		h.asked(1)
		h.expect(3, Current, didOf(3))
		h.pass(keepFor)
		h.expect(3, Unknown, "")
		h.expect(3, Current, didOf(3))
		if got := h.metric("lookups_total unknown"); got != 1 { // since the start
			t.Errorf("%v look-ups without a key", got)
		}
		if got := h.metric("fetches_total found"); got != 2 {
			t.Errorf("%v fetches", got)
		}
	})
}

// TestAbsent: accounts without a key, and DIDs that can have none.
func TestAbsent(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		if err := h.plc.SetFault("absent"); err != nil {
			t.Fatal(err)
		}
		h.expect(1, Unknown, "")
		h.expect(1, Absent, "")
		h.pass(negativeFor - time.Nanosecond)
		h.expect(1, Absent, "")
		h.asked(1)
		h.shut()
		h.open()
		h.expect(1, Absent, "")
		h.pass(time.Nanosecond)
		_ = h.plc.SetFault("")
		h.known(1)
		for i, did := range []string{"did:key:z6Mk", "", "example", "did:web:" + strings.Repeat("a", 254), "did:plc:" + strings.Repeat("a", 254)} {
			h.Key(uint64(100+i), did)
			if _, state := h.Key(uint64(100+i), did); state != Absent {
				t.Errorf("%q is %v", did, state)
			}
		}
		h.asked(1)
		h.Key(200, "did:plc:"+strings.Repeat("a", 253)) // the longest
		h.asked(1)
		for n := range maxKeyless + 1 { // among accounts with keys, any number
			_ = h.plc.SetFault("absent")
			h.expect(1000+n, Unknown, "")
			h.expect(1000+n, Absent, "")
			_ = h.plc.SetFault("")
			h.known(2000 + n)
		}
	})
}

// TestOtherDID: a UID that meant another DID gives nothing.
func TestOtherDID(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		h.known(1)
		if key, state := h.Key(1, didOf(2)); key != nil || state != Unknown {
			t.Errorf("got %v, %v", key, state)
		}
		synctest.Wait()
		if key, state := h.Key(1, didOf(2)); state != Current || !key.Equal(keyOf(t, didOf(2))) {
			t.Errorf("got %v, %v", key, state)
		}
	})
}

// TestChanged: after an #identity event the key is not known, on disk either, until it is fetched.
// Accounts that nobody asks for are not fetched.
func TestChanged(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		h.known(1)
		h.Changed(2, didOf(2))
		h.asked(1)
		h.pass(changedEvery)
		h.plc.SetKeyOf(didOf(1), didOf(5))
		h.expect(1, Current, didOf(1)) // nothing has come yet
		_ = h.plc.SetFault("error")
		h.Changed(1, didOf(1))
		h.expect(1, Unknown, "")
		if err := h.Flush(); err != nil {
			t.Fatal(err)
		}
		h.shut()
		h.open()
		h.expect(1, Unknown, "")
		_ = h.plc.SetFault("")
		h.pass(retryAfter)
		testwait.Elapse(firstPause)
		h.expect(1, Unknown, "")
		h.expect(1, Current, didOf(5))
		h.asked(3)
		for range 100 { // one fetch a second
			h.Changed(1, didOf(1))
			h.expect(1, Unknown, "")
		}
		h.asked(0)
		h.pass(changedEvery)
		h.expect(1, Unknown, "")
		h.expect(1, Current, didOf(5))
		h.asked(1)
		if n := h.metric("purged_total"); n != 1 {
			t.Errorf("%v keys were dropped for events since the cache was opened", n)
		}
		fetches := 0.0
		for _, outcome := range []string{"found", "absent", "failed", "outdated"} {
			fetches += h.metric("fetches_total " + outcome)
		}
		if n := h.metric("fetch_seconds"); n != fetches || n == 0 {
			t.Errorf("%v fetches were timed, of %v", n, fetches)
		}
		if n, failed := h.metric("entries"), h.metric("failed"); n != 1 || failed != 0 {
			t.Errorf("%v accounts are in the cache, failed %v", n, failed)
		}
	})
}

// TestFlush: once Flush has returned no crash brings back a key that Changed has dropped. Before,
// one may.
func TestFlush(t *testing.T) {
	plc := &relaysim.PLC{}
	server := httptest.NewServer(plc)
	defer server.Close()
	finished := make(chan string, 10)
	open := func(fs vfs.FS) *Directory {
		t.Helper()
		d, err := Open(Config{FS: fs, Dir: "ids", PLC: server.URL, hooks: testHooks{finished: func(did string) { finished <- did }}})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	fs := vfs.NewCrashableMem()
	d := open(fs)
	d.Key(1, didOf(1))
	<-finished
	if err := d.Close(); err != nil { // which makes the key durable
		t.Fatal(err)
	}
	d = open(fs)
	_ = plc.SetFault("error")
	d.Changed(1, didOf(1))
	before := fs.CrashClone(vfs.CrashCloneCfg{})
	if err := d.Flush(); err != nil {
		t.Fatal(err)
	}
	after := fs.CrashClone(vfs.CrashCloneCfg{})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		fs   vfs.FS
		want State
	}{{before, Current}, {after, Unknown}} {
		d := open(tc.fs)
		if _, state := d.Key(1, didOf(1)); state != tc.want {
			t.Errorf("%v, want %v", state, tc.want)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestChangedWhileFetched: the answer to a request from before an #identity event is not used.
func TestChangedWhileFetched(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		_ = h.plc.SetFault("slow")
		h.expect(1, Unknown, "")
		h.Changed(1, didOf(1))
		_ = h.plc.SetFault("")
		testwait.Elapse(relaysim.PLCSlow)
		h.asked(1)
		h.expect(1, Unknown, "")
		h.pass(changedEvery)
		h.known(1)
		if got := h.metric("fetches_total outdated"); got != 1 {
			t.Errorf("%v outdated", got)
		}
	})
}

// TestRefresh: a key that has not verified a signature is fetched anew, seldom, and is stale
// meanwhile.
func TestRefresh(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		h.known(1)
		h.plc.SetKeyOf(didOf(1), didOf(5))
		if h.Refresh(1, didOf(1)) {
			t.Error("it was fetched just now")
		}
		h.pass(refreshEvery)
		_ = h.plc.SetFault("slow")
		for range 2 {
			if !h.Refresh(1, didOf(1)) {
				t.Error("not fetched")
			}
		}
		h.expect(1, Stale, didOf(1))
		testwait.Elapse(relaysim.PLCSlow)
		h.expect(1, Current, didOf(5))
		h.asked(2)
		if h.Refresh(1, didOf(1)) {
			t.Error("fetched again")
		}
		h.pass(refreshEvery)
		_ = h.plc.SetFault("garbage")
		if !h.Refresh(1, didOf(1)) {
			t.Error("not fetched")
		}
		synctest.Wait()
		if h.expect(1, Current, didOf(5)); h.Refresh(1, didOf(1)) {
			t.Error("fetched again after a failure")
		}
		_ = h.plc.SetFault("")
		if !h.Refresh(2, didOf(2)) { // of an account that is not known
			t.Error("not fetched")
		}
		synctest.Wait()
		h.expect(2, Current, didOf(2))
	})
}

// TestClockWasAhead: a fetch that failed while the clock was ahead is tried again once the clock is
// right.
func TestClockWasAhead(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		h.known(1)
		h.pass(24 * time.Hour)
		_ = h.plc.SetFault("garbage") // which pauses nothing
		h.expect(1, Stale, didOf(1))
		h.expect(2, Unknown, "")
		h.asked(3)
		h.expect(2, Unknown, "")
		h.asked(0)
		_ = h.plc.SetFault("")
		h.pass(refreshEvery - 24*time.Hour)
		h.expect(2, Unknown, "")
		h.expect(2, Current, didOf(2))
		if !h.Refresh(1, didOf(1)) {
			t.Error("not fetched")
		}
		h.asked(2)
	})
}

// TestFaults: whatever the directory does, no call waits, no wrong key is taken, and it is asked
// again in time. What is logged names no account.
func TestFaults(t *testing.T) {
	after := map[string]State{"absent": Absent, "tombstone": Absent, "no-key": Absent, "key-type": Absent, "key-bytes": Absent, "other-controller": Absent}
	failing := map[string]bool{"down": true, "silent": true, "trickle": true, "error": true, "busy": true, "endless-headers": true}
	for _, fault := range relaysim.PLCFaults() {
		if fault == "slow" || fault == "other-key" {
			continue // its answer is valid, and used
		}
		t.Run(fault, func(t *testing.T) {
			var logged bytes.Buffer
			inBubble(t, Config{Logger: slog.New(slog.NewTextHandler(&logged, nil))}, func(h *harness) {
				h.known(1)
				h.pass(freshFor)
				if err := h.plc.SetFault(fault); err != nil {
					t.Fatal(err)
				}
				h.expect(1, Stale, didOf(1))
				h.expect(2, Unknown, "")
				testwait.Elapse(fetchTimeout)
				h.expect(2, after[fault], "")
				if after[fault] != Absent {
					h.expect(1, Stale, didOf(1))
				}
				if got := h.metric("directory_failing"); got != number(failing[fault]) {
					t.Errorf("failing: %v", got)
				}
				_ = h.plc.SetFault("")
				h.pass(negativeFor)
				testwait.Elapse(maxPause)
				h.expect(2, Unknown, "")
				h.expect(2, Current, didOf(2))
				if got := h.metric("directory_failing"); got != 0 {
					t.Errorf("failing after an answer")
				}
			})
			if text := logged.String(); strings.Contains(text, "did:") || failing[fault] != strings.Contains(text, "err=") {
				t.Errorf("logged: %s", text)
			}
		})
	}
}

// TestDirectoryIsLeftAlone: a PLC directory that fails is asked ever more seldom, however many
// accounts wait.
func TestDirectoryIsLeftAlone(t *testing.T) {
	inBubble(t, Config{hooks: testHooks{concurrency: 2}}, func(h *harness) {
		_ = h.plc.SetFault("error")
		for n := range 1000 {
			h.Key(uint64(n), didOf(n))
		}
		testwait.Elapse(10 * time.Minute)
		if got := h.plc.Requests(); got < 10 || got > 70 {
			t.Errorf("%d requests in ten minutes", got)
		}
		_ = h.plc.SetFault("")
		testwait.Elapse(maxPause + 20*time.Second)
		if got := h.metric("queue"); got != 0 {
			t.Errorf("%v wait", got)
		}
		h.expect(999, Current, didOf(999))
	})
}

// TestNoDirectory: an address that gives no account a key is no PLC directory. It is reported and
// left alone as one that fails, and but for its first answers it is not believed.
func TestNoDirectory(t *testing.T) {
	for _, fault := range []string{"absent", "garbage", "no-key", "other-did", "redirects", "tombstone", "truncated"} {
		t.Run(fault, func(t *testing.T) {
			var logged bytes.Buffer
			inBubble(t, Config{Logger: slog.New(slog.NewTextHandler(&logged, nil)), hooks: testHooks{concurrency: 2}}, func(h *harness) {
				_ = h.plc.SetFault(fault)
				for n := range 1000 {
					h.Key(uint64(n), didOf(n))
				}
				testwait.Elapse(10 * time.Minute)
				absent, failed := h.metric("fetches_total absent"), h.metric("fetches_total failed")
				if fetches := absent + failed; absent > maxKeyless || fetches < 10 || fetches > maxKeyless+70 {
					t.Errorf("in ten minutes %v accounts have no key, and %v fetches have failed", absent, failed)
				}
				if got := h.metric("directory_failing"); got != 1 {
					t.Errorf("failing: %v", got)
				}
				_ = h.plc.SetFault("")
				testwait.Elapse(maxPause + 20*time.Second)
				h.expect(999, Current, didOf(999))
			})
			if text := logged.String(); strings.Contains(text, "did:") || strings.Count(text, "err=") != 1 {
				t.Errorf("logged: %s", text)
			}
		})
	}
}

// TestQueueIsBounded: what a full queue does not take is tried again by the next call.
func TestQueueIsBounded(t *testing.T) {
	inBubble(t, Config{hooks: testHooks{concurrency: 1, queue: 2}}, func(h *harness) {
		_ = h.plc.SetFault("slow")
		for n := range 10 {
			h.expect(n, Unknown, "")
			h.expect(n, Unknown, "")
		}
		if queue, dropped := h.metric("queue"), h.metric("dropped_total"); queue != 3 || dropped != 14 {
			t.Errorf("%v wait, %v dropped", queue, dropped)
		}
		_ = h.plc.SetFault("")
		testwait.Elapse(relaysim.PLCSlow)
		for n := range 10 {
			if n < 3 {
				h.expect(n, Current, didOf(n))
			} else {
				h.known(n)
			}
		}
	})
}

// TestAnotherDirectory: keys of one directory are not those of another.
func TestAnotherDirectory(t *testing.T) {
	inBubble(t, Config{}, func(h *harness) {
		h.known(1)
		h.shut()
		h.cfg.PLC += "/"
		h.open()
		h.expect(1, Current, didOf(1))
		h.shut()
		h.cfg.PLC = "http://other.example"
		h.open()
		h.expect(1, Unknown, "")
	})
}

// TestConfig: fields that cannot be.
func TestConfig(t *testing.T) {
	for field, cfg := range map[string]Config{
		"Dir":    {},
		"Export": {Dir: "d", Export: "file", PLC: "http://plc.example"},
		"Bytes":  {Dir: "d", Bytes: 1},
		"PLC":    {Dir: "d", PLC: "plc.example"},
	} {
		cfg.FS = vfs.NewMem()
		if _, err := Open(cfg); err == nil || !strings.HasPrefix(err.Error(), "identity: field "+field+":") {
			t.Errorf("%s: %v", field, err)
		}
	}
	for i, c := range []Config{
		{Dir: "d", Bytes: minBytes, PLC: "http://[::1]:80/x"}, {Dir: "d", Export: "file"},
		{Dir: "d", Bytes: minBytes - 1}, {Dir: "d", PLC: "ftp://x"}, {Dir: "d", PLC: "http://x?a"}, {Dir: "d", PLC: "http://x#a"}, {Dir: "d", PLC: "http://:80"}, {Dir: "d", PLC: "%"},
	} {
		if err := c.withDefaults().validate(); (err == nil) != (i < 2) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	c := Config{}.withDefaults()
	if c.PLC != "https://plc.directory" || c.hooks.entries != 2_000_000 || c.Bytes != 8<<20 || c.hooks.concurrency != 8 || c.hooks.queue != 4096 || c.FS == nil || c.Now == nil || c.Logger == nil {
		t.Errorf("defaults: %+v", c)
	}
}
