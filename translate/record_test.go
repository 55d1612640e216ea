package translate

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

// checkRecord holds a record's JSON against indigo's, but for the differences.
func checkRecord(t *testing.T, c *recordCoder, record []byte) {
	t.Helper()
	ours, ok := ourRecord(c, record)
	indigo, err := indigoRecord(record, true)
	found := divergences(record)
	if len(found) == 1 && found[0] == diffEmptyBytes {
		found = nil // indigoRecord has made up for it
	}
	switch {
	case ok && err != nil:
		t.Errorf("%x\nserved as %s\nindigo refuses it: %v", record, ours, err)
	case ok && len(found) > 0:
		t.Errorf("%x\nserved as %s\nin spite of: %v", record, ours, found)
	case ok && !bytes.Equal(ours, indigo):
		t.Errorf("%x\nserved as %s\nby indigo %s", record, ours, indigo)
	case !ok && err == nil && len(found) == 0:
		t.Errorf("%x\ndropped, but indigo makes %s of it", record, indigo)
	}
}

// lenientRecords are records that are served although they are not as DAG-CBOR would have them, and
// other odd ones, with their JSON.
var lenientRecords = []struct {
	name   string
	record []byte
	json   string
}{
	{"empty", cborOf(cborMap{}), `{}`},
	{"order of keys", cborOf(cborMap{{"bb", 1}, {"a", 2}, {"ab", 3}, {"", 4}, {"a\x00", 5}, {"B", 6}, {"longer than eight b", 7}, {"longer than eight a", 8}}),
		`{"":4,"B":6,"a":2,"a\u0000":5,"ab":3,"bb":1,"longer than eight a":8,"longer than eight b":7}`},
	{"wide integers", cborOf(cborMap{{"a", cborRaw{0x1b, 0, 0, 0, 0, 0, 0, 0, 1}}, {"b", cborRaw{0x39, 0, 0}}}), `{"a":1,"b":-1}`},
	{"wide lengths", []byte{0xb9, 0, 1, 0x7a, 0, 0, 0, 1, 'a', 0x98, 1, 0x58, 1, 9}, `{"a":[{"$bytes":"CQ"}]}`},
	{"wide tag", cborOf(cborMap{{"a", append(cborRaw{0xd9, 0, 42}, cborOf(append([]byte{0}, cidOf(nil)...))...)}}),
		`{"a":{"$link":"` + cidText(cidOf(nil)) + `"}}`},
	{"integers at the ends", cborOf(cborMap{{"a", uint64(1<<63 - 1)}, {"b", -1 << 63}}), `{"a":9223372036854775807,"b":-9223372036854775808}`},
	{"floats without fractions", cborOf(cborMap{{"a", 123.0}, {"b", float32(-7)}, {"c", float16Bits(0x3c00)}, {"d", float16Bits(0xfbff)}, {"e", -1.0 * (1 << 63)}, {"f", cborRaw("\xfb\x80\x00\x00\x00\x00\x00\x00\x00")}}),
		`{"a":123,"b":-7,"c":1,"d":-65504,"e":-9223372036854775808,"f":0}`},
	{"undefined", cborOf(cborMap{{"a", cborRaw{0xf7}}}), `{"a":null}`},
	{"bytes after it", append(cborOf(cborMap{{"a", true}}), 0xff, 0), `{"a":true}`},
	{"blob", cborOf(cborMap{{"a", cborMap{{"ref", cborLink(cidOf(nil))}, {"size", 9.0}, {"$type", "blob"}, {"mimeType", "image/<x>"}}}}),
		`{"a":{"$type":"blob","ref":{"$link":"` + cidText(cidOf(nil)) + `"},"mimeType":"image/\u003cx\u003e","size":9}}`},
	{"blob with a link object", cborOf(cborMap{{"a", cborMap{{"ref", cborMap{{"$link", cidText(cidOf(nil))}}}, {"size", 0}, {"$type", "blob"}, {"mimeType", ""}}}}),
		`{"a":{"$type":"blob","ref":{"$link":"` + cidText(cidOf(nil)) + `"},"mimeType":"","size":0}}`},
	{"legacy blob", cborOf(cborMap{{"a", cborMap{{"mimeType", "a/b"}, {"cid", cidText(cidOf(nil))}}}}), `{"a":{"cid":"` + cidText(cidOf(nil)) + `","mimeType":"a/b"}}`},
	{"legacy blob with a link", cborOf(cborMap{{"a", cborMap{{"mimeType", "\"&"}, {"cid", cborLink(cidOf(nil))}}}}), `{"a":{"cid":"` + cidText(cidOf(nil)) + `","mimeType":"\"\u0026"}}`},
	{"like a legacy blob", cborOf(cborMap{{"a", cborMap{{"mimeType", 1}, {"cid", 2}, {"x", 3}}}, {"b", cborMap{{"mimeType", 1}, {"cie", 2}}}}), `{"a":{"cid":2,"mimeType":1,"x":3},"b":{"cie":2,"mimeType":1}}`},
	{"like a legacy blob, itself", cborOf(cborMap{{"mimeType", 1}, {"CID", 2}}), `{"CID":2,"mimeType":1}`},
	{"bytes object", cborOf(cborMap{{"a", cborMap{{"$bytes", "AA\r\n"}}}, {"b", cborMap{{"$bytes", "+/8"}}}, {"c", cborMap{{"$bytes", ""}}}, {"d", cborMap{{"$bytes", "AB"}}}}),
		`{"a":{"$bytes":"AA"},"b":{"$bytes":"+/8"},"c":{"$bytes":""},"d":{"$bytes":"AA"}}`},
	{"other $ keys", cborOf(cborMap{{"$links", 1}, {"$byte", 2}, {"$typ", ""}, {"$type", "x"}, {"$", 3}, {"!", 4}}), `{"!":4,"$":3,"$byte":2,"$links":1,"$typ":"","$type":"x"}`},
	{"link of version 0", cborOf(cborMap{{"a", cborLink(append([]byte{0x12, 0x20}, make([]byte, 32)...))}}), `{"a":{"$link":"QmNLei78zWmzUdbeRB3CiUfAizWUrbeeZh5K1rhAQKCh51"}}`},
	{"link of another hash", cborOf(cborMap{{"a", cborLink{1, 0x80, 1, 0, 1, 7}}}), `{"a":{"$link":"bagaacaaba4"}}`},
}

