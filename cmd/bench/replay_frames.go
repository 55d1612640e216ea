package main

import (
	"bytes"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/events"
)

// The rare values: what the log of bench replay has few of, spread evenly over it.
const (
	rareDID              = "did:plc:rarerarerarerarerarerare"
	rareDIDEvents        = 10
	rareCollection       = "net.sample.a.stack" // as long as the one it replaces
	rareCollectionEvents = 100

	// identityEvery: one frame in so many of the relay's becomes an identity frame. Identity and
	// account events are then 1.5 % of all.
	identityEvery = 126
)

// likePath begins the path of a like in a frame's ops: key, header of a text of 32 bytes,
// collection.
const (
	likePath  = "\x64path\x78\x20app.bsky.feed.like/"
	repoField = "\x64repo\x78\x20"
	didBytes  = 32 // of a did:plc
)

// frameInjector rewrites frames of a simulated relay so that the log gets its rare values. One
// goroutine uses it.
type frameInjector struct {
	frames     int // about how many there will be, at least
	seen       int
	dids       int // rare values injected
	collection int
	identities int
	scratch    []byte
}

// inject returns frame, or one that takes its place under the same seq. The result is good until
// the next call.
func (p *frameInjector) inject(frame []byte, seq int64) []byte {
	p.seen++
	if bytes.Count(frame, []byte("\x64path")) != 1 || !bytes.Contains(frame, []byte("\x66create")) {
		return frame
	}
	path, repo := bytes.Index(frame, []byte(likePath)), bytes.Index(frame, []byte(repoField))
	if path < 0 || repo < 0 {
		return frame
	}
	repo += len(repoField)
	switch {
	case p.due(p.dids, rareDIDEvents):
		p.dids++
		p.scratch = append(p.scratch[:0], frame...)
		copy(p.scratch[repo:repo+didBytes], rareDID)
	case p.due(p.collection, rareCollectionEvents):
		p.collection++
		p.scratch = append(p.scratch[:0], frame...)
		copy(p.scratch[path+len("\x64path\x78\x20"):], rareCollection)
	case p.seen/identityEvery > p.identities:
		p.identities++
		p.scratch = appendIdentity(p.scratch[:0], frame[repo:repo+didBytes], seq)
	default:
		return frame
	}
	return p.scratch
}

// due says whether the next of so many rare values, of which some are injected, must come now. The
// last comes well before the end.
func (p *frameInjector) due(injected, wanted int) bool {
	return injected < wanted && p.seen >= (2*injected+1)*p.frames/(2*wanted)
}

// appendIdentity appends an #identity frame.
func appendIdentity(dst, did []byte, seq int64) []byte {
	handle := string(did[len("did:plc:"):][:18]) + ".bsky.example"
	frame := bytes.NewBuffer(dst)
	e := events.XRPCStreamEvent{RepoIdentity: &comatproto.SyncSubscribeRepos_Identity{
		Did: string(did), Handle: &handle, Seq: seq, Time: "2026-01-01T00:00:00.000Z"}}
	if err := e.Serialize(frame); err != nil {
		panic(err) // a buffer takes all
	}
	return frame.Bytes()
}
