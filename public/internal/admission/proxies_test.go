package admission

import (
	"net/http/httptest"
	"net/netip"
	"testing"
)

func TestForwardedFor(t *testing.T) {
	c := New(Config{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}})
	for _, tt := range []struct {
		peer     string
		header   []string
		want     string
		forwards bool
	}{
		{"203.0.113.7:1000", nil, "203.0.113.7", false},
		{"203.0.113.7:1000", []string{"198.51.100.1"}, "203.0.113.7", true},
		{"10.1.1.1:1000", nil, "10.1.1.1", false},
		{"10.1.1.1:1000", []string{"198.51.100.1"}, "198.51.100.1", false},
		{"10.1.1.1:1000", []string{"127.0.0.1, 198.51.100.1"}, "198.51.100.1", false},
		{"10.1.1.1:1000", []string{"198.51.100.1, 10.2.2.2"}, "198.51.100.1", false},
		{"10.1.1.1:1000", []string{"6.6.6.6", "198.51.100.1,10.2.2.2 , 10.3.3.3"}, "198.51.100.1", false},
		{"10.1.1.1:1000", []string{"10.4.4.4, 10.2.2.2"}, "10.4.4.4", false},
		{"10.1.1.1:1000", []string{"198.51.100.1, unknown, 10.2.2.2"}, "10.2.2.2", false},
		{"10.1.1.1:1000", []string{"198.51.100.1:4711"}, "198.51.100.1", false},
		{"[fd00::1]:1000", []string{"[2001:db8::1]:4711"}, "2001:db8::1", false},
		{"[fd00::1%eth0]:1000", []string{"2001:db8::1"}, "2001:db8::1", false},
		{"[::ffff:10.1.1.1]:1000", []string{"::ffff:198.51.100.1"}, "198.51.100.1", false},
	} {
		r := httptest.NewRequest("GET", "/subscribe", nil)
		r.RemoteAddr = tt.peer
		r.Header["X-Forwarded-For"] = tt.header
		got, forwards := c.ClientOf(r)
		if got.String() != tt.want || forwards != tt.forwards {
			t.Errorf("%s %q: %v %v, want %s %v", tt.peer, tt.header, got, forwards, tt.want, tt.forwards)
		}
	}
}
