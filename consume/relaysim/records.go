package relaysim

import (
	"fmt"
	"strings"
)

// strongRef is what lexicons call a URI with a CID.
func strongRef(p postRef) map[string]any { return map[string]any{"cid": p.cid, "uri": p.uri} }

// subjectRecord is a like or a repost of some post, at times with the repost it was seen through.
func (w *world) subjectRecord() map[string]any {
	record := map[string]any{"createdAt": w.timestamp(), "subject": strongRef(w.somePost())}
	if w.chance(6) {
		rkey, by := w.pastTID(), w.drawDID()
		record["via"] = strongRef(postRef{uri: "at://" + by + "/app.bsky.feed.repost/" + rkey, cid: blockCID([]byte(by + rkey)).String()})
	}
	return record
}

// postRecord is a post: text in one of the account's languages, facets, a reply, an embed, and so
// on.
func (w *world) postRecord(a *account) map[string]any {
	lang := a.langs[w.rng.IntN(len(a.langs))]
	text, facets := w.richText(lang)
	record := map[string]any{"createdAt": w.timestamp(), "text": text}
	if !w.chance(10) {
		record["langs"] = []any{lang}
	}
	if len(facets) > 0 {
		record["facets"] = facets
	}
	if w.chance(2) {
		parent := w.somePost()
		root := parent
		if w.chance(2) {
			root = w.somePost()
		}
		record["reply"] = map[string]any{"parent": strongRef(parent), "root": strongRef(root)}
	}
	if w.chance(3) {
		record["embed"] = w.embed(lang)
	}
	if w.chance(40) {
		record["tags"] = []any{w.word(lang), w.word(lang)}
	}
	if w.chance(60) {
		record["labels"] = map[string]any{
			"$type": "com.atproto.label.defs#selfLabels", "values": []any{map[string]any{"val": "sexual"}},
		}
	}
	if w.chance(80) {
		record["bridgyOriginalText"] = "<p>" + text + " &amp; more</p>"
	}
	return record
}

// richText is a text with facets whose offsets count bytes.
func (w *world) richText(lang string) (text string, facets []any) {
	text = w.sentence(lang)
	add := func(shown string, feature map[string]any) {
		text += " "
		from := len(text)
		text += shown
		facets = append(facets, map[string]any{
			"features": []any{feature}, "index": map[string]any{"byteStart": from, "byteEnd": len(text)},
		})
	}
	if w.chance(8) {
		add("@"+w.someHandle(), map[string]any{"$type": "app.bsky.richtext.facet#mention", "did": w.drawDID()})
	}
	if w.chance(6) {
		host := w.someHost()
		add(host+"/…", map[string]any{"$type": "app.bsky.richtext.facet#link", "uri": "https://" + host + "/?a=1&b=" + w.word("en")})
	}
	if w.chance(6) {
		tag := w.word(lang)
		add("#"+tag, map[string]any{"$type": "app.bsky.richtext.facet#tag", "tag": tag})
	}
	return text, facets
}

// embed is one of the things a post can carry.
func (w *world) embed(lang string) map[string]any {
	switch n := w.rng.IntN(10); {
	case n < 5:
		return w.imagesEmbed(lang)
	case n < 7:
		host := w.someHost()
		external := map[string]any{
			"uri": "https://" + host + "/" + w.word("en"), "title": w.sentence(lang), "description": w.sentence(lang),
		}
		if w.chance(2) {
			external["thumb"] = w.blob("image/jpeg")
		}
		return map[string]any{"$type": "app.bsky.embed.external", "external": external}
	case n < 8:
		return map[string]any{"$type": "app.bsky.embed.record", "record": strongRef(w.somePost())}
	case n < 9:
		return map[string]any{
			"$type": "app.bsky.embed.recordWithMedia", "media": w.imagesEmbed(lang),
			"record": map[string]any{"$type": "app.bsky.embed.record", "record": strongRef(w.somePost())},
		}
	}
	return map[string]any{
		"$type": "app.bsky.embed.video", "video": w.blob("video/mp4"),
		"aspectRatio": map[string]any{"width": 1080, "height": 1920},
	}
}

