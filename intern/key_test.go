package intern

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bluesky-social/indigo/atproto/syntax"
	"github.com/google/go-cmp/cmp"
)

var (
	plain   = codec{prefixBits: 14}
	striped = codec{prefixBits: 14, stripeBits: 8}
)

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGoldenKeys fixes the bytes of forward keys: stores hold them for ever.
func TestGoldenKeys(t *testing.T) {
	auth := plain.join(5000, 77)
	for _, test := range []struct {
		entry          entry
		plain, striped string
	}{
		{entry{form: formPLC, text: appendPLC(nil, []byte("did:plc:7iza6de2dwap2sbkpav7c6c6"))}, "10 fa320f0c9a1d80fd482a782bf1785e", ""},
		{entry{form: formDID, text: []byte("web:example.com")}, "11 7765623a6578616d706c652e636f6d", ""},
		{entry{form: formRecord, auth: auth, coll: 3, text: []byte("self")}, "12 88a74d 03 73656c66", ""},
		{entry{form: formCollection, auth: auth, coll: 300}, "13 88a74d ac02", ""},
		{entry{form: formAuthority, auth: auth}, "14 88a74d", ""},
		{entry{form: formHandle, text: []byte("jo.hn/a.b.c")}, "15 6a6f2e686e2f612e622e63", ""},
		{entry{form: formTID, auth: auth, coll: 1, tid: 0x1868a0d5e1c35805}, "16 1868a0d5e1c35805 01 88a74d", "16 7f 1868a0d5e1c35805 01 88a74d"},
	} {
		if test.striped == "" {
			test.striped = test.plain
		}
		for c, want := range map[codec]string{plain: test.plain, striped: test.striped} {
			got := c.appendKey([]byte("prefix"), &test.entry)
			if diff := cmp.Diff(append([]byte("prefix"), unhex(t, want)...), got); diff != "" {
				t.Errorf("%+v: %x (-want +got)\n%s", test.entry, got, diff)
			}
			back, err := c.key(got[len("prefix"):])
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.entry, back, cmp.AllowUnexported(entry{})); diff != "" {
				t.Errorf("decoded (-want +got)\n%s", diff)
			}
		}
	}
	if got := appendUIDKey(nil, auth); !bytes.Equal(got, unhex(t, "30 4e2000000000004d")) {
		t.Errorf("UID key %x", got)
	}
	if got := appendSequenceKey(nil, 5000); !bytes.Equal(got, unhex(t, "01 00001388")) {
		t.Errorf("sequence key %x", got)
	}
	if got := appendCollNameKey(nil, []byte("a.b.c")); !bytes.Equal(got, unhex(t, "02 612e622e63")) {
		t.Errorf("collection key %x", got)
	}
	if got := appendCollNumberKey(nil, 7); !bytes.Equal(got, unhex(t, "03 00000007")) {
		t.Errorf("collection number key %x", got)
	}
}

// TestGoldenChunk fixes the bytes of a chunk.
func TestGoldenChunk(t *testing.T) {
	auth := plain.join(5000, 77)
	entries := []entry{
		{form: formPLC, text: appendPLC(nil, []byte("did:plc:7iza6de2dwap2sbkpav7c6c6"))},
		{form: formDID, text: []byte("web:a.co")},
		{form: formRecord, auth: auth, coll: 3, text: []byte("self")},
		{form: formCollection, auth: auth, coll: 300},
		{form: formAuthority, auth: auth},
		{form: formHandle, text: []byte("jo.hn")},
		{form: formTID, auth: auth, coll: 1, tid: 0x1868a0d5e1c35805},
		{form: formTID, auth: auth, coll: 200, tid: 0x1868a0d5e1c35800},
	}
	want := unhex(t, "08"+
		"00 fa320f0c9a1d80fd482a782bf1785e"+
		"01 08 7765623a612e636f"+
		"02 88a74d 03 04 73656c66"+
		"03 88a74d ac02"+
		"04 88a74d"+
		"05 05 6a6f2e686e"+
		"09 88a74d 8ae09a9cbcb5d0e830"+
		"d001 88a74d 09")
	var w chunkWriter
	for i := range entries {
		if uid := uint64(100 + i); !w.takes(uid) {
			t.Fatalf("chunk refuses entry %d", i)
		} else {
			w.add(plain, uid, &entries[i])
		}
	}
	if w.takes(100) || w.takes(100+uint64(len(entries))+1) {
		t.Error("chunk takes a UID that does not follow")
	}
	got := w.appendTo([]byte("p"))
	if diff := cmp.Diff(append([]byte("p"), want...), got); diff != "" {
		t.Errorf("%x (-want +got)\n%s", got, diff)
	}
	r, count, err := openChunk(plain, got[1:])
	if err != nil || count != len(entries) {
		t.Fatalf("open: %v, %d entries", err, count)
	}
	var e entry
	for i := 0; r.next(&e); i++ {
		if diff := cmp.Diff(entries[i], e, cmp.AllowUnexported(entry{})); diff != "" {
			t.Errorf("entry %d (-want +got)\n%s", i, diff)
		}
	}
	if r.err != nil {
		t.Error(r.err)
	}
}

