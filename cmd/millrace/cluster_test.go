package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	"millrace/consume/relaysim/testwait"
	"millrace/intern/kv"
	"millrace/intern/kv/simkv"
)

// clusterStore is a member's way to the UID store that all share.
type clusterStore struct {
	kv.Store
	cut atomic.Bool // the member is dead
}

// Begin implements kv.Store.
func (s *clusterStore) Begin(ctx context.Context) (kv.Txn, error) {
	if s.cut.Load() {
		return nil, kv.ErrUnavailable
	}
	return s.Store.Begin(ctx)
}

// Close implements closableStore.
func (s *clusterStore) Close() error { return nil }

// member is one of several servers with one UID store. Its data outlive it as a disk would keep
// them.
type member struct {
	t      *testing.T
	relay  string
	shared kv.Store
	dir    string
	addr   string
	front  *network // how it is reached
	disk   *vfs.MemFS
	store  *clusterStore
	daemon *testDaemon
}

func newMember(t *testing.T, relay string, shared kv.Store) *member {
	t.Helper()
	m := &member{t: t, relay: relay, shared: shared, dir: filepath.Join(t.TempDir(), "data"), addr: freeAddr(t), disk: vfs.NewCrashableMem()}
	m.front = newNetwork(t, m.addr)
	m.start("--relay-cursor", "0") // from the relay's first frame on, whenever it starts
	return m
}

func (m *member) start(flags ...string) {
	m.t.Helper()
	m.store = &clusterStore{Store: m.shared}
	hooks := testHooks{fs: orderedFS{m.disk}, uids: m.store}
	m.daemon = startDaemonOn(m.t, hooks, m.relay, m.dir, append(flags, "--listen", m.addr, "--shutdown-timeout", "2s")...)
	m.front.refuses.Store(false)
	waitFor(m.t, "a server that is ready", m.ready)
}

// drain is SIGTERM, and waits for the end.
func (m *member) drain() {
	m.t.Helper()
	if err := m.daemon.stop(); err != nil {
		m.t.Errorf("drain: %v", err)
	}
}

// kill is kill -9: subscribers and the UID store hear no more of it, and its disk has what was
// synced.
func (m *member) kill() {
	m.t.Helper()
	m.store.cut.Store(true)
	m.front.refuses.Store(true)
	m.front.breakAll()
	m.disk = m.disk.CrashClone(vfs.CrashCloneCfg{})
	m.drain() // what is left of it, which writes to the disk of before
}

