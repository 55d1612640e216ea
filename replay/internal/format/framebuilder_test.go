package format

import (
	"bytes"
	"testing"

	"millrace/translate"
	"millrace/translate/verify"
)

// TestFrameBuilder makes frames of plain ones, which are known, in each form.
func TestFrameBuilder(t *testing.T) {
	s := NewSealer(1, reversed{}, 1, 2, 100)
	payloads := []string{`{"a":1}`, `{"b":[2,3]}`}
	for i, p := range payloads {
		e := Event{Place: Place{Epoch: 1, Seq: int64(i + 5), Op: uint32(i)}, TimeUS: int64(i + 1), Kind: translate.KindCommit,
			Operation: translate.OpCreate, Collection: []byte("a.b.c"), DID: []byte("did:web:example.com"), DIDUID: uint64(7 * i), URIUID: uint64(9 * i), Payload: []byte(p), Unverified: uint8(i) * uint8(verify.BrokenChain)}
		if err := s.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	sealed, err := s.Finish(5, 6, 0)
	if err != nil {
		t.Fatal(err)
	}
	cursor := func(seq int64, op uint32) string {
		return translate.Position{Stream: 0xabc, Seq: seq, Op: op}.String()
	}
	extended := []string{
		`{"a":1,"cursor":"` + cursor(5, 0) + `"}`,
		`{"b":[2,3],"cursor":"` + cursor(6, 1) + `","uids":{"did":"7","uri":"9"},"unverified":"broken_chain"}`,
	}
	for name, tc := range map[string]struct {
		extended   bool
		compressor Compressor
		want       []string
	}{
		"plain":               {false, nil, payloads},
		"extended":            {true, nil, extended},
		"compressed":          {false, reversed{}, payloads},
		"extended compressed": {true, reversed{}, extended},
	} {
		b := FrameBuilder{Ends: sealed.Index.PlainEnd, Stream: 0xabc, Compressor: tc.compressor}
		if tc.extended {
			b.Extended = sealed.Index
		}
		data, ends := b.All(sealed.Plain)
		for i, want := range tc.want {
			got := FramePayload(data[FrameStart(ends, i):ends[i]])
			if tc.compressor != nil {
				got = reversed{}.Append(nil, got)
			}
			if string(got) != want {
				t.Errorf("%s: event %d is %s, want %s", name, i, got, want)
			}
		}
		prefix := []byte("prefix")
		plain := sealed.Plain[FrameStart(b.Ends, 1):b.Ends[1]]
		if got := b.Append(bytes.Clone(prefix), 1, plain); !bytes.Equal(got, append(prefix, data[FrameStart(ends, 1):]...)) {
			t.Errorf("%s: appended to a prefix it is %q", name, got)
		}
	}
}

// reversed compresses by writing bytes backwards.
type reversed struct{}

func (reversed) Append(dst, src []byte) []byte {
	for i := len(src) - 1; i >= 0; i-- {
		dst = append(dst, src[i])
	}
	return dst
}