func (w *world) imagesEmbed(lang string) map[string]any {
	images := make([]any, 1+w.rng.IntN(4))
	for i := range images {
		alt := ""
		if w.chance(2) {
			alt = w.sentence(lang)
		}
		images[i] = map[string]any{
			"alt": alt, "image": w.blob("image/jpeg"),
			"aspectRatio": map[string]any{"width": 400 + w.rng.IntN(2000), "height": 400 + w.rng.IntN(2000)},
		}
	}
	return map[string]any{"$type": "app.bsky.embed.images", "images": images}
}

// blob points to a file that there is not.
func (w *world) blob(mimeType string) map[string]any {
	return map[string]any{
		"$type": "blob", "mimeType": mimeType, "ref": rawCID(w.rng.Uint64()), "size": 5_000 + w.rng.IntN(990_000),
	}
}

func (w *world) profileRecord(a *account) map[string]any {
	lang := a.langs[0]
	record := map[string]any{
		"displayName": w.word(lang) + " " + w.emoji(), "description": w.sentence(lang) + "\n\n" + w.sentence(lang),
		"avatar": w.blob("image/jpeg"),
	}
	if w.chance(2) {
		record["banner"] = w.blob("image/jpeg")
		record["createdAt"] = w.timestamp()
	}
	if w.chance(3) {
		record["pinnedPost"] = strongRef(w.somePost())
	}
	return record
}

func (w *world) listRecord() map[string]any {
	purposes := []string{"app.bsky.graph.defs#curatelist", "app.bsky.graph.defs#modlist"}
	return map[string]any{
		"createdAt": w.timestamp(), "name": w.word("en") + " " + w.emoji(), "description": w.sentence("en"),
		"purpose": purposes[w.rng.IntN(len(purposes))],
	}
}

func (w *world) threadgateRecord(post string) map[string]any {
	return map[string]any{
		"createdAt": w.timestamp(), "post": post, "hiddenReplies": []any{},
		"allow": []any{map[string]any{"$type": "app.bsky.feed.threadgate#followingRule"}},
	}
}

func (w *world) postgateRecord(post string) map[string]any {
	return map[string]any{
		"createdAt": w.timestamp(), "post": post, "detachedEmbeddingUris": []any{},
		"embeddingRules": []any{map[string]any{"$type": "app.bsky.feed.postgate#disableRule"}},
	}
}

// otherRecord is a record of some other lexicon, with the rarer parts of the data model in it.
func (w *world) otherRecord(a *account) op {
	now := w.timestamp()
	switch w.rng.IntN(6) {
	case 0:
		return a.create("xyz.statusphere.status", w.tid(), map[string]any{"createdAt": now, "status": w.emoji()})
	case 1:
		return a.create("fm.teal.alpha.feed.play", w.tid(), map[string]any{
			"trackName": w.sentence("en"), "artists": []any{map[string]any{"artistName": w.word("en")}},
			"duration": 60 + w.rng.IntN(600), "playedTime": now, "originUrl": nil,
		})
	case 2:
		return a.create("com.whtwnd.blog.entry", w.tid(), map[string]any{
			"createdAt": now, "title": w.sentence(a.langs[0]), "visibility": "public",
			"content": strings.Repeat("## "+w.word("en")+"\n\n"+w.sentence("en")+" <br/> "+w.sentence("de")+"\u2028", 8),
		})
	case 3:
		return a.create("app.bsky.feed.generator", fmt.Sprintf("feed-%08x", w.rng.Uint32()), map[string]any{
			"createdAt": now, "did": "did:web:feeds.example.com", "displayName": w.word("en"), "acceptsInteractions": w.chance(2),
		})
	case 4:
		return a.create("social.example.bytes", w.tid(), map[string]any{
			"createdAt": now, "signature": []byte(w.sentence("en")), "balance": -w.rng.Int64N(1 << 53), "link": rawCID(w.rng.Uint64()),
			"nested": map[string]any{"list": []any{1, nil, true, map[string]any{}, []any{}}, "none": nil},
		})
	}
	return a.create("com.example.game.move", fmt.Sprintf("%d:%d", w.rng.IntN(1000), w.rng.Uint32()), map[string]any{
		"at": now, "x": w.rng.IntN(100), "y": -w.rng.IntN(100), "legacy": map[string]any{
			"cid": rawCID(w.rng.Uint64()).String(), "mimeType": "image/png",
		},
	})
}
