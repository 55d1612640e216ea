package format

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"millrace/translate"
)

// v2Oracle makes v2's event of v1's JSON by other means: of maps, which encoding/json sorts.
func v2Oracle(t testing.TB, seq int64, payload string) string {
	t.Helper()
	var v1 map[string]any
	d := json.NewDecoder(strings.NewReader(payload))
	d.UseNumber()
	if err := d.Decode(&v1); err != nil {
		t.Fatal(err)
	}
	us, err := v1["time_us"].(json.Number).Int64()
	if err != nil {
		t.Fatal(err)
	}
	kind := v1["kind"].(string)
	event := map[string]any{
		"$type": "network.bsky.jetstream.subscribeEvents#" + kind,
		"did":   v1["did"], "seq": seq, "time": time.UnixMicro(us).UTC().Format("2006-01-02T15:04:05.000000Z"),
	}
	if kind == "commit" {
		for k, v := range v1["commit"].(map[string]any) {
			event[k] = v
		}
	} else {
		event[kind] = v1[kind]
	}
	b, err := json.Marshal(map[string]any{"$type": "message", "payload": event})
	if err != nil {
		t.Fatal(err)
	}
	if kind != "commit" {
		// Of these strings only records are escaped so. None of the tests has a backslash before.
		return strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(string(b))
	}
	return string(b)
}

const (
	v1Head = `{"did":"did:plc:a","time_us":1783175888085434,"kind":`
	v1Link = `"bafkreias7oxbr6swsuggccmtnqpoeami4jza5x4w3urltn6gzhqf4k6k2e"`
)

// v1Events are events as translate makes them.
var v1Events = map[string]struct {
	kind    translate.Kind
	payload string
}{
	"create": {translate.KindCommit, v1Head + `"commit","commit":{"rev":"3mptbypluud2a","operation":"create","collection":"app.bsky.feed.like","rkey":"3k","record":{"$type":"app.bsky.feed.like","n":-1},"cid":"bafy"}}`},
	"update": {translate.KindCommit, v1Head + `"commit","commit":{"rev":"3mptbypluud2a","operation":"update","collection":"a.b.c","rkey":"self","record":{},"cid":"bafy"}}`},
	"delete": {translate.KindCommit, v1Head + `"commit","commit":{"rev":"3mptbypluud2a","operation":"delete","collection":"a.b.c","rkey":"self"}}`},
	"blobs": {translate.KindCommit, v1Head + `"commit","commit":{"rev":"3mptbypluud2a","operation":"create","collection":"a.b.c","rkey":"self","record":{"a":{"$type":"blob","ref":{"$link":` +
		v1Link + `},"mimeType":"a\"/\u003c,\"size\":1","size":1},"b":[{"$type":"blob","ref":{"$link":` + v1Link + `},"mimeType":"","size":12}],"c":{"cid":"x","mimeType":"y"}},"cid":"bafy"}}`},
	"texts":            {translate.KindCommit, v1Head + `"commit","commit":{"rev":"3mptbypluud2a","operation":"create","collection":"a.b.c","rkey":"self","record":{"text":"\u003c \u2028 \b \",\"cid\":\" {\"$type\":\"blob\",\"ref\":{\"$link\":\""},"cid":"bafy"}}`},
	"identity":         {translate.KindIdentity, v1Head + `"identity","identity":{"did":"did:plc:a","handle":"h.example","seq":7,"time":"2026-07-04T14:38:06.240Z"}}`},
	"without a handle": {translate.KindIdentity, v1Head + `"identity","identity":{"did":"did:plc:a","seq":7,"time":"2026-07-04T14:38:06.240Z"}}`},
	"odd handle":       {translate.KindIdentity, v1Head + `"identity","identity":{"did":"did:plc:a","handle":"\u2028\u2029\u003c","seq":7,"time":"2026-07-04T14:38:06Z"}}`},
	"account":          {translate.KindAccount, v1Head + `"account","account":{"active":false,"did":"did:plc:a","seq":7,"status":"deleted","time":"2026-07-04T14:38:06.240Z"}}`},
	"sync":             {translate.KindSync, v1Head + `"sync","sync":{"blocks":{"$bytes":"OqJlcm9vdHOB/+"},"did":"did:plc:a","rev":"3mptbypluud2a","seq":7,"time":"2026-07-04T14:38:06.240Z"}}`},
}

