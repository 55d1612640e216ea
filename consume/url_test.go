package consume

import (
	"strings"
	"testing"
)

func TestURL(t *testing.T) {
	const path = "/xrpc/com.atproto.sync.subscribeRepos"
	for _, tt := range []struct{ in, url, host string }{
		{"bsky.network", "wss://bsky.network" + path, "bsky.network"},
		{"BSKY.Network.", "wss://bsky.network" + path, "bsky.network"},
		{"bsky.network:443", "wss://bsky.network" + path, "bsky.network"},
		{"bsky.network:8443/", "wss://bsky.network:8443" + path, "bsky.network:8443"},
		{"localhost:2470", "ws://localhost:2470" + path, "localhost:2470"},
		{"localhost:02470", "ws://localhost:2470" + path, "localhost:2470"},
		{"127.0.0.1", "ws://127.0.0.1" + path, "127.0.0.1"},
		{"[::1]:2470", "ws://[::1]:2470" + path, "[::1]:2470"},
		{"[::0:1]", "ws://[::1]" + path, "[::1]"},
		{"wss://localhost:2470", "wss://localhost:2470" + path, "localhost:2470"},
		{"ws://a.test:80", "ws://a.test" + path, "a.test"},
		{"ws://a.test:0080", "ws://a.test" + path, "a.test"},
		{"ws://a.test:443", "ws://a.test:443" + path, "a.test:443"},
		{"http://a.test", "ws://a.test" + path, "a.test"},
		{"HTTPS://A.test/", "wss://a.test" + path, "a.test"},
		{"https://a.test" + path, "wss://a.test" + path, "a.test"},
		{"https://a.test" + path + "/", "wss://a.test" + path, "a.test"},
		{"https://a.test/relay/?key=1&x=2", "wss://a.test/relay" + path + "?key=1&x=2", "a.test"},
		{"a.test/relay", "wss://a.test/relay" + path, "a.test"},
	} {
		u, err := parseURL(tt.in)
		if err != nil {
			t.Errorf("%q: %v", tt.in, err)
			continue
		}
		if u.String() != tt.url {
			t.Errorf("%q is %q, want %q", tt.in, u, tt.url)
		}
		if host, err := Host(tt.in); err != nil || host != tt.host {
			t.Errorf("Host(%q) = %q, %v, want %q", tt.in, host, err, tt.host)
		}
		again, err := parseURL(tt.url)
		if err != nil || again.String() != tt.url {
			t.Errorf("%q parsed again: %v, %v", tt.url, again, err)
		}
	}
}

func TestBadURL(t *testing.T) {
	for in, why := range map[string]string{
		"":                          "no host",
		"  ":                        "no host",
		"wss://":                    "no host",
		"/path":                     "no host",
		":2470":                     "no host",
		"ftp://a.test":              "scheme",
		"a.test:port":               "port",
		"a.test:":                   "port",
		"a.test:0":                  "port",
		"a.test:65536":              "port",
		"user:pw@a.test":            "user",
		"wss://u@a.test":            "user",
		"wss://user:pw@a.test:x":    "user",
		"wss://user%:pw@[::1":       "user",
		"2001:db8::1":               "brackets",
		"a.test#x":                  "fragment",
		"a.test?cursor=1;x":         "semicolon",
		"wss://a.test?cursor=5":     "cursor",
		"bücher.test":               "ASCII",
		"a b.test":                  "character",
		"wss://a.test,b.test:x/":    "port",
		"[::1":                      "]",
		"wss://[fe80::zz]:1":        "invalid host",
		"a.test\x00":                "control character",
		"<script>alert(1)</script>": "character",
	} {
		_, err := Host(in)
		if err == nil {
			t.Errorf("%q was taken", in)
		} else if !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, which does not say %q", in, err, why)
		} else if strings.Contains(err.Error(), ":pw@") {
			t.Errorf("%q: %v, which says the password", in, err)
		}
	}
}

func TestWithCursor(t *testing.T) {
	u, err := parseURL("wss://a.test?key=1")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := withCursor(u, 0, true), u.String()[:strings.Index(u.String(), "?")]+"?cursor=0&key=1"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := withCursor(u, 7, false); got != u.String() {
		t.Errorf("%q", got)
	}
}
