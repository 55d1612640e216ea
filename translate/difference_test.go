package translate

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/ipfs/go-cid"
)

// difference names one way in which this package reads a record otherwise than indigo's
// atproto/atdata does. In everything else the two agree, which FuzzRecord holds.
type difference struct {
	name    string
	why     string // the row of docs/input.md that asks for it, or what else does
	example []byte // a record, in DAG-CBOR
	ours    string // the JSON this package makes of it, "" if it drops it
	indigo  string // the JSON indigo makes of it, "" if it refuses it
}

// The names, as divergences finds them.
const (
	diffNoMap      = "null or undefined for a record"
	diffTag        = "tags on a record or a key"
	diffInteger    = "integers beyond int64"
	diffUTF8       = "invalid UTF-8"
	diffIndefinite = "indefinite lengths"
	diffDepth      = "nesting deeper than 64"
	diffBlobSize   = "blobs of negative size"
	diffCIDText    = "a link's or a legacy blob's CID in another spelling"
	diffCIDBytes   = "a legacy blob's CID as bytes"
	diffEmptyBytes = "empty byte strings"
)

func recordDifferences() []difference {
	a := func(v any) []byte { return cborOf(cborMap{{"a", v}}) }
	cidV1 := cidOf(nil)
	text := cidText(cidV1)
	deep, deepJSON := any(1), "1"
	for range maxDepth {
		deep, deepJSON = []any{deep}, "["+deepJSON+"]"
	}
	base58 := cid.NewCidV0(cidV1[2:])
	return []difference{
		{diffNoMap, "record not a CBOR map", []byte{0xf6}, "", `{}`},
		{diffTag, "tags other than CID links", cborOf(cborTag{24, cborMap{}}), "", `{}`},
		{diffTag, "tags other than CID links", cborOf(cborTag{42, cborMap{{"a", 1}}}), "", `{"a":1}`},
		{diffTag, "non-text keys", cborOf(cborMap{{cborTag{24, "a"}, 1}}), "", `{"a":1}`},
		{diffInteger, "integers beyond int64", a(uint64(1<<64 - 1)), "", `{"a":-1}`},
		{diffInteger, "integers beyond int64", a(uint64(1 << 63)), "", `{"a":-9223372036854775808}`},
		{diffInteger, "integers beyond int64", a(cborRaw("\x3b\xff\xff\xff\xff\xff\xff\xff\xff")), "", `{"a":0}`},
		{diffUTF8, "invalid UTF-8", a("x\xff"), "", `{"a":"x\ufffd"}`},
		{diffUTF8, "invalid UTF-8", cborOf(cborMap{{"x\xc3", 1}}), "", `{"x\ufffd":1}`},
		{diffIndefinite, "indefinite lengths", []byte{0xbf, 0x61, 'a', 1, 0xff}, "", `{"a":1}`},
		{diffIndefinite, "indefinite lengths", a(cborRaw{0x9f, 1, 2, 0xff}), "", `{"a":[1,2]}`},
		{diffIndefinite, "indefinite lengths", a(cborRaw{0x7f, 0x61, 'b', 0x61, 'c', 0xff}), "", `{"a":"bc"}`},
		{diffIndefinite, "indefinite lengths", a(cborRaw{0x5f, 0x41, 0, 0xff}), "", `{"a":{"$bytes":"AA"}}`},
		{diffDepth, "nested deeper than 64", a(deep), "", `{"a":` + deepJSON + `}`},
		{diffBlobSize, "blob objects of wrong shape", a(cborMap{{"$type", "blob"}, {"ref", cborLink(cidV1)}, {"mimeType", "a/b"}, {"size", -1}}),
			"", `{"a":{"cid":"` + text + `","mimeType":"a/b"}}`},
		{diffCIDText, "link objects of wrong shape", a(cborMap{{"$link", strings.ToUpper(text)}}), "", `{"a":{"$link":"` + text + `"}}`},
		{diffCIDText, "link objects of wrong shape", a(cborMap{{"$link", "/ipfs/" + text}}), "", `{"a":{"$link":"` + text + `"}}`},
		{diffCIDText, "link objects of wrong shape", a(cborMap{{"$link", base58.String()}}), "", `{"a":{"$link":"` + base58.String() + `"}}`},
		{diffCIDText, "blob objects of wrong shape", a(cborMap{{"cid", base58.String()}, {"mimeType", "a/b"}}),
			"", `{"a":{"cid":"` + base58.String() + `","mimeType":"a/b"}}`},
		{diffCIDBytes, "blob objects of wrong shape", a(cborMap{{"cid", cidV1}, {"mimeType", "a/b"}}),
			"", `{"a":{"cid":"` + text + `","mimeType":"a/b"}}`},
		{diffEmptyBytes, "valid in the data model; indigo reads it, but its own MarshalJSON then refuses it", a([]byte{}), `{"a":{"$bytes":""}}`, ""},
	}
}

