package consume

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// subscribePath is where a relay serves its firehose,
// https://docs.bsky.app/docs/api/com-atproto-sync-subscribe-repos.
const subscribePath = "/xrpc/com.atproto.sync.subscribeRepos"

// Host returns the canonical name of the relay that raw means: its host in lower case, with the
// port unless it is the scheme's own. It names the relay in a stream's identity, so every spelling
// of one host must give one name: scheme, path and query are left out. raw is what Config.URL
// takes.
func Host(raw string) (string, error) {
	u, err := parseURL(raw)
	if err != nil {
		return "", err
	}
	return u.Host, nil
}

// parseURL reads a relay's address: a host with or without port, or a ws, wss, http or https URL.
// Without a scheme it is wss, for loopback hosts ws. The XRPC path is added where it is missing.
// The result's host is in canonical form and its query has no cursor.
func parseURL(raw string) (*url.URL, error) {
	bad := func(why string) (*url.URL, error) {
		return nil, fmt.Errorf("relay %.200q: %s", raw, why)
	}
	if strings.TrimSpace(raw) == "" {
		return nil, errors.New("relay: no host or URL given")
	}
	s, bare := raw, !strings.Contains(raw, "://")
	if bare {
		s = "wss://" + raw
	}
	u, err := url.Parse(s)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err
		}
		if at := strings.LastIndexByte(raw, '@'); at >= 0 { // what is before it may be a password
			return nil, fmt.Errorf("relay …%.200q: not a URL; user names and passwords are not taken", raw[at:])
		}
		return bad(err.Error())
	}
	if u.User != nil {
		raw = u.Redacted()
		return bad("user names and passwords are not taken")
	}
	switch u.Scheme {
	case "ws", "wss":
	case "http":
		u.Scheme = "ws"
	case "https":
		u.Scheme = "wss"
	default:
		return bad("the scheme is not ws, wss, http or https")
	}
	query, err := url.ParseQuery(u.RawQuery)
	switch {
	case err != nil:
		return bad("its query: " + err.Error())
	case u.Fragment != "":
		return bad("a fragment (#…) means nothing here")
	case query.Has("cursor"):
		return bad("the cursor is not given in the URL")
	}
	if bare && isLoopback(u.Hostname()) {
		u.Scheme = "ws"
	}
	if why := canonicalHost(u); why != "" {
		return bad(why)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	if !strings.HasSuffix(u.Path, subscribePath) {
		u.Path += subscribePath
	}
	u.RawPath = ""
	return u, nil
}

// canonicalHost rewrites u.Host, or says what is wrong with it.
func canonicalHost(u *url.URL) (why string) {
	name, port := strings.ToLower(u.Hostname()), u.Port()
	name = strings.TrimSuffix(name, ".")
	if name == "" {
		return "no host"
	}
	if ip, err := netip.ParseAddr(name); err == nil {
		name = ip.String()
	} else if strings.Contains(name, ":") {
		return "the host is not an IPv6 address in brackets, such as [::1]"
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 0x80:
			return "the host is not ASCII; write it in its xn-- form"
		case c <= ' ' || strings.IndexByte("\"#%/<>?@[\\]^`{|}", c) >= 0:
			return fmt.Sprintf("the host has the character %q", c)
		}
	}
	if port == "" && strings.HasSuffix(u.Host, ":") {
		return "no port after the colon"
	}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return "the port is not within 1 and 65535"
		}
		if port = strconv.FormatUint(n, 10); port == map[string]string{"ws": "80", "wss": "443"}[u.Scheme] {
			port = ""
		}
	}
	switch {
	case port != "":
		u.Host = net.JoinHostPort(name, port)
	case strings.Contains(name, ":"):
		u.Host = "[" + name + "]"
	default:
		u.Host = name
	}
	return ""
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && ip.IsLoopback()
}

// withCursor returns the URL to dial: u, asking for what follows cursor if has is set.
func withCursor(u *url.URL, cursor int64, has bool) string {
	if !has {
		return u.String()
	}
	q := u.Query()
	q.Set("cursor", strconv.FormatInt(cursor, 10))
	with := *u
	with.RawQuery = q.Encode()
	return with.String()
}
