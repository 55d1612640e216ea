package translate

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/consume/relaysim/cbor"
)

// The operations that surround a bad one: a good create before it, a good update and delete after.
var (
	goodCreate = testRecord("good create")
	goodUpdate = testRecord("good update")
)

// amongGood returns a frame with the given operation and blocks among good ones, and the frame's
// body.
func amongGood(op any, blocks ...carBlock) cborMap {
	car := carOf(append([]carBlock{blockOf(goodCreate), blockOf(goodUpdate)}, blocks...)...)
	return commitBody(car,
		createOp("app.bsky.feed.post/first", goodCreate),
		op,
		updateOp("app.bsky.feed.post/third", goodUpdate),
		deleteOp("app.bsky.feed.post/fourth"))
}

// summary says in a line each what a batch holds.
func summary(b *Batch) []string {
	var out []string
	for i := range b.Events {
		e := &b.Events[i]
		out = append(out, fmt.Sprintf("%d %s %s %s", e.Op, e.Kind, e.Operation, b.RecordKey(i)))
	}
	return out
}

// dropsOf returns the counted reasons.
func dropsOf(c *Counts) map[string]uint64 {
	out := map[string]uint64{}
	for r, n := range c.Drops {
		if n > 0 {
			out[Reason(r).String()] = n
		}
	}
	return out
}

// badOp is an operation that is dropped for a reason while the ones beside it are served.
type badOp struct {
	name   string
	op     any
	blocks []carBlock
	reason Reason
}

func badOps() []badOp {
	rec := testRecord("bad")
	blk := []carBlock{blockOf(rec)}
	op := createOp("app.bsky.feed.post/bad", rec)
	tampered := []carBlock{{cidOf(rec), append(bytes.Clone(rec), 0)}}
	sha512 := append([]byte{1, codecDAGCBOR, 0x13, 64}, make([]byte, 64)...)
	dagPB := append([]byte{1, 0x70, hashSHA256, 32}, make([]byte, 32)...)
	path := func(p string) cborMap { return op.With("path", p) }
	return []badOp{
		{"op is null", nil, nil, ReasonInvalidOp},
		{"op is an array", []any{1, 2}, nil, ReasonInvalidOp},
		{"op with a number for a key", append(cborMap{{1, 2}}, op...), blk, ReasonInvalidOp},
		{"op with a key twice", append(cborMap{{"path", "app.bsky.feed.post/x"}}, op...), blk, ReasonInvalidOp},
		{"no slash", path("app.bsky.feed.post"), blk, ReasonInvalidPath},
		{"two slashes", path("app.bsky.feed.post/a/b"), blk, ReasonInvalidPath},
		{"leading slash", path("/app.bsky.feed.post/a"), blk, ReasonInvalidPath},
		{"collection is no NSID", path("post/a"), blk, ReasonInvalidPath},
		{"empty record key", path("app.bsky.feed.post/"), blk, ReasonInvalidPath},
		{"record key ..", path("app.bsky.feed.post/.."), blk, ReasonInvalidPath},
		{"record key with a quote", path(`app.bsky.feed.post/a"b`), blk, ReasonInvalidPath},
		{"record key not UTF-8", path("app.bsky.feed.post/\xff"), blk, ReasonInvalidPath},
		{"path is bytes", op.With("path", []byte("app.bsky.feed.post/a")), blk, ReasonInvalidPath},
		{"no path", op.Without("path"), blk, ReasonInvalidPath},
		{"delete with a bad path", deleteOp("nothing"), nil, ReasonInvalidPath},
		{"unknown action", op.With("action", "upsert"), blk, ReasonUnknownAction},
		{"action is a number", op.With("action", 1), blk, ReasonUnknownAction},
		{"no action", op.Without("action"), blk, ReasonUnknownAction},
		{"create without cid", op.Without("cid"), blk, ReasonMissingCID},
		{"create with null cid", op.With("cid", nil), blk, ReasonMissingCID},
		{"update with null cid", op.With("action", "update").With("cid", nil), blk, ReasonMissingCID},
		{"cid as text", op.With("cid", cidText(cidOf(rec))), blk, ReasonInvalidCID},
		{"cid of another tag", op.With("cid", cborTag{43, append([]byte{0}, cidOf(rec)...)}), blk, ReasonInvalidCID},
		{"cid without its prefix", op.With("cid", cborTag{42, cidOf(rec)}), blk, ReasonInvalidCID},
		{"cid of SHA-512", op.With("cid", cborLink(sha512)), blk, ReasonInvalidCID},
		{"cid of DAG-PB", op.With("cid", cborLink(dagPB)), blk, ReasonInvalidCID},
		{"cid cut short", op.With("cid", cborLink(cidOf(rec)[:35])), blk, ReasonInvalidCID},
		{"cid with a byte too many", op.With("cid", cborLink(append(cidOf(rec), 0))), blk, ReasonInvalidCID},
		{"block missing", op, nil, ReasonMissingBlock},
		{"block of another codec", op, []carBlock{{append([]byte{1, codecRaw}, cidOf(rec)[2:]...), rec}}, ReasonMissingBlock},
		{"block tampered with", op, tampered, ReasonCIDMismatch},
	}
}

