package public

import (
	"net/netip"
	"testing"
)

func TestBudgetShares(t *testing.T) {
	b := &budget{max: 800}
	var held []purse
	take := func(h half, client string, n int64, want bool) {
		t.Helper()
		a := b.purse(h, netip.MustParseAddr(client))
		if got := a.reserve(n); got != want {
			t.Errorf("%s takes %d of half %d: %v, want %v", client, n, h, got, want)
		}
		for range n {
			if want {
				held = append(held, a)
			}
		}
	}
	take(forRests, "192.0.2.1", 60, true)
	take(forRests, "192.0.2.1", 60, false) // 120: more than an eighth
	take(forFilters, "192.0.2.1", 60, false)
	take(forFilters, "192.0.2.1", 40, true)
	take(forRests, "2001:db8::1", 100, true)
	take(forRests, "2001:db8::2", 1, false) // the same /64
	take(forRests, "127.0.0.1", 200, true)  // loopback has no share
	take(forRests, "::1", 41, false)        // but that would be more than a half
	take(forRests, "192.0.2.3", 40, true)
	take(forRests, "192.0.2.4", 1, false)
	take(forFilters, "192.0.2.4", 100, true) // filters do not suffer from slow clients
	take(forFilters, "::1", 260, true)
	take(forFilters, "192.0.2.5", 1, false)
	if used := b.used.Load(); used != 800 {
		t.Errorf("%d bytes are used, want all", used)
	}
	for _, a := range held {
		a.release(1)
	}
	if used := b.used.Load(); used != 0 || len(b.byAddress) != 0 || b.halves != [2]int64{} {
		t.Errorf("%d bytes are left: %v, %v", used, b.halves, b.byAddress)
	}
}

// TestSlowAddressTakesOnlyItsShare has one address read nothing of much: others must get their filters, and
// what their slow clients have yet to take must be kept.
func TestSlowAddressTakesOnlyItsShare(t *testing.T) {
	s := serveSource(t, endless(1000), newRegistry(t), func(cfg *Config, _ *timing) {
		cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		cfg.ClientBytes = 4 << 20
	})
	for range 10 { // each with a rest of up to 128 KiB
		s.rawDialFrom("192.0.2.1", "")
	}
	s.waitMetric("ends_total", endOverloaded, 1)
	if used := s.budget.used.Load(); used > 4<<20/addressShares {
		t.Errorf("one address holds %d bytes", used)
	}
	for _, other := range []string{"192.0.2.2", "192.0.2.3"} {
		s.rawDialFrom(other, "wantedDids="+didN(1))
		eventually(t, "the rest of another's chunk is kept", func() bool {
			s.budget.mu.Lock()
			defer s.budget.mu.Unlock()
			return s.budget.byAddress[addressKey(netip.MustParseAddr(other))] > 32<<10
		})
	}
}
