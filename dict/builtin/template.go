package main

import "strings"

// Templates are events with all that varies blanked out, byte for byte as long as in real ones. The
// fields of an event then lie as far apart as in its template. So after the first match most
// offsets repeat, and zstd encodes a repeated offset in the fewest bits. They are ordered by how
// often they are needed, the most frequent last, nearest to the event.

// Blanks for what varies, of the right lengths.
const (
	blankDID     = "did:plc:________________________"
	blankCID     = "bafyrei____________________________________________________"
	blankBlobCID = "bafkrei____________________________________________________"
	blankTID     = "3m___________"
	blankTimeUS  = "17______________"
	blankSeq     = "3__________"
	blankTime    = "2026-__-__T__:__:__.___Z"
	blankPost    = "at://" + blankDID + "/app.bsky.feed.post/" + blankTID
	blankRef     = `{"cid":"` + blankCID + `","uri":"` + blankPost + `"}`
	blankVia     = `,"via":{"cid":"` + blankCID + `","uri":"at://` + blankDID + `/app.bsky.feed.repost/` + blankTID + `"}`
)

// templates returns the templates back to back.
func templates() string {
	return strings.Join([]string{
		`,"fm.teal.alpha.actor.status",social.grain.`,
		createTemplate("app.bsky.actor.profile", "self", `"avatar":{"$type":"blob","ref":{"$link":"`+blankBlobCID+`"},"mimeType":"image/jpeg","size":______},"banner":{"$type":"blob","ref":{"$link":"`+blankBlobCID+`"},"mimeType":"image/jpeg","size":______},"createdAt":"`+blankTime+`","description":"","displayName":"","pinnedPost":`+blankRef+`}`),
		`,"operation":"update","collection":"app.bsky.actor.profile","rkey":"self","record":{"$type":"app.bsky.actor.profile","avatar":{"$type":"blob","ref":{"$link":"bafkrei`,
		createTemplate("app.bsky.feed.threadgate", blankTID, `"allow":[{"$type":"app.bsky.feed.threadgate#mentionRule"},{"$type":"app.bsky.feed.threadgate#followingRule"},{"$type":"app.bsky.feed.threadgate#followerRule"}],"createdAt":"`+blankTime+`","hiddenReplies":[],"post":"`+blankPost+`"}`),
		createTemplate("app.bsky.feed.postgate", blankTID, `"createdAt":"`+blankTime+`","detachedEmbeddingUris":[],"embeddingRules":[{"$type":"app.bsky.feed.postgate#disableRule"}],"post":"`+blankPost+`"}`),
		createTemplate("app.bsky.graph.listitem", blankTID, `"createdAt":"`+blankTime+`","list":"at://`+blankDID+`/app.bsky.graph.list/`+blankTID+`","subject":"`+blankDID+`"}`),
		`{"did":"` + blankDID + `","time_us":` + blankTimeUS + `,"kind":"account","account":{"active":false,"did":"` + blankDID + `","seq":` + blankSeq + `,"status":"deactivated","time":"` + blankTime + `"}}`,
		`{"did":"` + blankDID + `","time_us":` + blankTimeUS + `,"kind":"account","account":{"active":true,"did":"` + blankDID + `","seq":` + blankSeq + `,"time":"` + blankTime + `"}}`,
		`{"did":"` + blankDID + `","time_us":` + blankTimeUS + `,"kind":"identity","identity":{"did":"` + blankDID + `","handle":"____________.bsky.social","seq":` + blankSeq + `,"time":"` + blankTime + `"}}`,
		deleteTemplate("app.bsky.graph.block"),
		deleteTemplate("app.bsky.feed.post"),
		deleteTemplate("app.bsky.feed.repost"),
		deleteTemplate("app.bsky.graph.follow"),
		deleteTemplate("app.bsky.feed.like"),
		createTemplate("app.bsky.graph.block", blankTID, `"createdAt":"`+blankTime+`","subject":"`+blankDID+`"}`),
		postTemplate(`"embed":{"$type":"app.bsky.embed.video","aspectRatio":{"height":____,"width":____},"video":{"$type":"blob","ref":{"$link":"` + blankBlobCID + `"},"mimeType":"video/mp4","size":_______}},"langs":["en"],"text":"`),
		postTemplate(`"embed":{"$type":"app.bsky.embed.recordWithMedia","media":{"$type":"app.bsky.embed.images","images":[{"alt":"","aspectRatio":{"height":____,"width":____},"image":`),
		postTemplate(`"embed":{"$type":"app.bsky.embed.record","record":` + blankRef + `},"langs":["en"],"text":"`),
		postTemplate(`"embed":{"$type":"app.bsky.embed.external","external":{"description":"","thumb":{"$type":"blob","ref":{"$link":"` + blankBlobCID + `"},"mimeType":"image/jpeg","size":______},"title":"","uri":"https://www."}},"facets":[{"features":[{"$type":"app.bsky.richtext.facet#link","uri":"https://"}],"index":{"byteEnd":___,"byteStart":___}}],"langs":["en"],"text":"`),
		postTemplate(`"facets":[{"features":[{"$type":"app.bsky.richtext.facet#mention","did":"` + blankDID + `"}],"index":{"byteEnd":__,"byteStart":0}},{"features":[{"$type":"app.bsky.richtext.facet#tag","tag":""}],"index":{"byteEnd":___,"byteStart":___}}],"langs":["en"],"text":"`),
		postTemplate(`"embed":{"$type":"app.bsky.embed.images","images":[{"alt":"","aspectRatio":{"height":____,"width":____},"image":{"$type":"blob","ref":{"$link":"` + blankBlobCID + `"},"mimeType":"image/jpeg","size":______}},{"alt":"","aspectRatio":{"height":____,"width":____},"image":{"$type":"blob","ref":{"$link":"` + blankBlobCID + `"},"mimeType":"image/jpeg","size":______}}]},"langs":["ja"],"text":"`),
		postTemplate(`"langs":["en"],"text":"`),
		postTemplate(`"langs":["en"],"reply":{"parent":` + blankRef + `,"root":` + blankRef + `},"text":"`),
		`"},"cid":"` + blankCID + `"}}`,
		createTemplate("app.bsky.graph.follow", blankTID, `"createdAt":"`+blankTime+`","subject":"`+blankDID+`"}`),
		createTemplate("app.bsky.feed.repost", blankTID, `"createdAt":"`+blankTime+`","subject":`+blankRef+`}`),
		createTemplate("app.bsky.feed.repost", blankTID, `"createdAt":"`+blankTime+`","subject":`+blankRef+blankVia+`}`),
		createTemplate("app.bsky.feed.like", blankTID, `"createdAt":"`+blankTime+`","subject":`+blankRef+blankVia+`}`),
		createTemplate("app.bsky.feed.like", blankTID, `"createdAt":"`+blankTime+`","subject":`+blankRef+`}`),
	}, "")
}

// createTemplate wraps the fields of a record, all but its type, up to its closing brace.
func createTemplate(collection, rkey, fields string) string {
	return commitTemplate("create", collection, rkey) + `,"record":{"$type":"` + collection + `",` + fields + `,"cid":"` + blankCID + `"}}`
}

// postTemplate is a post up to where it goes on with its text.
func postTemplate(fields string) string {
	return commitTemplate("create", "app.bsky.feed.post", blankTID) + `,"record":{"$type":"app.bsky.feed.post","createdAt":"` + blankTime + `",` + fields
}

func deleteTemplate(collection string) string {
	return commitTemplate("delete", collection, blankTID) + `}}`
}

func commitTemplate(operation, collection, rkey string) string {
	return `{"did":"` + blankDID + `","time_us":` + blankTimeUS + `,"kind":"commit","commit":{"rev":"` + blankTID +
		`","operation":"` + operation + `","collection":"` + collection + `","rkey":"` + rkey + `"`
}
