package identity

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

var errNotPublic = errors.New("the address is not public")

// refusePrivate is net.Dialer.Control: the connection is not made if its address is not public. It
// sees the address that the name has led to, so no second answer of the resolver matters.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotPublic, err)
	}
	if !isPublic(a.Addr()) {
		return fmt.Errorf("%w: %s", errNotPublic, a.Addr())
	}
	return nil
}

// isPublic says whether an address is one of the public internet, by IANA's registries of special
// purpose addresses.
func isPublic(a netip.Addr) bool {
	a = a.Unmap()
	if embedded := netip.MustParsePrefix("64:ff9b::/96"); embedded.Contains(a) { // NAT64
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	if a.Zone() != "" || !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	special := []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24",
		"198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	}
	if a.Is6() {
		if !netip.MustParsePrefix("2000::/3").Contains(a) {
			return false
		}
		special = []string{"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"}
	}
	return !slices.ContainsFunc(special, func(s string) bool { return netip.MustParsePrefix(s).Contains(a) })
}