// badRecords are blocks that are no record.
func badRecords() map[string][]byte {
	link, text := cborLink(cidOf(nil)), cidText(cidOf(nil))
	a := func(v any) []byte { return cborOf(cborMap{{"a", v}}) }
	nested := func(depth int) []byte { // the record itself included
		v := any(1)
		for range depth - 1 {
			v = []any{v}
		}
		return a(v)
	}
	nestedMaps := any(cborMap{})
	for range maxDepth {
		nestedMaps = cborMap{{"a", nestedMaps}}
	}
	huge := make([]byte, maxRecordBytes)
	return map[string][]byte{
		"empty":                    {},
		"an array":                 cborOf([]any{1}),
		"text":                     cborOf("record"),
		"null":                     {0xf6},
		"tagged":                   cborOf(cborTag{55799, cborMap{}}),
		"a link object":            cborOf(cborMap{{"$link", cidText(cidOf(nil))}}),
		"a bytes object":           cborOf(cborMap{{"$bytes", "AAAA"}}),
		"a blob":                   cborOf(cborMap{{"$type", "blob"}, {"ref", link}, {"mimeType", "a/b"}, {"size", 1}}),
		"a legacy blob":            cborOf(cborMap{{"cid", cidText(cidOf(nil))}, {"mimeType", "a/b"}}),
		"over 1 MiB":               a(huge),
		"nested too deep":          nested(maxDepth + 1),
		"maps nested too deep":     cborOf(nestedMaps),
		"key twice":                cborOf(cborMap{{"a", 1}, {"a", 2}}),
		"key twice, not adjacent":  cborOf(cborMap{{"a", 1}, {"b", 2}, {"a", 3}}),
		"key twice within":         a(cborMap{{"k", 1}, {"k", 1}}),
		"long key twice":           a(cborMap{{"longer than eight", 1}, {"b", 2}, {"longer than eight", 1}}),
		"integer key":              cborOf(cborMap{{1, 2}}),
		"bytes key":                cborOf(cborMap{{[]byte("a"), 2}}),
		"null key":                 cborOf(cborMap{{nil, 2}}),
		"tagged key":               cborOf(cborMap{{cborTag{1, "a"}, 2}}),
		"key over 8 KiB":           cborOf(cborMap{{strings.Repeat("k", 8193), 1}}),
		"invalid UTF-8":            a("\xff"),
		"UTF-8 cut short":          a("caf\xc3"),
		"UTF-8 overlong":           a("\xc0\x80"),
		"UTF-8 surrogate":          a("\xed\xa0\x80"),
		"invalid UTF-8 key":        cborOf(cborMap{{"\xff", 1}}),
		"indefinite map":           {0xbf, 0x61, 'a', 1, 0xff},
		"indefinite array":         a(cborRaw{0x9f, 1, 0xff}),
		"indefinite text":          a(cborRaw{0x7f, 0x61, 'a', 0xff}),
		"indefinite bytes":         a(cborRaw{0x5f, 0x41, 1, 0xff}),
		"a break":                  a(cborRaw{0xff}),
		"a fraction":               a(1.5),
		"a narrow fraction":        a(float32(1.5)),
		"a half fraction":          a(float16Bits(0x3e00)),
		"NaN":                      a(cborRaw{0xfb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0}),
		"infinity":                 a(cborRaw{0xf9, 0x7c, 0}),
		"float of 2^63":            a(float64(1 << 63)),
		"2^63":                     a(uint64(1 << 63)),
		"-2^63-1":                  a(cborRaw{0x3b, 0x80, 0, 0, 0, 0, 0, 0, 0}),
		"simple value":             a(cborRaw{0xe5}),
		"simple value of a byte":   a(cborRaw{0xf8, 0x20}),
		"reserved head":            a(cborRaw{0x1c}),
		"tag of a date":            a(cborTag{0, "2026-07-04T14:38:08Z"}),
		"tag 42 on text":           a(cborTag{42, "a"}),
		"tag 42 on nothing":        a(cborTag{42, []byte{}}),
		"tag 42 twice":             a(cborTag{42, cborTag{42, append([]byte{0}, cidOf(nil)...)}}),
		"link of version 2":        a(cborLink(append([]byte{2}, cidOf(nil)[1:]...))),
		"link with more after it":  a(cborLink(append(cidOf(nil), 1))),
		"link object of more":      a(cborMap{{"$link", cidText(cidOf(nil))}, {"b", 1}}),
		"link object with $type":   a(cborMap{{"$link", cidText(cidOf(nil))}, {"$type", "x"}}),
		"link object, bits over":   a(cborMap{{"$link", text[:len(text)-1] + "b"}}),
		"link object, char over":   a(cborMap{{"$link", text + "a"}}),
		"link object of version 0": a(cborMap{{"$link", "b" + cidEncoding.EncodeToString(cidOf(nil)[2:])}}),
		"link of another prefix":   a(cborTag{42, append([]byte{1}, cidOf(nil)...)}),
		"link, codec in vain":      a(cborLink(append([]byte{1, 0xf1, 0}, cidOf(nil)[2:]...))),
		"link, codec of ten bytes": a(cborLink(append(append([]byte{1}, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"...), cidOf(nil)[2:]...))),
		"bytes object with $type":  a(cborMap{{"$bytes", "AAAA"}, {"$type", "x"}}),
		"link object of no CID":    a(cborMap{{"$link", "."}}),
		"link object of a number":  a(cborMap{{"$link", 1234}}),
		"bytes object of more":     a(cborMap{{"$bytes", "AAAA"}, {"b", 1}}),
		"bytes object of an array": a(cborMap{{"$bytes", []any{1}}}),
		"bytes object, padded":     a(cborMap{{"$bytes", "AA=="}}),
		"bytes object, backslash":  a(cborMap{{"$bytes", "\\"}}),
		"bytes object, quote":      a(cborMap{{"$bytes", "AA\""}}),
		"bytes object, control":    a(cborMap{{"$bytes", "AA\x01"}}),
		"$type empty":              a(cborMap{{"$type", ""}}),
		"$type null":               a(cborMap{{"$type", nil}}),
		"$type a number":           cborOf(cborMap{{"$type", 123}}),
		"blob without ref":         a(cborMap{{"$type", "blob"}, {"mimeType", "a/b"}, {"size", 1}}),
		"blob with more":           a(cborMap{{"$type", "blob"}, {"ref", link}, {"mimeType", "a/b"}, {"size", 1}, {"x", 1}}),
		"blob with other keys":     a(cborMap{{"$type", "blob"}, {"ref", link}, {"mimeType", "a/b"}, {"x", 1}}),
		"blob, size as text":       a(cborMap{{"$type", "blob"}, {"ref", link}, {"mimeType", "a/b"}, {"size", "1"}}),
		"blob, size below 0":       a(cborMap{{"$type", "blob"}, {"ref", link}, {"mimeType", "a/b"}, {"size", -1}}),
		"blob, size a fraction":    a(cborMap{{"$type", "blob"}, {"ref", link}, {"mimeType", "a/b"}, {"size", 0.5}}),
		"blob, size null":          a(cborMap{{"$type", "blob"}, {"ref", link}, {"mimeType", "a/b"}, {"size", nil}}),
		"blob, mimeType a number":  a(cborMap{{"$type", "blob"}, {"ref", link}, {"mimeType", 1}, {"size", 1}}),
		"blob, ref as text":        a(cborMap{{"$type", "blob"}, {"ref", cidText(cidOf(nil))}, {"mimeType", "a/b"}, {"size", 1}}),
		"blob, ref as a map":       a(cborMap{{"$type", "blob"}, {"ref", cborMap{}}, {"mimeType", "a/b"}, {"size", 1}}),
		"legacy blob of no CID":    a(cborMap{{"cid", "none"}, {"mimeType", "a/b"}}),
		"legacy blob, cid null":    a(cborMap{{"cid", nil}, {"mimeType", "a/b"}}),
		"legacy blob, like a link": a(cborMap{{"cid", cborMap{{"$link", cidText(cidOf(nil))}}}, {"mimeType", "a/b"}}),
		"legacy blob, no type":     a(cborMap{{"cid", cidText(cidOf(nil))}, {"mimeType", 1}}),
		"cut short":                a("abc")[:5],
		"array longer than block":  a(cborRaw{0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
		"map longer than block":    a(cborRaw{0xba, 0xff, 0xff, 0xff, 0xff}),
		"text longer than block":   a(cborRaw{0x7b, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}),
		"bytes longer than block":  a(cborRaw{0x5a, 0x7f, 0xff, 0xff, 0xff}),
		"array of too many":        a(append(cborRaw{0x9a, 0, 2, 0, 1}, make([]byte, 1<<17+1)...)),
	}
}

// TestBadOp holds for every reason that drops one operation that it is counted, and that nothing of
// the operation is served. The ones beside it are served, under their own index.
func TestBadOp(t *testing.T) {
	cases := badOps()
	for name, rec := range badRecords() {
		cases = append(cases, badOp{name, createOp("app.bsky.feed.post/bad", rec), []carBlock{blockOf(rec)}, ReasonInvalidRecord})
	}
	tr := newTranslator(t)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var b Batch
			tr.AppendFrame(&b, frameOf("#commit", amongGood(tc.op, tc.blocks...)))
			want := []string{"0 commit create first", "2 commit update third", "3 commit delete fourth"}
			if diff := cmp.Diff(want, summary(&b)); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(map[string]uint64{tc.reason.String(): 1}, dropsOf(&b.Counts)); diff != "" {
				t.Errorf("drops (-want +got):\n%s", diff)
			}
			checkBatch(t, &b)
		})
	}
}

// TestBadFrame holds for every reason that drops a frame that it is counted and leaves nothing of
// it. The frames around it are served.
func TestBadFrame(t *testing.T) {
	rec := testRecord("in a bad frame")
	body := commitBody(carOf(blockOf(rec)), createOp("app.bsky.feed.post/a", rec))
	commit := func(key string, value any) []byte { return frameOf("#commit", body.With(key, value)) }
	identity := func(key string, value any) []byte { return frameOf("#identity", identityBody().With(key, value)) }
	account := func(key string, value any) []byte { return frameOf("#account", accountBody().With(key, value)) }
	header := func(h any) []byte { return cbor.Append(cborOf(h), body) }
	whole := frameOf("#commit", body)
	overhead := len(commit("blobs", make([]byte, 1<<20))) - 1<<20
	manyOps := make([]any, MaxOps+1)
	for i := range manyOps {
		manyOps[i] = deleteOp("app.bsky.feed.post/a")
	}
	cases := []struct {
		name   string
		frame  []byte
		kind   FrameKind
		reason Reason
	}{
		{"empty", nil, FrameGarbage, ReasonEmptyFrame},
		{"text message", []byte(`{"op":1,"t":"#commit"}`), FrameGarbage, ReasonInvalidHeader},
		{"garbage", []byte("\x00\xff\x12garbage"), FrameGarbage, ReasonInvalidHeader},
		{"header cut short", whole[:9], FrameGarbage, ReasonInvalidHeader},
		{"header an array", header([]any{"#commit", 1}), FrameGarbage, ReasonInvalidHeader},
		{"header without op", header(cborMap{{"t", "#commit"}}), FrameGarbage, ReasonInvalidHeader},
		{"header without t", header(cborMap{{"op", 1}}), FrameGarbage, ReasonInvalidHeader},
		{"header with t a number", header(cborMap{{"t", 1}, {"op", 1}}), FrameGarbage, ReasonInvalidHeader},
		{"header with op as text", header(cborMap{{"t", "#commit"}, {"op", "1"}}), FrameGarbage, ReasonInvalidHeader},
		{"header with op twice", header(cborMap{{"t", "#commit"}, {"op", 1}, {"op", 1}}), FrameGarbage, ReasonInvalidHeader},
		{"header with t twice", header(cborMap{{"t", "#info"}, {"t", "#commit"}, {"op", 1}}), FrameGarbage, ReasonInvalidHeader},
		{"error frame", cbor.Append(cborOf(cborMap{{"op", -1}}), cborMap{{"error", "FutureCursor"}}), FrameError, ReasonErrorFrame},
		{"unknown op", header(cborMap{{"t", "#commit"}, {"op", 2}}), FrameUnknown, ReasonUnknownOp},
		{"unknown op below 0", header(cborMap{{"t", "#commit"}, {"op", -2}}), FrameUnknown, ReasonUnknownOp},
		{"unknown kind", frameOf("#handle", body), FrameUnknown, ReasonUnknownKind},
		{"kind without its mark", frameOf("commit", body), FrameUnknown, ReasonUnknownKind},
		{"no body", cborOf(cborMap{{"t", "#commit"}, {"op", 1}}), FrameCommit, ReasonTruncatedFrame},
		{"body cut short", whole[:len(whole)-1], FrameCommit, ReasonTruncatedFrame},
		{"body cut within ops", whole[:40], FrameCommit, ReasonTruncatedFrame},
		{"bytes after the body", append(bytes.Clone(whole), 0), FrameCommit, ReasonInvalidBody},
		{"body an array", frameOf("#commit", []any{}), FrameCommit, ReasonInvalidBody},
		{"body indefinite", frameOf("#commit", cborRaw{0xbf, 0xff}), FrameCommit, ReasonInvalidBody},
		{"body with a number for a key", frameOf("#commit", append(cborMap{{1, 1}}, body...)), FrameCommit, ReasonInvalidBody},
		{"body with seq twice", frameOf("#commit", append(cborMap{{"seq", 1}}, body...)), FrameCommit, ReasonInvalidBody},
		{"body of declared size", frameOf("#commit", cborRaw{0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}), FrameCommit, ReasonTruncatedFrame},
		{"body with a reserved simple value", commit("more", cborRaw{0xf8, 0x20}), FrameCommit, ReasonInvalidBody},
		{"ops is null", commit("ops", nil), FrameCommit, ReasonInvalidBody},
		{"ops is a map", commit("ops", cborMap{}), FrameCommit, ReasonInvalidBody},
		{"ops missing", frameOf("#commit", body.Without("ops")), FrameCommit, ReasonInvalidBody},
		{"tooBig is a number", commit("tooBig", 1), FrameCommit, ReasonInvalidBody},
		{"seq missing", frameOf("#commit", body.Without("seq")), FrameCommit, ReasonInvalidSeq},
		{"seq is 0", commit("seq", 0), FrameCommit, ReasonInvalidSeq},
		{"seq below 0", commit("seq", -5), FrameCommit, ReasonInvalidSeq},
		{"seq beyond int64", commit("seq", uint64(1<<63)), FrameCommit, ReasonInvalidSeq},
		{"seq as text", commit("seq", "5"), FrameCommit, ReasonInvalidSeq},
		{"repo is no DID", commit("repo", "alice.example.com"), FrameCommit, ReasonInvalidDID},
		{"repo with a quote", commit("repo", `did:plc:a"b`), FrameCommit, ReasonInvalidDID},
		{"repo is bytes", commit("repo", []byte(testDID)), FrameCommit, ReasonInvalidDID},
		{"repo missing", frameOf("#commit", body.Without("repo")), FrameCommit, ReasonInvalidDID},
		{"repo as did", frameOf("#commit", body.Without("repo").With("did", testDID)), FrameCommit, ReasonInvalidDID},
		{"rev is no TID", commit("rev", "3mptbypluud2"), FrameCommit, ReasonInvalidRev},
		{"rev above 63 bits", commit("rev", "zmptbypluud2a"), FrameCommit, ReasonInvalidRev},
		{"rev is null", commit("rev", nil), FrameCommit, ReasonInvalidRev},
		{"rev is a number", commit("rev", 3), FrameCommit, ReasonInvalidRev},
		{"time is no date", commit("time", "yesterday"), FrameCommit, ReasonInvalidTime},
		{"time without a zone", commit("time", "2026-07-04T14:38:08.123"), FrameCommit, ReasonInvalidTime},
		{"time of February 30", commit("time", "2026-02-30T14:38:08Z"), FrameCommit, ReasonInvalidTime},
		{"time is a number", commit("time", 1783175888), FrameCommit, ReasonInvalidTime},
		{"too many ops", commit("ops", manyOps), FrameCommit, ReasonTooLarge},
		{"over 5 MiB", commit("blobs", make([]byte, maxFrameBytes+1-overhead)), FrameCommit, ReasonTooLarge},
		{"identity without did", frameOf("#identity", identityBody().Without("did")), FrameIdentity, ReasonInvalidDID},
		{"identity, bad did", identity("did", "did:"), FrameIdentity, ReasonInvalidDID},
		{"identity, bad time", identity("time", ""), FrameIdentity, ReasonInvalidTime},
		{"identity, bad seq", identity("seq", 0), FrameIdentity, ReasonInvalidSeq},
		{"identity, handle a number", identity("handle", 1), FrameIdentity, ReasonInvalidBody},
		{"identity, handle not UTF-8", identity("handle", "a\xff"), FrameIdentity, ReasonInvalidBody},
		{"account, bad did", account("did", "did:plc:"), FrameAccount, ReasonInvalidDID},
		{"account, bad time", account("time", "2026"), FrameAccount, ReasonInvalidTime},
		{"account without active", frameOf("#account", accountBody().Without("active")), FrameAccount, ReasonInvalidBody},
		{"account, active null", account("active", nil), FrameAccount, ReasonInvalidBody},
		{"account, active a number", account("active", 1), FrameAccount, ReasonInvalidBody},
		{"account, status a map", account("status", cborMap{}), FrameAccount, ReasonInvalidBody},
		{"account, status not UTF-8", account("status", "\x80"), FrameAccount, ReasonInvalidBody},
	}
	good := frameOf("#commit", amongGood(deleteOp("app.bsky.feed.post/second")))
	tr := newTranslator(t)
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			var b Batch
			tr.AppendFrame(&b, good)
			json := bytes.Clone(b.JSON)
			tr.AppendFrame(&b, tc.frame)
			if len(b.Events) != 4 || !bytes.Equal(b.JSON, json) {
				t.Errorf("the frame left something: %d events, %d bytes", len(b.Events)-4, len(b.JSON)-len(json))
			}
			tr.AppendFrame(&b, good)
			if len(b.Events) != 8 || !bytes.Equal(b.JSON, append(json, json...)) {
				t.Errorf("the frame after it gave %d events", len(b.Events)-4)
			}
			if diff := cmp.Diff(map[string]uint64{tc.reason.String(): 1}, dropsOf(&b.Counts)); diff != "" {
				t.Errorf("drops (-want +got):\n%s", diff)
			}
			want := [NumFrameKinds]uint64{FrameCommit: 2}
			want[tc.kind]++
			if b.Counts.Frames != want {
				t.Errorf("frames counted %v, want %v", b.Counts.Frames, want)
			}
			checkBatch(t, &b)
		})
	}
}

