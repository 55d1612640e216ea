package dict

import (
	"bytes"
	"errors"
	"os"
	"testing"
)

// FuzzParse: no file crashes, and one that is taken works with every encoder and the decoder.
func FuzzParse(f *testing.F) {
	// Most of a dictionary is content, where nothing can be wrong: a little of it will do.
	const content = 200
	for _, d := range Shipped() {
		f.Add(d.Bytes()[:d.content+content], []byte(testEvent))
	}
	if _, err := os.Stat("../../shared/corpus/jetstream_v1.zdict"); err == nil {
		d := jetstreamDictionary(f)
		f.Add(d.Bytes()[:d.content+content], []byte("app.bsky.feed.post"))
	}
	f.Add([]byte("\x37\xa4\x30\xec\x01\x00\x00\x00"), []byte{})
	f.Fuzz(func(t *testing.T, raw, content []byte) {
		d, err := Parse(raw)
		if err != nil {
			if !errors.Is(err, errNotDictionary) {
				t.Fatalf("error %v", err)
			}
			return
		}
		dec, err := NewDecoder(1<<20, d)
		if err != nil {
			t.Fatal(err)
		}
		defer dec.Close()
		if len(content) > 1<<20 {
			return
		}
		for name, e := range encoders(t, d) {
			if got, err := dec.Append(nil, e.Append(nil, content)); err != nil || !bytes.Equal(got, content) {
				t.Fatalf("%s: %d bytes of %d, error %v", name, len(got), len(content), err)
			}
		}
	})
}

// FuzzDecode: no frame crashes, or decodes to more than the limit.
func FuzzDecode(f *testing.F) {
	const limit = 64 << 10
	d := BuiltIn()
	dec, err := NewDecoder(limit, d)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(dec.Close)
	for _, e := range encoders(f, d) {
		f.Add(e.Append(nil, []byte(testEvent)))
		f.Add(e.Append(nil, make([]byte, limit)))
		f.Add(e.Append(nil, make([]byte, limit+1)))
	}
	f.Add(appendStored(nil, []byte(testEvent), 0))
	f.Fuzz(func(t *testing.T, frame []byte) {
		before := []byte("before")
		got, err := dec.Append(before[:len(before):len(before)], frame)
		if !bytes.HasPrefix(got, before) {
			t.Fatal("what was there before is gone")
		}
		if err != nil && len(got) != len(before) {
			t.Fatalf("%d bytes with error %v", len(got), err)
		}
		if len(got) > len(before)+limit {
			t.Fatalf("%d bytes", len(got))
		}
	})
}
