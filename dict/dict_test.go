package dict

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	good := BuiltIn().Bytes()
	edit := func(f func(b []byte) []byte) []byte { return f(bytes.Clone(good)) }
	for _, tc := range []struct {
		name string
		raw  []byte
		want string // part of the error; "" if it is taken
	}{
		{"good", good, ""},
		{"nothing", nil, "it has 0 bytes"},
		{"too short", good[:minBytes-1], "it has 63 bytes"},
		{"longest", append(bytes.Clone(good), make([]byte, MaxBytes-len(good))...), ""},
		{"too long", append(bytes.Clone(good), make([]byte, MaxBytes+1-len(good))...), "2097153 bytes, not 64 to 2097152"},
		{"no magic", edit(func(b []byte) []byte { b[0]++; return b }), "begins with 38 a4 30 ec"},
		{"ID 0", edit(func(b []byte) []byte { clear(b[4:8]); return b }), "ID is 0"},
		{"another ID", edit(func(b []byte) []byte { binary.LittleEndian.PutUint32(b[4:], 1<<31+5); return b }), ""},
		{"tables cut off", good[:minBytes], "load tables"},
		{"tables broken", edit(func(b []byte) []byte { clear(b[8:100]); return b }), "load tables"},
		{"raw content", bytes.Repeat([]byte("app.bsky.feed.like"), 100), "begins with"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := Parse(tc.raw)
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(d.Bytes(), tc.raw) || d.ID() != binary.LittleEndian.Uint32(tc.raw[4:]) {
					t.Errorf("ID %d, %d bytes", d.ID(), len(d.Bytes()))
				}
				return
			}
			if !errors.Is(err, errNotDictionary) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want errNotDictionary with %q", err, tc.want)
			}
		})
	}
}

func TestParseCopies(t *testing.T) {
	raw := bytes.Clone(BuiltIn().Bytes())
	d, err := Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	clear(raw)
	if !bytes.Equal(d.Bytes(), BuiltIn().Bytes()) {
		t.Error("the dictionary changed with the bytes it was parsed from")
	}
	if !bytes.HasSuffix(d.Bytes(), d.Content()) || len(d.Content()) == 0 || len(d.Content()) == len(d.Bytes()) {
		t.Errorf("content of %d bytes is not the end of %d", len(d.Content()), len(d.Bytes()))
	}
}