// TestFrameWithoutEvents holds that frames that are not served are counted by kind and as no drop.
func TestFrameWithoutEvents(t *testing.T) {
	tooBig := commitBody([]byte{}).With("tooBig", true).Without("blocks")
	cases := []struct {
		name  string
		frame []byte
		kind  FrameKind
	}{
		{"tooBig", frameOf("#commit", tooBig), FrameTooBig},
		{"info", frameOf("#info", cborMap{{"name", "OutdatedCursor"}}), FrameInfo},
		{"no ops", frameOf("#commit", commitBody(nil)), FrameCommit},
	}
	tr := newTranslator(t)
	for _, tc := range cases {
		var b Batch
		tr.AppendFrame(&b, tc.frame)
		want := Counts{}
		want.Frames[tc.kind] = 1
		if b.Counts != want || len(b.Events) != 0 || len(b.JSON) != 0 {
			t.Errorf("%s: counted %+v, %d events, %d bytes", tc.name, b.Counts, len(b.Events), len(b.JSON))
		}
	}
}

// TestBadCAR holds that without a CAR a frame's deletes are served and the rest is not.
func TestBadCAR(t *testing.T) {
	car := carOf(blockOf(goodCreate), blockOf(goodUpdate))
	header := func(v any) []byte {
		return cbor.AppendCARSection(cbor.AppendCARSection(nil, cborOf(v)), cidOf(goodCreate), goodCreate)
	}
	roots := []any{cborLink(cidOf(goodCreate))}
	cases := map[string]any{
		"null":                   nil,
		"text":                   "blocks",
		"empty":                  []byte{},
		"garbage":                []byte("no CAR at all, just some text"),
		"cut within a block":     car[:len(car)-1],
		"cut within a CID":       car[:len(car)-len(goodUpdate)-10],
		"a byte too many":        append(bytes.Clone(car), 0),
		"an empty section":       append(append(bytes.Clone(car), 0), cbor.AppendCARSection(nil, cidOf(nil))...),
		"section without a CID":  cbor.AppendCARSection(bytes.Clone(car), []byte("x")),
		"section over its end":   append(bytes.Clone(car), 0xff, 0xff, 0xff, 0xff, 0x0f, 1),
		"length never ends":      append(bytes.Clone(car), bytes.Repeat([]byte{0xff}, 12)...),
		"header of version 2":    header(cborMap{{"roots", roots}, {"version", 2}}),
		"header without version": header(cborMap{{"roots", roots}}),
		"header without roots":   header(cborMap{{"version", 1}}),
		"header with no root":    header(cborMap{{"roots", []any{}}, {"version", 1}}),
		"header with a bad root": header(cborMap{{"roots", []any{"root"}}, {"version", 1}}),
		"header with more":       header(cborMap{{"roots", roots}, {"version", 1}, {"more", 1}}),
		"header an array":        header([]any{1}),
		"header cut short":       header(cborMap{{"roots", roots}, {"version", 1}})[:20],
	}
	tr := newTranslator(t)
	check := func(t *testing.T, body cborMap) {
		var b Batch
		tr.AppendFrame(&b, frameOf("#commit", body))
		if diff := cmp.Diff([]string{"1 commit delete second", "3 commit delete fourth"}, summary(&b)); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]uint64{"invalid_car": 1}, dropsOf(&b.Counts)); diff != "" {
			t.Errorf("drops (-want +got):\n%s", diff)
		}
		checkBatch(t, &b)
	}
	body := amongGood(deleteOp("app.bsky.feed.post/second"))
	for name, blocks := range cases {
		t.Run(name, func(t *testing.T) { check(t, body.With("blocks", blocks)) })
	}
	t.Run("missing", func(t *testing.T) { check(t, body.Without("blocks")) })
	t.Run("not needed", func(t *testing.T) {
		var b Batch
		tr.AppendFrame(&b, frameOf("#commit", commitBody(nil, deleteOp("app.bsky.feed.post/second"))))
		if drops := dropsOf(&b.Counts); len(b.Events) != 1 || len(drops) > 0 {
			t.Errorf("%d events, drops %v", len(b.Events), drops)
		}
	})
}

