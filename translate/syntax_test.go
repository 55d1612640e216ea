package translate

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/bluesky-social/indigo/atproto/syntax"

	"millrace/consume/relaysim/testwait"
)

// identifier is one of the validators beside indigo's parser of the same.
type identifier struct {
	name   string
	ours   func([]byte) bool
	indigo func(string) error
	file   string // the interop fixtures' name for it
}

var identifiers = []identifier{
	{"DID", validDID, func(s string) error { _, err := syntax.ParseDID(s); return err }, "did"},
	{"TID", validTID, func(s string) error { _, err := syntax.ParseTID(s); return err }, "tid"},
	{"NSID", validNSID, func(s string) error { _, err := syntax.ParseNSID(s); return err }, "nsid"},
	{"record key", validRecordKey, func(s string) error { _, err := syntax.ParseRecordKey(s); return err }, "recordkey"},
	{"datetime", validDatetime, parseDatetime, "datetime"},
	{"handle", validHandle, func(s string) error { _, err := syntax.ParseHandle(s); return err }, "handle"},
	{"AT URI", validATURI, func(s string) error { _, err := syntax.ParseATURI(s); return err }, "aturi"},
}

func validATURI(s []byte) bool {
	return bytes.HasPrefix(s, []byte(schemeAT)) && referenceAuthority(s) > 0
}

// parseDatetime is indigo's parser, held to RFC 3339 (diffTime).
func parseDatetime(s string) error {
	_, err := syntax.ParseDatetime(s)
	if err == nil && !rfc3339.MatchString(s) {
		err = errors.New("not RFC 3339")
	}
	return err
}

var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// identifierSeeds are valid and nearly valid identifiers of all sorts.
var identifierSeeds = []string{
	"", "a", ".", "..", "did:plc:ewvi7nxzyoun6zhxrhs64oiz", "did:plc:", "did:plc:a:", "did:plc:a%", "did:PLC:a", "did::a", "did:web:a.b%3A1",
	"did:plc:a\n", "did:a:b:c", "3mptbypluud2a", "kmptbypluud2a", "jzzzzzzzzzzzz", "3mptbypluud21", "3MPTBYPLUUD2A", "0000000000000",
	"app.bsky.feed.post", "app.bsky", "a.b.c", "app.bsky.feed.post-x", "app.bsky.feed.1post", "1app.bsky.feed", "app.1bsky.feed", "app.-bsky.feed",
	"app.bsky-.feed", "app..feed", "app.bsky.", ".app.bsky", "a-.b.c", "-a.b.c", "com.example.fooBar2", "a.b." + strings.Repeat("c", 63),
	"a.b." + strings.Repeat("c", 64), strings.Repeat("a", 63) + ".b.c", strings.Repeat("a", 64) + ".b.c", strings.Repeat("a.", 158) + "c",
	strings.Repeat("a.", 159) + "c", "self", "a:b~c_d-e.f", "a/b", "a b", "a%20", strings.Repeat("k", 512), strings.Repeat("k", 513),
	"at://", "at://a", "at://a.b", "at://a.1b", "at://1.b", "at://did:a:b", "at://did:a:b:", "at://did:a", "at://did.a.b", "at://a.b/", "at://a.b/c.d.e",
	"at://a.b/c.d", "at://a.b/c.d.e/", "at://a.b/c.d.e/f", "at://a.b/c.d.e/f/", "at://a.b/c.d.e/f/g", "at://a.b/c.d.e/..", "at://a.b//f", "at:///c.d.e/f",
	"at://a.b/c.d.e/f?g", "at://a.b#c", "AT://a.b", "at:/a.b", "at://a.b/c.d.e/" + strings.Repeat("k", 512), "at://a.b/c.d.e/" + strings.Repeat("k", 513),
	"at://did:x:" + strings.Repeat("y", 2042) + "/c.d.e/f", "at://did:x:" + strings.Repeat("y", 2043) + "/c.d.e/f", subjectURI,
	strings.Repeat("a.", 126) + "b", strings.Repeat("a.", 126) + "bc", "at://" + strings.Repeat("a.", 126) + "b", "at://" + strings.Repeat("a.", 126) + "bc",
	"did:x:" + strings.Repeat("y", 2042), "did:x:" + strings.Repeat("y", 2043),
	"2026-07-04T14:38:08Z", "2026-07-04T14:38:08.123Z", "2026-07-04T14:38:08,5Z", "2026-07-04T14:38:08.Z", "2026-07-04T14:38:08x5Z",
	"2026-07-04T14:38:08+24:00", "2026-07-04T14:38:08+24:59", "2026-07-04T14:38:08+25:00", "2026-07-04T14:38:08-00:00", "2026-07-04T14:38:08-00:01",
	"2026-07-04T14:38:08+05:60", "2026-07-04T24:00:00Z", "2026-07-04T23:60:00Z", "2026-07-04T23:59:60Z", "2026-02-29T00:00:00Z",
	"2024-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2000-02-29T00:00:00Z", "2026-04-31T00:00:00Z", "2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z",
	"2026-01-00T00:00:00Z", "0000-01-01T00:00:00Z", "0000-01-01T00:00:00+00:01", "0000-01-01T05:00:00.5+05:00", "0000-01-01T04:59:59+05:00",
	"0000-01-01T23:00:00+24:00", "0000-01-02T00:00:00+24:00", "2026-07-04t14:38:08Z", "2026-07-04T14:38:08z", "2026-07-04 14:38:08Z",
	"2026-07-04T14:38:08", "2026-07-04T14:38Z", "2026-07-04T14:38:08." + strings.Repeat("1", 20) + "Z", "2026-07-04T14:38:08." + strings.Repeat("1", 21) + "Z",
	"2026-07-04T14:38:08.1+0100", "2026-07-04T14:38:08.1+01", "12026-07-04T14:38:08Z", "-026-07-04T14:38:08Z", "2026-07-04T14:38:08Z\n",
}