func TestGoldenHeader(t *testing.T) {
	h := header{codec: striped, storeID: [16]byte{0: 1, 15: 0xff}}
	want := unhex(t, "01 0e 08 010000000000000000000000000000ff")
	if got := h.appendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("header %x", got)
	}
	if back, err := parseHeader(want); err != nil || back != h {
		t.Errorf("parsed %+v, %v", back, err)
	}
	if h.ID() != "010000000000000000000000000000ff" {
		t.Errorf("ID %s", h.ID())
	}
	for _, bad := range []string{"", "01", "02 0e 08 010000000000000000000000000000ff", "01 00 08 010000000000000000000000000000ff",
		"01 21 08 010000000000000000000000000000ff", "01 0e 09 010000000000000000000000000000ff", "01 0e 08 0100ff"} {
		if _, err := parseHeader(unhex(t, bad)); err == nil {
			t.Errorf("header %s was accepted", bad)
		}
	}
}

// TestTID packs record keys of every first character.
func TestTID(t *testing.T) {
	tails := []string{"zfcijpj2z2a", "222222222222"[:11], "zzzzzzzzzzz"}
	var last uint64
	for i, first := range []byte(tidAlphabet) {
		for _, tail := range tails {
			s := string([]byte{first, '7'}) + tail
			tid, ok := packTID([]byte(s))
			if want := i < 16; ok != want {
				t.Fatalf("%s packs: %v, want %v", s, ok, want)
			}
			if ok {
				if got := string(appendTID(nil, tid)); got != s {
					t.Errorf("%s became %s", s, got)
				}
				if top := tid >> 60; top != uint64(i) {
					t.Errorf("%s: upper bits %x, want %x", s, top, i)
				}
			}
		}
	}
	for _, s := range []string{"2222222222222", "3jzfcijpj2z2a", "jzzzzzzzzzzzz"} { // in order
		tid, ok := packTID([]byte(s))
		if !ok || tid < last || string(appendTID(nil, tid)) != s {
			t.Errorf("%s became %x", s, tid)
		}
		last = tid
	}
	if last != 1<<64-1 {
		t.Errorf("the greatest TID packs to %x", last)
	}
	for _, s := range []string{"", "self", "kzzzzzzzzzzzz", "3jzfcijpj2z2", "3jzfcijpj2z2aa", "3jzfcijpj2z21", "3jzfcijpj2z2A", "3JZFCIJPJ2Z2A", "3jzf-cij-pj2z"} {
		if _, ok := packTID([]byte(s)); ok {
			t.Errorf("%q packs", s)
		}
	}
}

func TestPLC(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		packed := make([]byte, plcBytes)
		for i := range packed {
			packed[i] = byte(rng.Uint32())
		}
		did := appendPLCString(nil, packed)
		if !isPLC(did) || !bytes.Equal(appendPLC(nil, did), packed) {
			t.Errorf("%x became %s", packed, did)
		}
		if _, err := syntax.ParseDID(string(did)); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []string{"did:plc:7iza6de2dwap2sbkpav7c6c", "did:plc:7iza6de2dwap2sbkpav7c6c66", "did:plc:7IZA6DE2DWAP2SBKPAV7C6C6",
		"did:plc:0iza6de2dwap2sbkpav7c6c6", "did:plc:8iza6de2dwap2sbkpav7c6c6", "did:web:7iza6de2dwap2sbkpav7c6c6"} {
		if isPLC([]byte(s)) {
			t.Errorf("%s packs", s)
		}
		if n, reason := parseName([]byte(s)); reason != "" || n.form != formDID {
			t.Errorf("%s: form %d, %s", s, n.form, reason)
		}
	}
}

