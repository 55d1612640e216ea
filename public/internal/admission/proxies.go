package admission

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// trusts reports whether addr is a trusted proxy's.
func (c *Controller) trusts(addr netip.Addr) bool {
	return slices.ContainsFunc(c.cfg.TrustedProxies, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// ClientOf returns the address that a request comes from. It is the peer's or, if that is a trusted
// proxy, the rightmost forwarded address that is no trusted proxy. forwards reports that the peer
// is no trusted proxy but forwards addresses.
func (c *Controller) ClientOf(r *http.Request) (client netip.Addr, forwards bool) {
	client, _ = parseAddr(r.RemoteAddr)
	header := strings.Join(r.Header.Values("X-Forwarded-For"), ",")
	if !c.trusts(client) {
		return client, header != ""
	}
	for header != "" {
		i := strings.LastIndexByte(header, ',')
		addr, ok := parseAddr(strings.TrimSpace(header[i+1:]))
		header = header[:max(i, 0)]
		if !ok {
			break
		}
		client = addr
		if !c.trusts(addr) {
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
