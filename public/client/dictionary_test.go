package client

import (
	"errors"
	"net/http"
	"net/url"
	"testing"
)

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestDictionariesAreBounded: a client that knows as many dictionaries as it may asks for no more.
func TestDictionariesAreBounded(t *testing.T) {
	frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x22, 0x39, 0x30, 0, 1, 0, 0} // of dictionary 12345
	for known, want := range map[int]int{maxDictionaries - 1: 1, maxDictionaries: 0, maxDictionaries + 1: 0} {
		asked, fetches := 0, 0
		offline := errors.New("offline")
		d := &decoder{
			subscribe: &url.URL{Scheme: "ws", Host: "relay.test", Path: "/subscribe"}, known: make([][]byte, known),
			http:    &http.Client{Transport: transportFunc(func(*http.Request) (*http.Response, error) { asked++; return nil, offline })},
			fetches: func() { fetches++ },
		}
		err := d.learn(t.Context(), frame)
		if asked != want || fetches != want || errors.Is(err, offline) != (want == 1) || errors.Is(err, ErrDictionary) != (want == 0) {
			t.Errorf("with %d known: asked %d times, counted %d, error %v", known, asked, fetches, err)
		}
	}
}
