package translate

import (
	"encoding/hex"
	"math/rand/v2"
	"testing"
)

// maxFuzzBytes keeps the fuzzers from inputs that only take time.
const maxFuzzBytes = 64 << 10

// recordSeeds returns records that are all there is to start from where the corpus is absent.
func recordSeeds() [][]byte {
	var seeds [][]byte
	for _, tc := range lenientRecords {
		seeds = append(seeds, tc.record)
	}
	for _, d := range recordDifferences() {
		seeds = append(seeds, d.example)
	}
	for _, rec := range badRecords() {
		if len(rec) < 1024 {
			seeds = append(seeds, rec)
		}
	}
	return seeds
}

// FuzzRecord holds the JSON of records against indigo's atproto/atdata, but for the differences.
func FuzzRecord(f *testing.F) {
	for _, rec := range recordSeeds() {
		f.Add(rec)
	}
	for _, rec := range corpusRecords(f) {
		f.Add(rec)
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		if len(record) > maxFuzzBytes {
			return // large inputs slow the fuzzer down and have tests of their own
		}
		var c recordCoder
		checkRecord(t, &c, record)
	})
}

// generator makes records that are valid, or nearly so.
type generator struct {
	*rand.Rand
	wild   bool // also what the data model does not allow
	refers bool // texts are often references
}

var keyPool = []string{"text", "$type", "langs", "createdAt", "embed", "a", "b", "ab", "", "cid", "mimeType", "ref", "size", "uri", "via",
	"facets", "longer-than-eight", "longer-than-eigh", "ключ", "<&>", "\u2028", "$", "$types", "Z", "z", "0", "a\x00"}

var subjectPool = []string{subjectDID, subjectURI, "did:a:b", "did:web:example.com", "did:web:a:", "at://alice.example.com", "at://did:a:b/c.d.e",
	"at://did:a:b/c.d.e/f", "at://did:a:b/c.d.e/", "at://a", "https://example.com"}

func (g *generator) text() string {
	if g.refers && g.IntN(2) == 0 {
		return subjectPool[g.IntN(len(subjectPool))]
	}
	const ascii = "abc def<>&\"\\/\n\t\x01 xyz0123456789"
	var out []rune
	for range g.IntN(40) {
		switch g.IntN(12) {
		case 0:
			out = append(out, rune(0x80+g.IntN(0x700)))
		case 1:
			out = append(out, rune(0x2000+g.IntN(0x40)))
		case 2:
			out = append(out, rune(0x1f300+g.IntN(0x300)))
		default:
			out = append(out, rune(ascii[g.IntN(len(ascii))]))
		}
	}
	if g.wild && g.IntN(30) == 0 {
		return string(out) + "\xe2\x80"
	}
	return string(out)
}

func (g *generator) bytes(most int) []byte {
	b := make([]byte, g.IntN(most+1))
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

func (g *generator) link() cborLink { return cborLink(cidOf(g.bytes(8))) }

func (g *generator) special() any {
	mime := g.text()
	switch g.IntN(5) {
	case 0:
		return cborMap{{"$type", "blob"}, {"ref", g.link()}, {"mimeType", mime}, {"size", g.IntN(1 << 30)}}
	case 1:
		return cborMap{{"ref", cborMap{{"$link", cidText(g.link())}}}, {"size", float64(g.IntN(99))}, {"mimeType", mime}, {"$type", "blob"}}
	case 2:
		return cborMap{{"mimeType", mime}, {"cid", cidText(g.link())}}
	case 3:
		return cborMap{{"$link", cidText(g.link())}}
	}
	return cborMap{{"$bytes", string([]byte("AbC+/w")[:g.IntN(2)*2+2])}}
}

func (g *generator) value(depth int) any {
	if g.wild && g.IntN(60) == 0 {
		wild := []any{1.5, uint64(1 << 63), cborTag{1, 1}, cborRaw{0x9f, 0xff}, cborRaw{0xff}, cborRaw{0xf8, 1}, cborMap{{1, 1}},
			cborMap{{"$type", "blob"}, {"size", g.IntN(3) - 1}, {"ref", g.link()}, {"mimeType", 1}}, cborLink{1}, cborMap{{"$link", "b"}}}
		return wild[g.IntN(len(wild))]
	}
	if depth > 0 && g.IntN(3) == 0 {
		if g.IntN(2) == 0 {
			return g.object(depth - 1)
		}
		out := []any{}
		for range g.IntN(5) {
			out = append(out, g.value(depth-1))
		}
		return out
	}
	switch g.IntN(9) {
	case 0:
		return nil
	case 1:
		return g.IntN(2) == 0
	case 2:
		return int(g.Uint64()) >> g.IntN(64)
	case 3:
		return append([]byte{1}, g.bytes(40)...)
	case 4:
		return g.link()
	case 5:
		return g.special()
	case 6:
		return float64(g.IntN(1<<20) - 1<<19)
	}
	return g.text()
}

// object makes a map of distinct keys in any order.
func (g *generator) object(depth int) cborMap {
	var m cborMap
	for _, i := range g.Perm(len(keyPool))[:g.IntN(9)] {
		switch key := keyPool[i]; {
		case key == "$type":
			m = append(m, pair{key, "com.example.thing"})
		case g.wild && g.IntN(80) == 0:
			m = append(m, pair{key, g.value(depth)}, pair{key, 1})
		default:
			m = append(m, pair{key, g.value(depth)})
		}
	}
	if g.IntN(20) == 0 {
		for i := range 40 {
			m = append(m, pair{g.text() + string(rune('A'+i)), i})
		}
	}
	return m
}

// TestGeneratedRecords holds generated records, tame and wild, against indigo. It prints its seed.
func TestGeneratedRecords(t *testing.T) {
	seed := rand.Uint64()
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0))}
	var c recordCoder
	served := 0
	for i := range 3000 {
		g.wild = i%3 == 2
		record := cborOf(g.object(6))
		checkRecord(t, &c, record)
		if _, ok := ourRecord(&c, record); ok {
			served++
		}
		if t.Failed() {
			t.Fatalf("seed %d, record %d: %s", seed, i, hex.EncodeToString(record))
		}
	}
	if served < 1500 {
		t.Errorf("seed %d: only %d records were served", seed, served)
	}
}
