package admission

import (
	"net/netip"
	"testing"
)

func TestBudgetQuotas(t *testing.T) {
	c := New(Config{Bytes: 800, BytesPerAddress: 100})
	var held []Quota
	take := func(budget Budget, client string, n int64, want bool) {
		t.Helper()
		q := c.Quota(budget, netip.MustParseAddr(client))
		if got := q.Reserve(n); got != want {
			t.Errorf("%s takes %d of budget %d: %v, want %v", client, n, budget, got, want)
		}
		for range n {
			if want {
				held = append(held, q)
			}
		}
	}
	take(Unsent, "192.0.2.1", 60, true)
	take(Unsent, "192.0.2.1", 60, false) // 120: more than one address may have
	take(Filters, "192.0.2.1", 60, false)
	take(Filters, "192.0.2.1", 40, true)
	take(Unsent, "2001:db8::1", 100, true)
	take(Unsent, "2001:db8::2", 1, false) // the same /64
	take(Unsent, "127.0.0.1", 200, true)  // loopback has no limit of its own
	take(Unsent, "::1", 41, false)        // but that would be more than a half
	take(Unsent, "192.0.2.3", 40, true)
	take(Unsent, "192.0.2.4", 1, false)
	take(Filters, "192.0.2.4", 100, true) // filters do not suffer from slow clients
	take(Filters, "::1", 260, true)
	take(Filters, "192.0.2.5", 1, false)
	for client, want := range map[string][2]int64{ // what it has, and may have
		"192.0.2.1": {100, 100}, "2001:db8::9": {100, 100}, "192.0.2.3": {40, 100}, "192.0.2.9": {0, 100}, "127.0.0.1": {0, 400},
	} {
		addr := netip.MustParseAddr(client)
		if bytes, limit := c.BytesOf(addr), c.Quota(Unsent, addr).Limit(); bytes != want[0] || limit != want[1] {
			t.Errorf("%s has %d bytes, and may have %d; want %v", client, bytes, limit, want)
		}
	}
	if limit := New(Config{Bytes: 10, BytesPerAddress: 100}).Quota(Filters, netip.MustParseAddr("192.0.2.1")).Limit(); limit != 5 {
		t.Errorf("of a small budget one client may have %d, want half", limit)
	}
	if used := c.Stats().Bytes; used != 800 {
		t.Errorf("%d bytes are used, want all", used)
	}
	for _, q := range held {
		q.Release(1)
	}
	if held := c.Stats(); held != (Stats{}) || c.bytes != [budgets]int64{} {
		t.Errorf("%+v are left: %v", held, c.bytes)
	}
}
