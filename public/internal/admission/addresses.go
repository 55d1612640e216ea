package admission

import (
	"net/netip"
	"time"
)

const (
	// maxAddresses is how many addresses Admit remembers at most.
	maxAddresses = 1 << 16
	// SharedProxyConnections is how many connections of one address make Admit report it as Shared.
	// Only an address counts that says it forwards others' requests, and is no trusted proxy.
	SharedProxyConnections = 10
)

// address is what is known of one address. Controller.mu guards it.
type address struct {
	connections int32
	handshakes  int32                     // unfinished ones
	claims      int32                     // that have one of slots or wait for it
	warned      bool                      // Verdict.Shared was given
	slots       *[slotKinds]chan struct{} // each of capacity 1; nil: there are no claims
	bytes       int64                     // of the budget; 0 for loopback
	attempts    float64                   // that it has left,
	at          time.Time                 // as of then
}

// holds reports whether anything is counted for the address but attempts.
func (e *address) holds() bool {
	return e.connections > 0 || e.handshakes > 0 || e.bytes != 0 || e.slots != nil
}

// addressLocked returns the entry of key, a new one if there is none.
func (c *Controller) addressLocked(key netip.Prefix, now time.Time) *address {
	e, ok := c.addresses[key]
	if !ok {
		e = &address{attempts: float64(c.cfg.AttemptBurst), at: now}
		c.addresses[key] = e
	}
	return e
}

// dropLocked forgets an address that nothing is counted for and that has all its attempts.
func (c *Controller) dropLocked(key netip.Prefix, e *address) {
	if !e.holds() && e.attempts >= float64(c.cfg.AttemptBurst) {
		delete(c.addresses, key)
	}
}

// sweepLocked refills attempts and drops all addresses that it can. It reports whether there were
// any. It looks at most once a second.
func (c *Controller) sweepLocked(now time.Time) bool {
	if now.Sub(c.swept) < time.Second {
		return false
	}
	c.swept = now
	before := len(c.addresses)
	for key, e := range c.addresses {
		c.refill(e, now)
		c.dropLocked(key, e)
	}
	return len(c.addresses) < before
}

func (c *Controller) refill(e *address, now time.Time) {
	if d := now.Sub(e.at); d > 0 {
		e.attempts = min(float64(c.cfg.AttemptBurst), e.attempts+d.Seconds()*c.cfg.AttemptsPerSecond)
		e.at = now
	}
}

// Verdict is what Admit says about one attempt.
type Verdict struct {
	Reason     string        // why it is turned away; "": admitted
	RetryAfter time.Duration // if it is turned away
	// for the first time the address looks like a proxy that should be trusted
	Shared bool
}

// Admit counts one attempt of client, and one connection if it is let in; the caller must then
// Leave. forwards is ClientOf's. Loopback has no limits of its own.
func (c *Controller) Admit(client netip.Addr, forwards bool, now time.Time) Verdict {
	key := keyOf(client)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.roomLocked(key) && !c.sweepLocked(now) {
		return Verdict{Reason: ReasonAddresses, RetryAfter: 10 * time.Second}
	}
	e := c.addressLocked(key, now)
	c.refill(e, now)
	var v Verdict
	switch {
	case client.IsLoopback():
	case e.attempts < 1:
		wait := time.Duration((1 - e.attempts) / c.cfg.AttemptsPerSecond * float64(time.Second))
		v = Verdict{Reason: ReasonAttempts, RetryAfter: wait}
	case int(e.connections) >= c.cfg.Connections:
		e.attempts--
		v = Verdict{Reason: ReasonConnections, RetryAfter: 5 * time.Second}
	default:
		e.attempts--
	}
	if v.Reason == "" {
		e.connections++
	}
	if forwards && !e.warned && (e.connections >= SharedProxyConnections || v.Reason != "") {
		e.warned = true
		v.Shared = true
	}
	return v
}

// roomLocked reports whether the table has room for an address. One that has connections, or has
// spent attempts, keeps its place.
func (c *Controller) roomLocked(key netip.Prefix) bool {
	e := c.addresses[key]
	if e == nil {
		return len(c.addresses) < maxAddresses
	}
	return len(c.addresses) <= maxAddresses || e.connections > 0 || e.attempts < float64(c.cfg.AttemptBurst)
}

// Leave undoes one Admit.
func (c *Controller) Leave(client netip.Addr) {
	key := keyOf(client)
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.addresses[key]; e != nil && e.connections > 0 {
		e.connections--
		c.dropLocked(key, e)
	}
}

// keyOf is what limits count by: one IPv4 address, or the /64 of an IPv6 address.
func keyOf(addr netip.Addr) netip.Prefix {
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	p, _ := addr.Prefix(bits) // the zero Prefix for the zero Addr
	return p
}

// networkOf is the /48 around an IPv6 address, which one site has; for IPv4 it is keyOf.
func networkOf(addr netip.Addr) netip.Prefix {
	if addr.Is4() || !addr.IsValid() {
		return keyOf(addr)
	}
	p, _ := addr.Prefix(48)
	return p
}