// TestDifferences proves each difference by example, and that the search for them, which the fuzzer
// relies on, finds just that one in it.
func TestDifferences(t *testing.T) {
	var c recordCoder
	for _, d := range recordDifferences() {
		ours, ok := ourRecord(&c, d.example)
		if string(ours) != d.ours && ok || ok != (d.ours != "") {
			t.Errorf("%s: %x gave %q, %t; want %q", d.name, d.example, ours, ok, d.ours)
		}
		indigo, err := indigoRecord(d.example, false)
		if string(indigo) != d.indigo || (err == nil) != (d.indigo != "") {
			t.Errorf("%s: %x: indigo gave %q, %v; want %q", d.name, d.example, indigo, err, d.indigo)
		}
		if diff := cmp.Diff([]string{d.name}, divergences(d.example)); diff != "" {
			t.Errorf("%s: %x: divergences (-want +got):\n%s", d.name, d.example, diff)
		}
	}
}

// divergences returns the names of the differences that a record is an example of, in the order in
// which they are met. It is a reader of its own, as tolerant as indigo's and as simple as can be.
// What comes after something that neither reads is not looked at.
func divergences(record []byte) []string {
	w := &walker{buf: record}
	func() {
		defer func() {
			if p := recover(); p != nil && p != errWalk {
				panic(p)
			}
		}()
		if w.item(1, false).kind == kindNull {
			w.note(diffNoMap)
		}
	}()
	return w.found
}

// node is what the walker must know of an item to judge the map that it is in.
type node struct {
	kind    nodeKind
	text    string
	bytes   []byte
	integer int64
	link    cid.Cid
	entries map[string]node
	// elements are those of an array; twice is set if a key of a map comes twice.
	elements []node
	twice    bool
}

type nodeKind int

const (
	kindOther nodeKind = iota
	kindNull
	kindText
	kindBytes
	kindInteger
	kindLink
	kindMap
	kindArray
	kindBool // integer is 0 or 1
)

// walker reads CBOR by recursion and ends by panicking with errWalk.
type walker struct {
	buf     []byte
	found   []string
	lenient bool // pass over other tags, two in a row, bad links and keys that come twice: in frames
}

var errWalk = errors.New("cut short or malformed")

func (w *walker) note(name string) {
	if !slices.Contains(w.found, name) {
		w.found = append(w.found, name)
	}
}

func (w *walker) next(n uint64) []byte {
	if n > uint64(len(w.buf)) {
		panic(errWalk)
	}
	b := w.buf[:n]
	w.buf = w.buf[n:]
	return b
}

func (w *walker) atBreak() bool {
	if len(w.buf) > 0 && w.buf[0] == 0xff {
		w.next(1)
		return true
	}
	return false
}

// head reads a head; indefinite is set if it has no argument but the sign for an indefinite length.
func (w *walker) head() (major, info byte, arg uint64, indefinite bool) {
	b := w.next(1)[0]
	major, info = b>>5, b&31
	switch {
	case info < 24:
		arg = uint64(info)
	case info < 28:
		var wide [8]byte
		width := 1 << (info - 24)
		copy(wide[8-width:], w.next(uint64(width)))
		arg = binary.BigEndian.Uint64(wide[:])
	case info == 31 && major >= majorBytes && major <= majorMap:
		w.note(diffIndefinite)
		indefinite = true
	default:
		panic(errWalk)
	}
	return major, info, arg, indefinite
}

