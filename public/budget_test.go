package public

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"millrace/replay"
)

// TestSlowAddressTakesOnlyItsQuota has one address read nothing of much: others must get their
// filters, and what their slow clients have yet to take must be kept.
func TestSlowAddressTakesOnlyItsQuota(t *testing.T) {
	s := serveSource(t, endless(1000), newRegistry(t), func(cfg *Config, _ *timing) {
		cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		cfg.ClientBytes = 4 << 20
	})
	for range 40 { // each with a rest of up to 128 KiB, or of little
		s.rawDialFrom("192.0.2.1", "")
	}
	s.waitMetric("ends_total", endOverloaded, 1)
	if used := s.admission.Stats().Bytes; used > addressQuota(4<<20) {
		t.Errorf("one address holds %d bytes", used)
	}
	for _, other := range []string{"192.0.2.2", "192.0.2.3"} {
		for range 3 { // of one there may be little left when it is given up
			s.rawDialFrom(other, "wantedDids="+didN(1))
		}
		eventually(t, "the rest of another's chunk is kept", func() bool {
			return s.admission.BytesOf(netip.MustParseAddr(other)) > 32<<10
		})
	}
}

// TestLargestFilterFitsTheSmallestBudget takes what --memory 64MiB leaves for clients: an address
// has room for the largest filter that wire.md allows, and for another in its place.
func TestLargestFilterFitsTheSmallestBudget(t *testing.T) {
	var cfg replay.FilterConfig
	for i := range maxWantedCollections {
		cfg.Collections = append(cfg.Collections, strings.Repeat("a", maxPrefixBytes-3)+fmt.Sprint(100+i))
	}
	for i := range maxWantedDIDs {
		cfg.DIDs = append(cfg.DIDs, didN(i))
	}
	if n := cfg.Bytes(); n > largeFilterBytes {
		t.Errorf("the largest filter takes %d bytes, not %d", n, largeFilterBytes)
	}
	l := newTestLog(t)
	s := serve(t, l, func(cfg *Config, _ *timing) {
		cfg.ClientBytes = 1_310_000 // cmd/millrace/flags_test.go holds divideMemory to it
		cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	from := http.Header{"X-Forwarded-For": {"192.0.2.1"}}
	c, _ := s.dialWith(new(dialer), "wantedDids="+strings.Join(cfg.DIDs, "&wantedDids="), from)
	c.want(l.add(identity(didN(9_999)))...)
	for i := range 3 {
		other := didN(20_000 + i)
		c.update(`{"wantedDids":["` + other + `","` + strings.Join(cfg.DIDs[1:], `","`) + `"]}`)
		s.waitUpdates(i + 1)
		c.want(l.add(identity(other))...)
	}
}

// TestFilterThatNeverFits: a filter beyond all that an address may have is refused for good, on
// either wire. One that is within gets 503 while there is no room.
func TestFilterThatNeverFits(t *testing.T) {
	l := newTestLog(t)
	s := serve(t, l, func(cfg *Config, _ *timing) {
		cfg.ClientBytes = 1_310_000
		cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	query := func(name string, n int) string {
		var q strings.Builder
		for i := range n {
			fmt.Fprintf(&q, "&%s=did:web:%d.example", name, i)
		}
		return q.String()
	}
	const words = "ask for less"
	header := from("192.0.2.1")
	if resp, body := s.refused(query("wantedDids", 6000), header); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, words) {
		t.Errorf("%s: %s", resp.Status, body)
	}
	resp, body := s.refusedAt(s.v2URL(query("dids", 6000)), header)
	checkV2Error(t, resp, body, http.StatusBadRequest, v2InvalidRequest, words)
	c, _ := s.dialWith(new(dialer), query("wantedDids", 3000), header)
	if resp, body := s.refused(query("wantedDids", 3000), header); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("beside another: %s: %s", resp.Status, body)
	}
	c.update(`{"wantedDids":["did:web:x.example"]}`)
	s.waitUpdates(1)
}

// noFilterWaits says whether every filter that came is in force for the events to come.
func (s *testServer) noFilterWaits() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sub := range s.subscribers {
		if sub.posted.Load() != nil {
			return false
		}
	}
	return true
}