func TestLenientRecords(t *testing.T) {
	var c recordCoder
	for _, tc := range lenientRecords {
		got, ok := ourRecord(&c, tc.record)
		if !ok || string(got) != tc.json {
			t.Errorf("%s:\n got %s, %t\nwant %s", tc.name, got, ok, tc.json)
		}
		checkRecord(t, &c, tc.record)
	}
	for name, rec := range badRecords() {
		if _, ok := ourRecord(&c, rec); ok {
			t.Errorf("%s: served", name)
		}
		checkRecord(t, &c, rec)
	}
}

// TestStrings holds the JSON of strings against encoding/json, with every byte and rune that could
// matter at every place of a word of eight.
func TestStrings(t *testing.T) {
	var odd []string
	for c := range 0x80 {
		odd = append(odd, string(rune(c)))
	}
	odd = append(odd, oddTexts...)
	odd = append(odd, "\u0080", "\u07ff", "\u0800", "\u2027", "\u2028", "\u2029", "\u202a", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff")
	for _, s := range odd {
		for i := range 18 {
			text := strings.Repeat("x", i) + s + strings.Repeat("y", 17-i)
			want, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := appendQuoted([]byte("z"), []byte(text)); !ok || string(got) != "z"+string(want) {
				t.Fatalf("%q: got %s, %t, want %s", text, got, ok, want)
			}
			if n := quotedLen([]byte(text)); n != len(want) || n > maxQuotedLen(len(text)) {
				t.Fatalf("%q: quotedLen is %d, want %d", text, n, len(want))
			}
		}
	}
	for _, s := range []string{"\x80", "\xc0\x80", "\xc3", "\xe2\x80", "\xe2\x80\x22", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff"} {
		for i := range 18 {
			text := strings.Repeat("x", i) + s + strings.Repeat("y", 17-i)
			if got, ok := appendQuoted(nil, []byte(text)); ok {
				t.Fatalf("%q: got %s", text, got)
			}
		}
	}
}

// jsonValue returns a JSON value as what appendCBOR takes, by the rules of the data model's JSON.
func jsonValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		var m cborMap
		for k, e := range v {
			m = append(m, pair{k, jsonValue(e)})
		}
		return m
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, jsonValue(e))
		}
		return out
	}
	return v
}

// compactSorted returns JSON with the keys of its objects sorted and nothing between tokens.
func compactSorted(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestDataModelFixtures holds the interop fixtures. The CBOR of the first file gives its JSON and
// has its CID. The JSON of the others, put into CBOR as it is, is served or refused as the file
// says.
func TestDataModelFixtures(t *testing.T) {
	var fixtures []struct {
		JSON any    `json:"json"`
		CBOR string `json:"cbor_base64"`
		CID  string `json:"cid"`
	}
	if err := json.Unmarshal(corpusFile(t, "interop", "data-model", "data-model-fixtures.json"), &fixtures); err != nil {
		t.Fatal(err)
	}
	var c recordCoder
	for _, f := range fixtures {
		record, err := base64.RawStdEncoding.DecodeString(f.CBOR)
		if err != nil {
			t.Fatal(err)
		}
		got, ok := ourRecord(&c, record)
		var again any
		if err := json.Unmarshal(got, &again); !ok || err != nil || compactSorted(t, again) != compactSorted(t, f.JSON) {
			t.Errorf("got %s, %t, %v\nwant %s", got, ok, err, compactSorted(t, f.JSON))
		}
		if cidText(cidOf(record)) != f.CID {
			t.Errorf("CID %s, want %s", cidText(cidOf(record)), f.CID)
		}
		checkRecord(t, &c, record)
	}
	for _, verdict := range []string{"valid", "invalid"} {
		var cases []struct {
			Note string `json:"note"`
			JSON any    `json:"json"`
		}
		if err := json.Unmarshal(corpusFile(t, "interop", "data-model", "data-model-"+verdict+".json"), &cases); err != nil {
			t.Fatal(err)
		}
		for _, tc := range cases {
			got, ok := ourRecord(&c, cborOf(jsonValue(tc.JSON)))
			if ok != (verdict == "valid") {
				t.Errorf("%s %s: %s, %t", verdict, tc.Note, got, ok)
			}
			if ok && string(got) != compactSorted(t, tc.JSON) {
				t.Errorf("%s: got %s, want %s", tc.Note, got, compactSorted(t, tc.JSON))
			}
		}
		if len(cases) == 0 {
			t.Errorf("no %s fixtures", verdict)
		}
	}
}