func TestUIDs(t *testing.T) {
	for _, p := range []uint{1, 14, 32} {
		c := codec{prefixBits: p}
		for _, n := range []uint64{1, 2, 1000, c.maxN()} {
			for _, sequence := range []uint32{0, 1, 1<<p - 1} {
				uid := c.join(sequence, n)
				if s, m := c.split(uid); s != sequence || m != n {
					t.Errorf("p %d: %x splits into %d and %d", p, uid, s, m)
				}
				back, rest, ok := c.uid(append(c.appendUID(nil, uid), 9))
				if !ok || back != uid || len(rest) != 1 {
					t.Errorf("p %d: %x became %x", p, uid, back)
				}
			}
		}
	}
	if b := plain.appendUID(nil, plain.join(1<<14-1, 1<<20)); len(b) != 5 {
		t.Errorf("the UID after a million of a sequence takes %d bytes", len(b))
	}
	for _, bad := range []string{"", "80", "8000", "00", "ffffffffffffffffffff01"} {
		if _, _, ok := plain.uid(unhex(t, bad)); ok {
			t.Errorf("UID %s was accepted", bad)
		}
	}
}

// fixtures yields the strings of an interop file.
func fixtures(t *testing.T, file string) []string {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "shared", "corpus", "interop", "syntax", file))
	if err != nil {
		t.Skipf("no interop fixtures: %v", err)
	}
	defer f.Close()
	var out []string
	s := bufio.NewScanner(f)
	for s.Scan() {
		if line := s.Text(); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

func TestInteropSyntax(t *testing.T) {
	for _, file := range []string{"did_syntax_valid.txt", "aturi_syntax_valid.txt"} {
		for _, s := range fixtures(t, file) {
			if _, reason := parseName([]byte(s)); reason != "" {
				t.Errorf("%s: %q is refused: %s", file, s, reason)
			}
		}
	}
	for _, file := range []string{"did_syntax_invalid.txt", "aturi_syntax_invalid.txt"} {
		for _, s := range fixtures(t, file) {
			if _, reason := parseName([]byte(s)); reason == "" {
				t.Errorf("%s: %q is accepted", file, s)
			}
		}
	}
	for _, part := range []struct {
		name  string
		check func([]byte) string
	}{{"did", checkDID}, {"handle", checkHandle}, {"nsid", checkNSID}, {"recordkey", checkRecordKey}} {
		for _, s := range fixtures(t, part.name+"_syntax_valid.txt") {
			if reason := part.check([]byte(s)); reason != "" {
				t.Errorf("%s %q is refused: %s", part.name, s, reason)
			}
		}
		for _, s := range fixtures(t, part.name+"_syntax_invalid.txt") {
			if part.check([]byte(s)) == "" {
				t.Errorf("%s %q is accepted", part.name, s)
			}
		}
	}
}

// TestLengths: a string may be as long as the specifications allow, and no longer.
func TestLengths(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	labels := strings.Repeat(x(63)+".", 3) // 192 bytes
	for _, tc := range []struct {
		max   int
		check func([]byte) string
		of    func(n int) string
	}{
		{2048, checkDID, func(n int) string { return "did:web:" + x(n-8) }},
		{253, checkHandle, func(n int) string { return labels + x(n-192) }},
		{317, checkNSID, func(n int) string { return labels + x(63) + "." + x(n-256) }},
		{512, checkRecordKey, x},
	} {
		for n, valid := range map[int]bool{tc.max: true, tc.max + 1: false} {
			if reason := tc.check([]byte(tc.of(n))); (reason == "") != valid || !valid && !strings.Contains(reason, fmt.Sprint(n, " bytes")) {
				t.Errorf("%d bytes, of %d at most: %s", n, tc.max, reason)
			}
		}
	}
}

// TestReasons: an error says what is wrong with a string in the words of its syntax.
func TestReasons(t *testing.T) {
	for s, want := range map[string]string{
		"x": "begins with neither", "at://did:web:a.co/": "ends in a slash or has an empty collection", "at://jo.hn//x": "an empty collection",
		"at://did:web:a.co/a.b.c/": "AT URI ends in a slash", "at://jo.hn/a.b.c/": "AT URI ends in a slash",
	} {
		if _, reason := parseName([]byte(s)); !strings.Contains(reason, want) {
			t.Errorf("%s: %q, want %q", s, reason, want)
		}
	}
}

// seeds are strings for the fuzzers: every form, and what looks like one.
var seeds = []string{
	"did:plc:7iza6de2dwap2sbkpav7c6c6", "did:web:example.com", "did:plc:asdf123", "did:x:%", "did:x:a:", "did:", "at://",
	"at://did:plc:7iza6de2dwap2sbkpav7c6c6", "at://did:web:a.co/a.b.c", "at://did:plc:7iza6de2dwap2sbkpav7c6c6/app.bsky.feed.like/3jzfcijpj2z2a",
	"at://did:plc:7iza6de2dwap2sbkpav7c6c6/app.bsky.feed.like/kjzfcijpj2z2a", "at://did:web:a.co/a.b.c/zzzzzzzzzzzzz",
	"at://did:web:a.co/a.b.c/jzzzzzzzzzzzz", "at://did:web:a.co/a.b.c/self", "at://jo.hn/a.b.c/3jzfcijpj2z2a", "at://Jo.Hn", "at://jo.hn/a.b.c",
	"at://jo.hn/", "at://jo.hn/a.b.c/", "at://jo.hn//x", "at://jo.hn/a.b.c/..", "at://120.0.0.1.com", "at://a.b-", "at://did:x:a/a.b.9/x",
}

// oracle says whether indigo takes s for a DID or an AT URI.
func oracle(s string) bool {
	if strings.HasPrefix(s, "at://") {
		_, err := syntax.ParseATURI(s)
		return err == nil
	}
	_, err := syntax.ParseDID(s)
	return err == nil
}

// FuzzName checks that the same strings are valid as for indigo. It checks that each comes back
// from its keys, with UIDs in the place of authority and collection, byte for byte.
func FuzzName(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, reason := parseName([]byte(s))
		if (reason == "") != oracle(s) {
			t.Fatalf("%q: %q, but indigo says %v", s, reason, oracle(s))
		}
		if reason != "" {
			return
		}
		e, did := entryOf(&n)
		for _, c := range []codec{plain, striped, {prefixBits: 1, stripeBits: 3}} {
			back, err := c.key(c.appendKey(nil, &e))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(appendName(nil, &back, did, string(n.coll))); got != s {
				t.Errorf("%q became %q by its key", s, got)
			}
			var w chunkWriter
			w.add(c, 1, &entry{form: formAuthority, auth: 1})
			w.add(c, 2, &e)
			r, _, err := openChunk(c, w.appendTo(nil))
			if err != nil || !r.next(&back) || !r.next(&back) || r.next(&entry{}) || r.err != nil {
				t.Fatalf("chunk: %v, %v", err, r.err)
			}
			if got := string(appendName(nil, &back, did, string(n.coll))); got != s {
				t.Errorf("%q became %q by its chunk", s, got)
			}
		}
	})
}