// ready says what a balancer learns.
func (m *member) ready() bool {
	direct := &http.Client{Timeout: time.Second}
	resp, err := direct.Get("http://" + m.front.Addr().String() + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// balanceHere starts a balancer of this process. It sends each connection to the next member that
// is ready.
func balanceHere(t *testing.T, members []*member) (addr string) {
	var turn atomic.Int64
	srv := httptest.NewServer(&httputil.ReverseProxy{
		ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			m := members[turn.Add(1)%3]
			for range members {
				if m.ready() {
					break
				}
				m = members[turn.Add(1)%3]
			}
			r.SetURL(&url.URL{Scheme: "http", Host: m.front.Addr().String()})
		},
	})
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// balanceCaddy starts Caddy with the configuration in deploy.
func balanceCaddy(t *testing.T, members []*member) (addr string) {
	if testwait.Race {
		t.Skip("the race detector has seen the servers behind the other balancer")
	}
	caddy, err := exec.LookPath("caddy")
	if err != nil {
		t.Skip("SKIPPED: caddy is not installed")
	}
	addr, dir := freeAddr(t), t.TempDir()
	site := readText(t, filepath.Join("..", "..", "deploy", "cluster.Caddyfile"))
	replaced := strings.Replace(site, ":80 {", "http://"+addr+" {", 1)
	for i, m := range members {
		replaced = strings.Replace(replaced, fmt.Sprintf("millrace-%d:6008", i+1), m.front.Addr().String(), 1)
	}
	if strings.Contains(replaced, ":6008") || !strings.Contains(replaced, addr) {
		t.Fatalf("cluster.Caddyfile is not as this test knows it:\n%s", site)
	}
	config := writeFile(t, filepath.Join(dir, "Caddyfile"), "{\n\tadmin off\n\tauto_https off\n}\n"+replaced)
	startForeign(t, addr, dir, caddy, "run", "--adapter", "caddyfile", "--config", config)
	return addr
}

// TestCluster: three servers with one UID store behind a balancer are drained one after another,
// and then killed one after another. Clients of both wires, which know the balancer only, get every
// event once, in order. The logs of all three have every event, with the same UIDs.
func TestCluster(t *testing.T) {
	t.Parallel()
	for name, balance := range map[string]func(*testing.T, []*member) string{"balancer of the test": balanceHere, "Caddy": balanceCaddy} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := startRelaysim(t, "--rate", sustainedRate(300), "--wait-for-consumer", "--window-bytes", "1000000000", "--window-frames", "1000000", "--truth-sync")
			shared := simkv.New(simkv.Config{Shared: true, CommitLatency: time.Millisecond})
			var members []*member
			for range 3 {
				members = append(members, newMember(t, sim.url, shared))
			}
			addr := balance(t, members)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var reading errgroup.Group
			readers := []*switcher{newSwitcher(t, sim.truth, "/subscribe", false, addr), newSwitcher(t, sim.truth, "v2", true, addr)}
			for _, s := range readers {
				reading.Go(func() error { return s.run(ctx) })
			}
			failed := make(chan error, 1)
			go func() { failed <- reading.Wait() }() // ends with ctx
			all := func(what string, more int64) {
				t.Helper()
				for _, s := range readers {
					end := s.events.Load() + more
					waitFor(t, what, func() bool { return s.events.Load() >= end || len(failed) > 0 })
				}
			}
			all("events", 100)
			for _, m := range members { // until something is committed a restart begins live
				waitFor(t, "a server's first event", func() bool { return m.daemon.log.Progress().Seq > 0 })
			}
			for _, end := range []func(*member){(*member).drain, (*member).kill} {
				for _, m := range members {
					end(m)
					all("events without a server", 50)
					m.start()
				}
			}
			all("events with all servers", 100)
			want := sim.settle(t)
			for _, s := range readers {
				waitFor(t, "the last event", func() bool { return s.events.Load() >= int64(len(want)) || len(failed) > 0 })
			}
			cancel()
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
			for _, s := range readers {
				if stats := s.c.Stats(); s.events.Load() != int64(len(want)) || stats.Connects < 3 {
					t.Errorf("%s: %d of %d events, want at least 3 connections: %+v", s.name, s.events.Load(), len(want), stats)
				}
				t.Logf("%s: connections ended by %v, the longest pause took %v (%s)", s.name, s.reasons, s.longest.Round(time.Millisecond), s.slowest)
			}
			checkCluster(t, members, want)
		})
	}
}

// checkCluster compares the logs of all members with the truth, and their UIDs.
func checkCluster(t *testing.T, members []*member, want []truthEvent) {
	t.Helper()
	var first []truthEvent
	for i, m := range members {
		got := readAll(t, m.addr, "cursor=0&wantedKinds="+allKinds, len(want))
		checkExact(t, fmt.Sprintf("log %d", i), got, want)
		checkUIDs(t, got)
		if i == 0 {
			first = got
		}
		for j := range got {
			if got[j].DID != first[j].DID || got[j].URI != first[j].URI || got[j].DID == "" {
				t.Fatalf("event %d has the UIDs %q, %q here and %q, %q there", j, got[j].DID, got[j].URI, first[j].DID, first[j].URI)
			}
		}
	}
}

// TestEmptySharedStore has a server refuse a shared UID store that is empty if its log has UIDs
// already, and leave it empty, so that a dump can be imported.
func TestEmptySharedStore(t *testing.T) {
	relay, dir := newTestRelay(t).url, t.TempDir()
	d := startDaemonOn(t, testHooks{uids: &clusterStore{Store: simkv.New(simkv.Config{})}}, relay, dir)
	d.mustStop(t)
	cfg := serveConfig(t, serveArgs(t.TempDir(), "--data-dir", dir)[1:])
	store := simkv.New(simkv.Config{})
	cfg.intern.value, cfg.hooks.uids = "fdb", &clusterStore{Store: store}
	_, err := newDaemon(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "belongs to another UID store") {
		t.Errorf("a log on an empty store: %v", err)
	}
	err = kv.ScanAll(t.Context(), store, kv.Range{Begin: []byte{0}, End: []byte{0xff}}, 100, func(p kv.Pair) error {
		return fmt.Errorf("key %q", p.Key)
	})
	if err != nil {
		t.Errorf("the store was written: %v", err)
	}
}
