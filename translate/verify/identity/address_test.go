package identity

import (
	"errors"
	"net/netip"
	"testing"
)

// TestIsPublic: addresses of each special kind, their neighbours, and forms that hide an IPv4
// address.
func TestIsPublic(t *testing.T) {
	for address, want := range map[string]bool{
		"1.1.1.1": true, "9.255.255.255": true, "10.0.0.1": false, "11.0.0.0": true, "127.0.0.1": false, "127.255.255.254": false,
		"0.0.0.0": false, "0.1.2.3": false, "169.254.169.254": false, "172.15.255.255": true, "172.16.0.1": false, "172.31.255.255": false,
		"172.32.0.0": true, "192.168.1.1": false, "192.167.255.255": true, "100.63.255.255": true, "100.64.0.1": false, "100.127.255.255": false,
		"100.128.0.0": true, "198.18.0.1": false, "198.19.255.255": false, "198.20.0.0": true, "192.0.2.1": false, "198.51.100.7": false,
		"203.0.113.9": false, "224.0.0.1": false, "239.255.255.255": false, "240.0.0.1": false, "255.255.255.255": false, "192.0.0.8": false,
		"::1": false, "::": false, "fe80::1": false, "fe80::1%eth0": false, "fc00::1": false, "fdff::1": false, "ff02::1": false,
		"2606:4700::1111": true, "2606:4700::1111%eth0": false, "2001:db8::1": false, "2001::1": false, "2001:200::1": true, "2002:7f00:1::": false,
		"3fff::1": false, "4000::1": false, "fec0::1": false, "::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::ffff:1.1.1.1": true, "::127.0.0.1": false,
		"64:ff9b::7f00:1": false, "64:ff9b::101:101": true, "64:ff9b:1::101:101": false,
	} {
		if got := isPublic(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
	for _, address := range []string{"127.0.0.1:443", "[::1]:443", "localhost:443", ""} {
		if err := refusePrivate("tcp", address, nil); !errors.Is(err, errNotPublic) {
			t.Errorf("%q: %v", address, err)
		}
	}
	if err := refusePrivate("tcp", "1.1.1.1:443", nil); err != nil {
		t.Error(err)
	}
}