// item reads one item, at the given depth if it is a container.
func (w *walker) item(depth int, tagged bool) node {
	major, info, arg, indefinite := w.head()
	switch major {
	case majorUint, majorNegInt:
		if arg > 1<<63-1 {
			w.note(diffInteger)
		}
		n := int64(arg)
		if major == majorNegInt {
			n = -1 - n
		}
		return node{kind: kindInteger, integer: n}
	case majorBytes, majorText:
		return w.text(major, arg, indefinite, tagged)
	case majorArray, majorMap:
		if depth > maxDepth {
			w.note(diffDepth)
		}
		if major == majorArray {
			n := node{kind: kindArray}
			w.each(arg, indefinite, func() { n.elements = append(n.elements, w.item(depth+1, false)) })
			return n
		}
		return w.mapItem(arg, indefinite, depth)
	case majorTag:
		// on the record itself the tag is passed over
		if w.lenient && (tagged || arg != tagCID) || depth == 1 && !tagged {
			w.note(diffTag)
			return w.item(depth, true)
		}
		if tagged || arg != tagCID {
			panic(errWalk)
		}
		n := w.item(depth, true)
		if n.kind == kindBytes && len(n.bytes) > 0 && n.bytes[0] == 0 {
			if c, err := cid.Cast(n.bytes[1:]); err == nil {
				return node{kind: kindLink, link: c}
			}
		}
		if !w.lenient {
			panic(errWalk)
		}
		return node{}
	}
	switch info {
	case simpleNull, simpleUndefined:
		return node{kind: kindNull}
	case simpleTrue, simpleFalse:
		return node{kind: kindBool, integer: int64(info - simpleFalse)}
	}
	if w.lenient && (info < simpleFalse || info == 24) {
		w.note(diffSimple)
	}
	return node{} // floats, and what neither reads of a record
}

// each calls one as often as a container has entries.
func (w *walker) each(n uint64, indefinite bool, one func()) {
	for indefinite && !w.atBreak() || !indefinite && n > 0 {
		n--
		one()
	}
}

func (w *walker) text(major byte, n uint64, indefinite, tagged bool) node {
	var b []byte
	if indefinite {
		for !w.atBreak() {
			chunk, _, n, inner := w.head()
			if chunk != major || inner {
				panic(errWalk)
			}
			b = append(b, w.next(n)...)
		}
	} else {
		b = w.next(n)
	}
	if major == majorText {
		if !utf8.Valid(b) {
			w.note(diffUTF8)
		}
		return node{kind: kindText, text: string(b)}
	}
	if len(b) == 0 && !tagged {
		w.note(diffEmptyBytes)
	}
	return node{kind: kindBytes, bytes: b}
}

func (w *walker) mapItem(n uint64, indefinite bool, depth int) node {
	m := node{kind: kindMap, entries: map[string]node{}}
	w.each(n, indefinite, func() {
		if len(w.buf) > 0 && w.buf[0]>>5 == majorTag {
			w.head()
			w.note(diffTag)
		}
		key := w.item(depth+1, true)
		if key.kind != kindText && !w.lenient {
			panic(errWalk)
		}
		if _, twice := m.entries[key.text]; twice {
			m.twice = true
			if !w.lenient {
				panic(errWalk)
			}
		}
		m.entries[key.text] = w.item(depth+1, false)
	})
	w.judge(m.entries)
	return m
}

// judge notes what is special about a map that stands for something else.
func (w *walker) judge(m map[string]node) {
	if link, ok := m["$link"]; ok {
		w.judgeCID(link)
		return
	}
	if m["$type"].text == "blob" && m["size"].integer < 0 {
		w.note(diffBlobSize)
	}
	c, ok := m["cid"]
	if _, mime := m["mimeType"]; !ok || !mime || len(m) != 2 {
		return
	}
	w.judgeCID(c)
	if c.kind == kindBytes {
		w.note(diffCIDBytes)
	}
}

// judgeCID notes a CID whose text is not the one that it is written as, or of version 0.
func (w *walker) judgeCID(n node) {
	if n.kind != kindText {
		return
	}
	if c, err := cid.Parse(n.text); err == nil && (c.String() != n.text || c.Version() == 0) {
		w.note(diffCIDText)
	}
}
