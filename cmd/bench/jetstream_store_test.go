package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	jetstreamv1 "millrace/dict/jetstream"
)

// TestJetstreamStore puts events, and replays them from a cursor after reopening, plain and
// compressed. It parses keys, good and bad.
func TestJetstreamStore(t *testing.T) {
	dir := t.TempDir()
	s, err := openJetstreamStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	enc, err := jetstreamEncoder()
	if err != nil {
		t.Fatal(err)
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderDicts(jetstreamv1.Dictionary()))
	if err != nil {
		t.Fatal(err)
	}
	defer dec.Close()
	const first = 1_780_000_000_000_000
	all := []struct{ did, collection string }{
		{"did:plc:a", "app.bsky.feed.post"}, {"did:plc:b", ""}, {"did:plc:a", "app.bsky.feed.like"}, {"did:web:x.example", "a.b.c"}}
	var want []string
	for i, e := range all {
		plain := fmt.Appendf(nil, `{"event":%d}`, i)
		if err := s.Put(first+int64(i), e.did, e.collection, plain, enc.EncodeAll(plain, nil)); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("%d %s %s %s", first+i, e.did, e.collection, plain))
	}
	if err := errors.Join(s.Flush(), s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if s, err = openJetstreamStore(dir); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, compressed := range []bool{false, true} {
		for from := range all {
			var got []string
			err := s.Replay(compressed, first+int64(from), func(e *jetstreamEvent) error {
				payload := e.payload
				if compressed {
					if payload, err = dec.DecodeAll(payload, nil); err != nil {
						return err
					}
				}
				got = append(got, fmt.Sprintf("%d %s %s %s", e.timeUS, e.did, e.collection, payload))
				return nil
			})
			if diff := cmp.Diff(want[from:], got); err != nil || diff != "" {
				t.Errorf("compressed %v, from event %d: %v\n%s", compressed, from, err, diff)
			}
		}
	}
	stop := errors.New("enough")
	if err := s.Replay(false, 0, func(*jetstreamEvent) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the callback's error: %v", err)
	}
}