func TestV2Events(t *testing.T) {
	var v v2Encoder
	for name, e := range v1Events {
		want := v2Oracle(t, 1234<<10|5, e.payload)
		got, ok := v.append([]byte("prefix"), e.kind, V2Seq(1<<20, 210, 5), 1783175888085434, []byte(e.payload), referencesOfEvent{})
		if !ok || string(got) != "prefix"+want {
			t.Errorf("%s is\n%s\nwant\n%s", name, got, want)
		}
		for n := range e.payload {
			cut, ok := v.append([]byte("prefix"), e.kind, 1, 1783175888085434, []byte(e.payload[:n]), referencesOfEvent{})
			if ok && e.kind == translate.KindCommit || !ok && string(cut) != "prefix" {
				t.Errorf("%s, cut to %d bytes, is %s", name, n, cut)
			}
		}
	}
	if got, ok := v.append(nil, 0, 1, 1, []byte(v1Events["create"].payload), referencesOfEvent{}); ok || len(got) > 0 {
		t.Errorf("an event of no kind is %s", got)
	}
}

// TestV2SeqOfAWholeFrame: the place after all ops of a frame, where references may begin, has a seq
// before the next frame's.
func TestV2SeqOfAWholeFrame(t *testing.T) {
	if got, next := V2Seq(0, 400, math.MaxUint32), V2Seq(0, 401, 0); got < V2Seq(0, 400, 1022) || got >= next {
		t.Errorf("the seq after frame 400 is %d, frame 401 begins at %d", got, next)
	}
}

// TestV2Time: the time is right over the borders of seconds, and to the microsecond.
func TestV2Time(t *testing.T) {
	var v v2Encoder
	for _, us := range []int64{0, 1, 999_999, 1_000_000, 1783175888999999, 1783175889000000, 1783175888000001, 9999999999999999} {
		want := time.UnixMicro(us).UTC().Format("2006-01-02T15:04:05.000000")
		if got := string(v.appendTime(nil, us)); got != want {
			t.Errorf("%d is %s, want %s", us, got, want)
		}
	}
}

// TestV2EscapedBackslash: what only looks like an escape stays.
func TestV2EscapedBackslash(t *testing.T) {
	var v v2Encoder
	payload := v1Head + `"identity","identity":{"did":"did:plc:a","handle":"\\u2028 \\\u2029 \\\\u202a","seq":7,"time":"2026-07-04T14:38:06Z"}}`
	got, ok := v.append(nil, translate.KindIdentity, 1, 1, []byte(payload), referencesOfEvent{})
	if want := `"handle":"\\u2028 \\` + "\u2029" + ` \\\\u202a"`; !ok || !bytes.Contains(got, []byte(want)) {
		t.Errorf("%s has no %s", got, want)
	}
}

// FuzzV2Events: whatever strings a record has, the event is what encoding/json makes of it.
func FuzzV2Events(f *testing.F) {
	f.Add("text", "image/png", "key")
	f.Add(`{"$type":"blob","ref":{"$link":"`, `","size":1`, `"},"mimeType":"`)
	f.Add(`","cid":"`, "\u2028<>&", `\`)
	f.Fuzz(func(t *testing.T, text, mime, key string) {
		if !utf8.ValidString(text) || !utf8.ValidString(mime) || !utf8.ValidString(key) {
			return
		}
		quote := func(s string) string {
			b, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
		blob := `{"$type":"blob","ref":{"$link":` + v1Link + `},"mimeType":` + quote(mime) + `,"size":3}`
		payload := v1Head + `"commit","commit":{"rev":"3mptbypluud2a","operation":"create","collection":"a.b.c","rkey":"self","record":{` +
			quote("a"+key) + `:` + blob + `,` + quote("b"+key) + `:[` + quote(text) + `,` + blob + `]},"cid":"bafy"}}`
		var v v2Encoder
		got, ok := v.append(nil, translate.KindCommit, 9, 1783175888085434, []byte(payload), referencesOfEvent{})
		if want := v2Oracle(t, 9, payload); !ok || string(got) != want {
			t.Errorf("%s is\n%s\nwant\n%s", payload, got, want)
		}
		for _, kind := range []translate.Kind{translate.KindCommit, translate.KindIdentity, translate.KindAccount, translate.KindSync} {
			v.append(nil, kind, 9, 1783175888085434, []byte(text), referencesOfEvent{}) // any bytes
		}
	})
}

func BenchmarkV2Events(b *testing.B) {
	var v v2Encoder
	e := v1Events["create"]
	dst := make([]byte, 0, 1<<10)
	b.SetBytes(int64(len(e.payload)))
	for b.Loop() {
		dst, _ = v.append(dst[:0], e.kind, 1<<45, 1783175888085434, []byte(e.payload), referencesOfEvent{})
	}
}
