package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
)

// TestStatusOfADaemon: what the page shows beside the log comes from the parts that know it, also
// after a restart.
func TestStatusOfADaemon(t *testing.T) {
	t.Parallel()
	relay := newTestRelay(t)
	dir := t.TempDir()
	type status struct {
		Relay struct {
			Host      string
			Connected bool
			Seq       int64
		}
		Events struct{ Total int64 }
		Log    struct {
			Events    int64
			DiskBytes int64 `json:"disk_bytes"`
		}
		Disk struct {
			FreeBytes int64 `json:"free_bytes"`
		}
		UIDs struct {
			Total   uint64
			NewDIDs uint64 `json:"new_dids"`
			Scope   string
		}
	}
	ask := func(d *testDaemon) (s status) {
		t.Helper()
		if status := getJSON(t, "http://"+d.addr+"/status", &s); status != http.StatusOK {
			t.Fatalf("status %d", status)
		}
		return s
	}
	send := func(seq int64, did string) {
		relay.send <- frameOf(t, seq, "#identity", &comatproto.SyncSubscribeRepos_Identity{Did: did, Seq: seq, Time: "2026-11-20T00:00:00Z"}).Data
	}
	d := startDaemon(t, relay.url, dir, "--intern-scope", "dids")
	send(1, "did:web:a.example.com")
	send(2, "did:web:b.example.com")
	send(3, "did:web:a.example.com")
	var s status
	waitFor(t, "three events, and the free disk", func() bool {
		s = ask(d)
		return s.Events.Total == 3 && s.Log.Events == 3 && s.Disk.FreeBytes > 0
	})
	if host := strings.TrimPrefix(relay.url, "ws://"); s.Relay.Host != host || !s.Relay.Connected || s.Relay.Seq != 3 || s.Log.DiskBytes == 0 {
		t.Errorf("%+v", s)
	}
	if s.UIDs.Total != 2 || s.UIDs.NewDIDs != 2 || s.UIDs.Scope != "dids" {
		t.Errorf("UIDs: %+v", s.UIDs)
	}
	d.mustStop(t)
	if _, err := os.Stat(filepath.Join(dir, dayFile)); err != nil {
		t.Error(err)
	}
	relay.left(t)
	d = startDaemon(t, relay.url, dir)
	send(4, "did:web:c.example.com")
	waitFor(t, "one more event", func() bool { s = ask(d); return s.Events.Total == 1 && s.Log.Events == 4 })
	if s.UIDs.Total != 3 || s.UIDs.NewDIDs != 1 || s.UIDs.Scope != "all" {
		t.Errorf("after a restart: %+v", s)
	}
	d2 := startDaemon(t, relay.url, t.TempDir(), "--intern", "off")
	var raw map[string]json.RawMessage
	if getJSON(t, "http://"+d2.addr+"/status", &raw); string(raw["uids"]) != "null" {
		t.Errorf("--intern=off: uids is %s", raw["uids"])
	}
}
