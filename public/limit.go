package public

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// maxAddresses bounds how many client addresses are remembered. When all are in use, strangers are
// turned away.
const maxAddresses = 1 << 16

// sharedProxyConnections is how many connections one address may have that says it forwards others'
// before the operator is told.
const sharedProxyConnections = 10

// Why an address is turned away, as the metric names it.
const (
	rejectAttempts    = "address_attempts"
	rejectConnections = "address_connections"
	rejectAddresses   = "too_many_addresses"
)

// addresses counts connections and attempts by client address.
type addresses struct {
	maxConnections    int
	attemptsPerSecond float64
	attemptBurst      float64

	mu        sync.Mutex
	all       map[netip.Prefix]*address
	forgotten time.Time // when forgetLocked looked last
}

// address is one client: an IPv4 address or an IPv6 /64.
type address struct {
	connections int
	attempts    float64 // that it has left
	at          time.Time
	warned      bool
}

// verdict is what addresses says about one attempt.
type verdict struct {
	rejected   string        // "": admitted
	retryAfter time.Duration // if rejected
	shared     bool          // for the first time the address looks like a proxy that should be trusted
}

// admit counts one attempt, and one connection if it is let in; the caller must then leave.
// forwards says that the address claims to speak for others. Loopback is counted but not limited.
func (a *addresses) admit(client netip.Addr, forwards bool, now time.Time) verdict {
	key := addressKey(client)
	a.mu.Lock()
	defer a.mu.Unlock()
	e, ok := a.all[key]
	if !ok {
		if len(a.all) >= maxAddresses && !a.forgetLocked(now) {
			return verdict{rejected: rejectAddresses, retryAfter: 10 * time.Second}
		}
		e = &address{attempts: a.attemptBurst, at: now}
		a.all[key] = e
	}
	e.refill(a, now)
	var v verdict
	switch {
	case client.IsLoopback():
	case e.attempts < 1:
		wait := time.Duration((1 - e.attempts) / a.attemptsPerSecond * float64(time.Second))
		v = verdict{rejected: rejectAttempts, retryAfter: wait}
	case e.connections >= a.maxConnections:
		e.attempts--
		v = verdict{rejected: rejectConnections, retryAfter: 5 * time.Second}
	default:
		e.attempts--
	}
	if v.rejected == "" {
		e.connections++
	}
	if forwards && !e.warned && (e.connections >= sharedProxyConnections || v.rejected != "") {
		e.warned = true
		v.shared = true
	}
	return v
}

// count is how many addresses are remembered.
func (a *addresses) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.all)
}

// leave undoes one admit.
func (a *addresses) leave(client netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e, ok := a.all[addressKey(client)]; ok && e.connections > 0 {
		e.connections--
	}
}

// forgetLocked drops the addresses that nothing is known of any more, and says whether there were any.
// It looks at most once a second.
func (a *addresses) forgetLocked(now time.Time) bool {
	if now.Sub(a.forgotten) < time.Second {
		return false
	}
	a.forgotten = now
	before := len(a.all)
	for key, e := range a.all {
		e.refill(a, now)
		if e.connections == 0 && e.attempts >= a.attemptBurst {
			delete(a.all, key)
		}
	}
	return len(a.all) < before
}

func (e *address) refill(a *addresses, now time.Time) {
	if d := now.Sub(e.at); d > 0 {
		e.attempts = min(a.attemptBurst, e.attempts+d.Seconds()*a.attemptsPerSecond)
		e.at = now
	}
}

// addressKey is what limits count by: one IPv4 address, or the /64 of an IPv6 address.
func addressKey(addr netip.Addr) netip.Prefix {
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	p, _ := addr.Prefix(bits) // the zero Prefix for the zero Addr
	return p
}

// proxies are the networks whose X-Forwarded-For is believed.
type proxies []netip.Prefix

func (p proxies) trusts(addr netip.Addr) bool {
	for _, network := range p {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// clientOf returns the address a request comes from: the peer's, or, if the peer is a trusted proxy,
// the rightmost forwarded address that is not one. forwards says that the peer is no trusted proxy
// but claims to be one.
func (p proxies) clientOf(r *http.Request) (client netip.Addr, forwards bool) {
	client, _ = parseAddr(r.RemoteAddr)
	header := strings.Join(r.Header.Values("X-Forwarded-For"), ",")
	if !p.trusts(client) {
		return client, header != ""
	}
	for header != "" {
		var last string
		if i := strings.LastIndexByte(header, ','); i >= 0 {
			header, last = header[:i], header[i+1:]
		} else {
			header, last = "", header
		}
		addr, ok := parseAddr(strings.TrimSpace(last))
		if !ok {
			break
		}
		client = addr
		if !p.trusts(addr) {
			break
		}
	}
	return client, false
}

// parseAddr reads an address with or without port, brackets and zone.
func parseAddr(s string) (netip.Addr, bool) {
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	}
	addr, err := netip.ParseAddr(strings.Trim(s, "[]"))
	return addr.Unmap().WithZone(""), err == nil
}
