package replay

import (
	"encoding/binary"
	"strings"
	"testing"

	"millrace/dict"
	"millrace/replay/internal/format"
	"millrace/replay/verify"
	"millrace/translate"
)

// plainText changes the text of block 0's first event between two strings, from its own begin on.
func (e *editor) plainText(from, to string, change func(b []byte)) {
	e.resealed(format.RangePlain, 0, func(b []byte) []byte {
		at := strings.Index(string(b), from)
		change(b[at : at+strings.Index(string(b[at:]), to)])
		return b
	})
}

func noQuotes(b []byte) {
	for i := range b {
		if b[i] == '"' {
			b[i] = 'x'
		}
	}
}

// dictionary stores a dictionary under an ID.
func (e *editor) dictionary(id uint32, raw []byte) {
	e.set(format.DictionaryKey(id), format.AppendTrailer(raw, format.RangeDictionary, int64(id)))
}

// valueDamages are values with sound checksums that do not fit their key, or what else the log has.
func valueDamages() []logDamage {
	const s = lastSpanned
	last := func(r format.Range, e *editor, change func(b []byte) []byte) { e.resealed(r, s, change) }
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	return []logDamage{
		{"another block's index", func(e *editor) {
			b := e.get(format.TimeKey(format.RangeIndex, e.keys[0]))
			e.resealed(format.RangeIndex, 1, func([]byte) []byte { return b[:len(b)-format.TrailerBytes] })
		}, "index", 1, -1, "its last event is stamped", false},
		{"JSON that ends early", func(e *editor) {
			e.plainText(`,"cid"`, "\x81", func(b []byte) { copy(b[strings.Index(string(b), "}}"):], "} ") })
		}, "plain", 0, 0, "JSON", false},
		{"space behind the JSON", func(e *editor) {
			e.plainText(`"cid":"x"}}`, "\x81", func(b []byte) { copy(b, `"cid":""}} `) })
		}, "plain", 0, 0, "does not end with '}'", false},
		{"endless rev", func(e *editor) { e.plainText(`3l","operation`, "\x81", noQuotes) }, "plain", 0, 0, "cut short", false},
		{"endless DID", func(e *editor) { e.plainText(`did:`, "\x81", noQuotes) }, "plain", 0, 0, `did is "did:`, false},
		{"unknown kind", func(e *editor) { e.index(0, func(x *format.Index) { x.Kind[4] = 9 }) }, "index", 0, 4, "unknown kind 9", false},
		{"kind not in the set", func(e *editor) {
			e.index(0, func(x *format.Index) { x.Kinds &^= 1 << translate.KindIdentity })
		}, "index", 0, 4, "is not in the block's set", false},
		{"commit without an operation", func(e *editor) {
			e.index(0, func(x *format.Index) { x.Kind[0] = uint8(translate.KindCommit) })
		}, "index", 0, 0, "operation 0", false},
		{"source with another key", func(e *editor) { e.set([]byte{byte(format.RangeSource), 1}, []byte("x")) }, "source", -1, -1, "no value of this range", true},
		{"dictionary with another key", func(e *editor) { e.set([]byte{byte(format.RangeDictionary), 1}, []byte("x")) }, "dictionary", -1, -1, "no value of this range", true},
		{"dictionary under another ID", func(e *editor) { e.dictionary(otherDictionaryID, dict.BuiltIn().Bytes()) }, "dictionary", -1, -1, "it is dictionary", true},
		{"no dictionary at all", func(e *editor) { e.dictionary(otherDictionaryID, []byte("nothing")) }, "dictionary", -1, -1, "dict", true},
		{"format of five bytes", func(e *editor) {
			e.set(format.MetaKey(format.MetaFormat), binary.BigEndian.AppendUint32([]byte{0}, format.NewestVersion))
		}, "meta", -1, -1, "has 5 bytes", true},
		{"broken gap", func(e *editor) {
			us := e.keys[0] + 1
			e.set(format.TimeKey(format.RangeGap, us), format.AppendTrailer([]byte{1}, format.RangeGap, us))
		}, "gap", -1, -1, "", true},
		{"gap that was dropped", func(e *editor) {
			e.state(func(s *format.State) { s.Floor.TimeUS = e.keys[3] + 10 })
		}, "meta", -1, -1, "there are gaps from then", false},
		{"no block at all", func(e *editor) {
			blockRanges := format.BlockRanges()
			for n := range e.keys {
				for _, r := range append([]format.Range{format.RangeReferences}, blockRanges[:]...) {
					e.remove(format.TimeKey(r, e.keys[n]))
				}
				e.pointer(n, func(*format.BlockPointer) bool { return false })
			}
		}, "meta", -1, -1, "but there is no block", false},
		{"span of another key", func(e *editor) {
			last(format.RangeSpan, e, func(b []byte) []byte {
				x, err := format.DecodeSpan(b)
				if err != nil {
					e.t.Fatal(err)
				}
				x.Keys[s]++
				return format.AppendSpan(nil, x)
			})
		}, "span", s, -1, "its last block is", false},
		{"span with trimmed blocks that were not", func(e *editor) {
			e.span(func(s *format.Span) {
				s.First, s.Keys = append([]int64{s.First[0] - 2}, s.First...), append([]int64{s.First[0] - 1}, s.Keys...)
				s.Seq, s.Op = append([]int64{s.Seq[0] - 1}, s.Seq...), append([]uint32{0}, s.Op...)
				s.Events = append([]uint32{1}, s.Events...)
			})
		}, "span", s, -1, "it is of 5 blocks, but there are 4", false},
		{"broken index of copies", func(e *editor) { last(format.RangeCopiesIndex, e, cut) }, "copies_index", s, -1, "", true},
		{"broken copies", func(e *editor) { last(format.RangeCopiesPlain, e, cut) }, "copies_plain", s, -1, "", true},
		{"copies cut short", func(e *editor) { last(format.RangeCopiesZstd, e, cut) }, "copies_index", s, -1, "its frames end at", true},
	}
}

// TestProblemText: a problem is one line, with what is known of its place.
func TestProblemText(t *testing.T) {
	for want, p := range map[string]verify.Problem{
		"store: a b":                  {Part: "store", Event: -1, Offset: -1, Text: "a\n\tb"},
		"plain 7, event 0, byte 0: x": {Part: "plain", Block: 7, Text: "x"},
		"index 7: x":                  {Part: "index", Block: 7, Event: -1, Offset: -1, Text: "x"},
	} {
		if got := p.String(); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
