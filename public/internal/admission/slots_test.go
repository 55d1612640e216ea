package admission

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// TestOneClaimAnAddress: a second claim of an address waits for the first; another address does
// not.
func TestOneClaimAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{MessageSlots: 2})
		// one /64
		first, second := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2")
		claim, err := c.ClaimMessage(first, nil, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.ClaimMessage(second, nil, time.Second); !errors.Is(err, ErrNoSlot) {
			t.Errorf("a second claim: %v", err)
		}
		done := make(chan struct{})
		close(done)
		if _, err := c.ClaimMessage(second, done, time.Second); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a second claim of a client that is gone: %v", err)
		}
		other, err := c.ClaimMessage(netip.MustParseAddr("192.0.2.1"), nil, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for _, take := range []*Claim{claim, other, claim} { // a medium one each, and the large one
			if err := take.Take(); err != nil {
				t.Fatal(err)
			}
		}
		if held := c.Stats(); held.MediumMessages != 2 || held.LargeMessages != 1 || held.Addresses != 2 {
			t.Errorf("held: %+v", held)
		}
		if err := other.Take(); !errors.Is(err, ErrNoSlot) {
			t.Errorf("a second large message: %v", err)
		}
		claim.Release()
		other.Release()
		if held := c.Stats(); held != (Stats{}) {
			t.Errorf("left: %+v", held)
		}
	})
}