func checkIdentifier(t *testing.T, s string) {
	t.Helper()
	for _, id := range identifiers {
		if ours, err := id.ours([]byte(s)), id.indigo(s); ours != (err == nil) {
			t.Errorf("%s %q: valid is %t here, indigo says %v", id.name, s, ours, err)
		}
	}
}

func TestIdentifiers(t *testing.T) {
	if testwait.Race {
		t.Skip("one goroutine that computes much: the race detector finds nothing")
	}
	for _, s := range identifierSeeds {
		checkIdentifier(t, s)
		for i := range min(len(s), 600) { // and every way to lose or change a character
			checkIdentifier(t, s[:i]+s[i+1:])
			if len(s) < 100 {
				for _, c := range ".:-%/ 0aZ\x80" {
					checkIdentifier(t, s[:i]+string(c)+s[i+1:])
				}
			}
		}
	}
}

func TestIdentifierFixtures(t *testing.T) {
	for _, id := range identifiers {
		for _, verdict := range []string{"valid", "invalid"} {
			n := 0
			for _, line := range strings.Split(string(corpusFile(t, "interop", "syntax", id.file+"_syntax_"+verdict+".txt")), "\n") {
				if line == "" || strings.HasPrefix(line, "#") {
					continue
				}
				n++
				if got := id.ours([]byte(line)); got != (verdict == "valid") {
					t.Errorf("%s %q: valid is %t, the fixtures say %s", id.name, line, got, verdict)
				}
			}
			if n == 0 {
				t.Errorf("no %s fixtures of %s", verdict, id.name)
			}
		}
	}
}

func FuzzIdentifiers(f *testing.F) {
	for _, s := range identifierSeeds {
		f.Add(s)
	}
	f.Fuzz(checkIdentifier)
}

func TestCollections(t *testing.T) {
	segment := strings.Repeat("a", 63) + "."
	longest := strings.Repeat(segment, 4) + strings.Repeat("b", 60) + "." // 317 bytes
	for n, prefix := range map[int]string{maxNSIDBytes: longest, maxNSIDBytes + 1: "a" + longest[64:] + strings.Repeat("c", 63) + "."} {
		if _, err := New(Config{Collections: []string{prefix + "*"}}); len(prefix) != n || (err == nil) != (n == maxNSIDBytes) {
			t.Errorf("a prefix of %d bytes, not %d: %v", len(prefix), n, err)
		}
	}
	for _, bad := range []string{"", "*", ".*", "app.bsky*", "app..*", "app.bsky", "app.bsky.feed.post-", "-a.*", "app.bsky.*.post", "a b.*"} {
		if _, err := New(Config{Collections: []string{"app.bsky.feed.post", bad}}); err == nil || !strings.Contains(err.Error(), "collection") {
			t.Errorf("collection %q: error %v", bad, err)
		}
	}
	tr := newTranslator(t, "com.example.thing", "app.bsky.feed.*", "app.bsky.graph.follow", "chat.*")
	wanted := map[string]bool{
		"com.example.thing": true, "com.example.thin": false, "com.example.things": false, "com.example.thing.more": false,
		"app.bsky.feed.post": true, "app.bsky.feed.like": true, "app.bsky.feed.x.deep": true, "app.bsky.feedx.post": false, "app.bsky.feed": false,
		"app.bsky.graph.follow": true, "app.bsky.graph.block": false, "chat.a.b": true, "chatty.a.b": false,
	}
	var kept, filtered uint64
	var b Batch
	for name, want := range wanted {
		rec := testRecord(name)
		tr.AppendFrame(&b, frameOf("#commit", commitBody(carOf(blockOf(rec)), createOp(name+"/a", rec), deleteOp(name+"/b"))))
		if want {
			kept += 2
		} else {
			filtered += 2
		}
		if uint64(len(b.Events)) != kept || b.Counts.Filtered != filtered {
			t.Fatalf("after %s: %d events, want %d; %d filtered, want %d", name, len(b.Events), kept, b.Counts.Filtered, filtered)
		}
	}
	// A filtered operation is not looked into, so what is wrong with it is not counted.
	tr.AppendFrame(&b, frameOf("#commit", commitBody(nil, createOp("not.wanted.here/a", nil))))
	if len(dropsOf(&b.Counts)) != 0 || b.Counts.Filtered != filtered+1 {
		t.Errorf("drops %v, %d filtered", dropsOf(&b.Counts), b.Counts.Filtered)
	}
	checkBatch(t, &b)
}
