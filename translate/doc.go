// Package translate turns a relay's frames into the JSON events that subscribers see.
//
// A frame is one websocket message of com.atproto.sync.subscribeRepos
// (https://atproto.com/specs/event-stream): a header and a body, both DAG-CBOR. The events are
// Jetstream's, byte for byte but for time_us, which Batch.Stamp writes later:
//
//	#commit    {"did":…,"time_us":0000000000000000,"kind":"commit","commit":{"rev":…,
//	           "operation":…,"collection":…,"rkey":…,"record":…,"cid":…}}
//	           record and cid not for deletes
//	#identity  {"did":…,"time_us":…,"kind":"identity",
//	           "identity":{"did":…,"handle"?:…,"seq":…,"time":…}}
//	#account   {"did":…,"time_us":…,"kind":"account",
//	           "account":{"active":…,"did":…,"seq":…,"status"?:…,"time":…}}
//	#sync      {"did":…,"time_us":…,"kind":"sync",
//	           "sync":{"blocks":{"$bytes":…},"did":…,"rev":…,"seq":…,"time":…}}
//
// Records become JSON in one pass over their bytes. Keys are sorted, strings escaped as
// encoding/json escapes them, links as {"$link":…}, bytes as {"$bytes":…}, blobs in the order of
// indigo's structs.
//
// With Config.References the same pass notes which DIDs and AT URIs a record's values are, and
// where: Batch.References. The path of a reference is what Constellation calls it (microcosm-rs,
// crate links). The members of a map come with the shorter names first, so an element's $type may
// come after the reference; finder.go looks ahead for it. Limits are MaxReferences,
// maxFrameReferences and MaxReferencePathBytes.
//
// Frames are untrusted. What the protocol does not allow drops the operation or the frame and is
// counted by its Reason. The other operations of the frame go on. A block is hashed only if an
// operation names it. What a hostile frame can cost is bounded: maxFrameBytes, MaxOps,
// maxRecordBytes, maxDepth, MaxFrameJSONBytes; no number that a frame declares is allocated for.
//
// Indigo is atproto/atdata for records, api/atproto and atproto/repo for frames. Where this reads
// otherwise, difference_test.go and frame_difference_test.go name it, say why, and prove it by
// example. Everywhere else the fuzzers hold the two equal.
//
// The package is pure: no goroutine, no I/O, no clock. A Translator is scratch memory and belongs
// to one goroutine at a time, as does a Batch; there are no locks. In steady state nothing is
// allocated.
package translate
