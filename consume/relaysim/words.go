package relaysim

import (
	"encoding/binary"
	"strings"

	"github.com/ipfs/go-cid"
)

// lexicon is what texts are made of.
type lexicon struct {
	langs []string
	words map[string][]string // by language
}

// newLexicon returns the words of the world.
func newLexicon() *lexicon {
	l := &lexicon{words: make(map[string][]string)}
	for _, v := range []struct{ lang, words string }{
		{"en", "river mill water wheel stone bread morning quiet train window garden coffee paper letter bridge " +
			"again never maybe really today someone thinking about another small yellow bird while rain keeps falling on old roofs " +
			"it's don't \"quoted\" <tag> R&D and the of to in is was for with"},
		{"ja", "今日 は 天気 が よい 川 の 水 を 見る 朝 コーヒー 飲み たい 電車 遅れ て いる 猫 寝る また 明日 です ね 楽しい おはよう 本 読む"},
		{"pt", "rio moinho água hoje amanhã não você está muito bom coração manhã café chuva então também gente são mais"},
		{"es", "río molino agua mañana niño qué está lluvia después corazón también aquí pequeño ¿verdad? ¡claro! tren pan"},
		{"de", "Fluss Mühle Wasser heute Straße schön über Bäckerei früh Zug Fenster vielleicht trotzdem größer nicht mehr"},
		{"ko", "강 물 아침 커피 기차 고양이 오늘 내일 정말 좋아요 비 창문 책 읽기 안녕하세요"},
		{"ar", "نهر ماء صباح قهوة قطار اليوم غدا مطر كتاب نافذة"},
		{"th", "แม่น้ำ น้ำ เช้า กาแฟ รถไฟ วันนี้ พรุ่งนี้ ฝน หนังสือ แมว"},
		{"uk", "річка млин вода ранок кава потяг сьогодні дощ вікно книжка їжак"},
	} {
		l.langs = append(l.langs, v.lang)
		l.words[v.lang] = strings.Fields(v.words)
	}
	return l
}

// someLangs draws the languages of an account: mostly one, English in half of the cases.
func (w *world) someLangs() []string {
	first := w.words.langs[w.rng.IntN(len(w.words.langs))]
	if w.chance(2) {
		first = "en"
	}
	if w.chance(5) {
		return []string{first, "en"}
	}
	return []string{first}
}

func (w *world) word(lang string) string {
	words := w.words.words[lang]
	return words[w.rng.IntN(len(words))]
}

func (w *world) emoji() string {
	all := []string{"🙂", "😭", "🔥", "💦", "🦋", "❤️", "👩‍👩‍👧‍👦", "🇺🇦", "🏳️‍🌈", "👍🏽", "🌊", "🌾", "🎉", "💀"}
	return all[w.rng.IntN(len(all))]
}

// sentence makes up to some thirty words, with line breaks and emoji at times.
func (w *world) sentence(lang string) string {
	var b strings.Builder
	for i := range 2 + w.rng.IntN(8) + w.rng.IntN(24) {
		switch {
		case i == 0 || lang == "ja" || lang == "th": // without spaces
		case w.chance(25):
			b.WriteString("\n\n")
		default:
			b.WriteByte(' ')
		}
		b.WriteString(w.word(lang))
	}
	if w.chance(4) {
		b.WriteString(" " + w.emoji())
	}
	return b.String()
}

// someHandle makes a handle.
func (w *world) someHandle() string {
	words := w.words.words["en"][:24]
	name := words[w.rng.IntN(len(words))] + "-" + words[w.rng.IntN(len(words))]
	if w.chance(10) {
		return name + ".example.com"
	}
	return name + ".bsky.social"
}

func (w *world) someHost() string { return w.words.words["en"][w.rng.IntN(24)] + ".example.org" }

// rawCID makes the CID of a file.
func rawCID(n uint64) cid.Cid {
	return cid.NewCidV1(cid.Raw, blockCID(binary.BigEndian.AppendUint64(nil, n)).Hash())
}
