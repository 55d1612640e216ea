package main

import "testing"

func TestSubscribeURL(t *testing.T) {
	for in, want := range map[string]string{
		"localhost:6008":                     "ws://localhost:6008/subscribe",
		"http://h":                           "ws://h/subscribe",
		"https://h/":                         "wss://h/subscribe",
		"wss://h/jet/subscribe":              "wss://h/jet/subscribe",
		"ws://h:1/subscribe?wantedDids=did:": "ws://h:1/subscribe?wantedDids=did:",
	} {
		u, err := subscribeURL(in)
		if err != nil || u.String() != want {
			t.Errorf("subscribeURL(%q) = %v, %v; want %s", in, u, err, want)
		}
	}
	for _, in := range []string{"", "ws://", "gopher://x", "://"} {
		if u, err := subscribeURL(in); err == nil {
			t.Errorf("subscribeURL(%q) = %v, want an error", in, u)
		}
	}
}

func TestNextCursor(t *testing.T) {
	for in, want := range map[string]string{
		`{"did":"d","time_us":17,"kind":"commit"}`:                                 "17",
		`{"did":"d","time_us":17,"kind":"commit","commit":{"cursor":"x"}}`:         "17",
		`{"did":"d","time_us":17,"kind":"commit","cursor":"b7e1c0-31527015322-0"}`: "b7e1c0-31527015322-0",
	} {
		if got := nextCursor([]byte(in)); got != want {
			t.Errorf("nextCursor(%s) = %q, want %q", in, got, want)
		}
	}
}
