package client

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"testing"

	"github.com/klauspost/compress/zstd"

	"millrace/dict"
	jetstreamv1 "millrace/dict/jetstream"
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

// TestV2DictionaryOfSeveralServers: a dictionary that several servers have is kept once, and leaves
// room for others.
func TestV2DictionaryOfSeveralServers(t *testing.T) {
	file := jetstreamv1.Dictionary()
	d := &decoder{
		v2: true, dir: t.TempDir(), fetches: func() {}, header: http.Header{},
		http: &http.Client{Transport: transportFunc(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(file))}, nil
		})},
	}
	for n := range maxDictionaries {
		d.use(&url.URL{Scheme: "ws", Host: []string{"a.test", "b.test"}[n%2], Path: V2Path})
		if _, err := d.current(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if files, err := os.ReadDir(d.dir); len(d.known) != 1 || len(files) == 0 || err != nil {
		t.Errorf("one dictionary is kept %d times, and in %d files: %v", len(d.known), len(files), err)
	}
	file = dict.BuiltIn().Bytes() // of --zstd-dictionary builtin
	d.use(&url.URL{Scheme: "ws", Host: "a.test", Path: V2Path})
	if _, err := d.current(t.Context()); err != nil {
		t.Fatal(err)
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderDict(file))
	if err != nil {
		t.Fatal(err)
	}
	if _, err = d.decode(t.Context(), enc.EncodeAll([]byte(commitLine), nil)); err != nil {
		t.Errorf("after a change of the dictionary: %v", err)
	}
}