// entryOf returns the entry of a name whose authority has some UID and whose collection some
// number, and the authority's.
func entryOf(n *name) (e entry, did *entry) {
	e = entry{form: n.form, tid: n.tid, text: n.text}
	if n.form == formHandle {
		return e, nil
	}
	f := formDID
	if isPLC(n.did) {
		f = formPLC
	}
	did = &entry{form: f, text: appendDIDText(nil, f, n.did)}
	if n.form.isDID() {
		return *did, nil
	}
	e.auth = 0x1234_0000_0000_5678
	if len(n.coll) > 0 {
		e.coll = 12345
	}
	return e, did
}

// FuzzKey feeds the decoders: what they accept they also write, and nothing makes them panic.
func FuzzKey(f *testing.F) {
	for _, s := range seeds {
		if n, reason := parseName([]byte(s)); reason == "" {
			e, _ := entryOf(&n)
			f.Add(plain.appendKey(nil, &e))
			f.Add(striped.appendKey(nil, &e))
			var w chunkWriter
			w.add(plain, 1, &e)
			w.add(plain, 2, &e)
			f.Add(w.appendTo(nil))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, c := range []codec{plain, striped} {
			if e, err := c.key(b); err == nil {
				if got := c.appendKey(nil, &e); !bytes.Equal(got, b) {
					t.Errorf("key %x became %x", b, got)
				}
			}
			r, count, err := openChunk(c, b)
			if err != nil {
				continue
			}
			n := 0
			var e entry
			for r.next(&e) {
				n++
			}
			if r.err == nil && n != count {
				t.Errorf("%d entries, not %d", n, count)
			}
		}
		_, _ = parseHeader(b)
		_, _ = parseDumpHeader(b)
	})
}