// TestLenientFrame holds that forms that are not canonical but clear are served.
func TestLenientFrame(t *testing.T) {
	body := amongGood(deleteOp("app.bsky.feed.post/second"))
	reversed := cborMap{{"unknown", []any{cborMap{{"a", cborTag{7, 1.5}}}, "\xff"}}}
	for i := len(body) - 1; i >= 0; i-- {
		reversed = append(reversed, body[i])
	}
	ops := body[0].Value.([]any)
	wideOps := []any{}
	for _, o := range ops {
		wideOps = append(wideOps, append(cborMap{{"extra", 1}}, o.(cborMap)...))
	}
	cases := map[string][]byte{
		"keys reversed, one unknown": frameOf("#commit", reversed),
		"header reversed, with more": cbor.Append(cborOf(cborMap{{"op", 1}, {"x", []any{1}}, {"t", "#commit"}}), body),
		"wide integers":              cbor.Append(cborRaw{0xb8, 2, 0x78, 1, 't', 0x78, 7, '#', 'c', 'o', 'm', 'm', 'i', 't', 0x62, 'o', 'p', 0x19, 0, 1}, body),
		"seq wide":                   frameOf("#commit", body.With("seq", cborRaw{0x1b, 0, 0, 0, 0, 0, 0, 0, 7})),
		"ops with more fields":       frameOf("#commit", body.With("ops", wideOps)),
		"no tooBig":                  frameOf("#commit", body.Without("tooBig")),
	}
	tr := newTranslator(t)
	for name, frame := range cases {
		var b Batch
		tr.AppendFrame(&b, frame)
		if len(b.Events) != 4 || len(dropsOf(&b.Counts)) != 0 {
			t.Errorf("%s: events %v, drops %v", name, summary(&b), dropsOf(&b.Counts))
		}
		checkBatch(t, &b)
	}
}
