package admission

import (
	"net/netip"
	"testing"
	"time"
)

func TestAddressesAreForgotten(t *testing.T) {
	c := New(Config{Connections: 2, AttemptsPerSecond: 2, AttemptBurst: 1, Handshakes: 1})
	now := time.Now()
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{20, byte(i >> 16), byte(i >> 8), byte(i)}) }
	for i := range maxAddresses {
		if v := c.Admit(addr(i), false, now); v.Reason != "" {
			t.Fatalf("address %d: %+v", i, v)
		}
		c.Leave(addr(i))
	}
	soon := now.Add(400 * time.Millisecond) // too early for another attempt
	if v := c.Admit(addr(0), false, soon); v.Reason != ReasonAttempts || v.RetryAfter.Round(time.Millisecond) != 100*time.Millisecond {
		t.Errorf("an address that is known, in a full table: %+v", v)
	}
	unknown := addr(maxAddresses)
	if v := c.Admit(unknown, false, now); v.Reason != ReasonAddresses {
		t.Errorf("one too many: %+v", v)
	}
	conn, _ := pipe(unknown) // being in the table for its handshake makes it no known one
	h := c.begin(conn)
	if v := c.Admit(unknown, false, now); v.Reason != ReasonAddresses {
		t.Errorf("one too many, after its handshake: %+v", v)
	}
	h.Close()
	if v := c.Admit(unknown, false, now.Add(2*time.Second)); v.Reason != "" || len(c.addresses) != 1 {
		t.Errorf("later: %+v, %d remembered", v, len(c.addresses))
	}
}

// TestAttemptsDoNotAddUp: an address that was quiet for long may make a burst of attempts, and no
// more.
func TestAttemptsDoNotAddUp(t *testing.T) {
	const burst = 3
	c := New(Config{Connections: 10 * burst, AttemptsPerSecond: 1, AttemptBurst: burst, Handshakes: 1})
	now, client := time.Now(), netip.MustParseAddr("192.0.2.1")
	for _, quiet := range []time.Duration{0, time.Hour} {
		now = now.Add(quiet)
		for i := range burst + 1 {
			v := c.Admit(client, false, now)
			if admitted := v.Reason == ""; admitted != (i < burst) || !admitted && v.Reason != ReasonAttempts {
				t.Errorf("attempt %d after %v: %+v", i, quiet, v)
			}
		}
	}
}

// TestRefusedConnectionsAreAttempts: an address that has all its connections pays for more.
func TestRefusedConnectionsAreAttempts(t *testing.T) {
	c := New(Config{Connections: 1, AttemptsPerSecond: 1, AttemptBurst: 3, Handshakes: 1})
	now, client := time.Now(), netip.MustParseAddr("192.0.2.1")
	for i, want := range []string{"", ReasonConnections, ReasonConnections, ReasonAttempts} {
		if v := c.Admit(client, false, now); v.Reason != want {
			t.Errorf("attempt %d: %+v, want %q", i, v, want)
		}
	}
}

// TestNothingHeldIsNothingRemembered: an address that spent no attempt is gone with the last that
// it held.
func TestNothingHeldIsNothingRemembered(t *testing.T) {
	c := New(Config{Connections: 1, AttemptsPerSecond: 1, AttemptBurst: 1, Handshakes: 1, MessageSlots: 1, Bytes: 100, BytesPerAddress: 10})
	client := netip.MustParseAddr("192.0.2.1")
	quota := c.Quota(Filters, client)
	for name, hold := range map[string]func() (release func()){
		"a handshake": func() func() {
			raw, _ := pipe(client)
			conn := c.begin(raw)
			return func() { conn.Close() }
		},
		"bytes": func() func() {
			if !quota.Reserve(10) || quota.Reserve(1) {
				t.Error("the quota is not 10 bytes")
			}
			return func() { quota.Release(10) }
		},
		"a claim": func() func() {
			claim, err := c.ClaimMessage(client, nil, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			return claim.Release
		},
		"a connection of loopback": func() func() {
			c.Admit(netip.IPv6Loopback(), false, time.Now())
			return func() { c.Leave(netip.IPv6Loopback()) }
		},
	} {
		release := hold()
		if n := c.Stats().Addresses; n != 1 {
			t.Errorf("%s: %d addresses while it is held", name, n)
		}
		release()
		if n := c.Stats().Addresses; n != 0 {
			t.Errorf("%s: %d addresses once it is given back", name, n)
		}
	}
	if !quota.Reserve(0) || c.Stats().Addresses != 0 {
		t.Error("who holds no byte is remembered")
	}
	if quota.Reserve(11) || c.Stats().Addresses != 0 {
		t.Error("what was refused is remembered")
	}
}

// TestSharedProxy: of an address that forwards for others, its connections or the first refusal are
// reported, and once.
func TestSharedProxy(t *testing.T) {
	now, client := time.Now(), netip.MustParseAddr("192.0.2.1")
	for _, tc := range []struct {
		name     string
		cfg      Config
		forwards bool
		reported int // at so many attempts; 0: never
	}{
		{"many connections", Config{Connections: 1000, AttemptBurst: 1000}, true, SharedProxyConnections},
		{"connections refused", Config{Connections: 3, AttemptBurst: 1000}, true, 4},
		{"attempts refused", Config{Connections: 1000, AttemptBurst: 2}, true, 3},
		{"one client", Config{Connections: 3, AttemptBurst: 1000}, false, 0},
	} {
		tc.cfg.AttemptsPerSecond, tc.cfg.Handshakes = 1, 1
		c := New(tc.cfg)
		for attempt := 1; attempt <= 2*SharedProxyConnections; attempt++ {
			if v := c.Admit(client, tc.forwards, now); v.Shared != (attempt == tc.reported) {
				t.Errorf("%s: attempt %d: %+v", tc.name, attempt, v)
			}
		}
	}
}

// TestConnectionsAreHeld: while an address has connections it is remembered, whatever else it gives
// back, and to leave too often does no harm.
func TestConnectionsAreHeld(t *testing.T) {
	c := New(Config{Connections: 1, AttemptsPerSecond: 100, AttemptBurst: 1, Handshakes: 1, Bytes: 100, BytesPerAddress: 10})
	now, client := time.Now(), netip.MustParseAddr("192.0.2.1")
	c.Leave(client)
	c.Admit(client, false, now)
	if v := c.Admit(client, false, now.Add(time.Second)); v.Reason != ReasonConnections {
		t.Errorf("a second connection: %+v", v)
	}
	later := now.Add(time.Hour)
	c.mu.Lock()
	c.sweepLocked(later)
	c.mu.Unlock()
	quota := c.Quota(Filters, client)
	quota.Reserve(1)
	quota.Release(1)
	if v := c.Admit(client, false, later); v.Reason != ReasonConnections || v.RetryAfter != 5*time.Second {
		t.Errorf("a second connection later: %+v", v)
	}
	for range 3 {
		c.Leave(client)
	}
	for i, want := range []string{"", ReasonConnections} {
		if v := c.Admit(client, false, later.Add(time.Duration(i+1)*time.Second)); v.Reason != want {
			t.Errorf("connection %d after it left: %+v", i, v)
		}
	}
}
