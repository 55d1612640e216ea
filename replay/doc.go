// Package replay is the event log. It seals batches of events into blocks, commits them with the
// position they bring the log to, and keeps the newest in memory. Readers get them from a cursor
// on, through a filter.
//
//	Batch ── Seal ──▶ Block ── Append ──▶ Pebble (one synced batch) ──▶ snapshot ──▶ Reader.Next
//	       parallel            in order                                 published      many
//
// # Promises
//
// One Pebble batch commits events and position, so that after a crash the log holds all events up
// to its position, once, and nothing beyond. What readers see is a snapshot that is published after
// the commit: they never see what a restart could take back. Readers of old and of new events are
// one mechanism (Reader), so there is no hand-over in which an event could be lost or doubled.
//
// Broken own data and failed writes end the log. Append, Run and reads say why (ErrFailed,
// CorruptionError) and what to do; the process is meant to stop.
//
// # Snapshot, tail, wake-up
//
// The snapshot is one immutable value behind an atomic pointer. It has state, gaps, streams, the
// spans' keys, and the tail: the newest blocks within Config.TailBytes (and at most maxTailBlocks).
// A reader loads it once per Next. Its place is a time_us, the first it has not looked at. If that
// is beyond snapshot.beforeTail, the block is in the tail. Else it is in Pebble, found by a seek or
// by what the block before it remembers. Its index, or for a reader that wants neither certain DIDs
// nor UIDs its slim index, comes through the cache. Its frames come from Pebble's to the chunk
// (extract.go). Each snapshot has a channel that is closed when the next one replaces it. A waiter
// takes it before it looks at readers. What came in between has closed it, so no wake-up is lost.
//
// A trim publishes its floor before it deletes. A reader that has opened an iterator, or finds a
// part missing, then reads the floor again. While the floor is below its place, all that it needs
// is there; else the log was trimmed past its place (ErrTrimmed).
//
// blockStore has what readers share of the blocks on disk: look-ups, the cache, and reading ahead.
// While the caller of a reader of everything writes a block to the socket, goroutines open the next
// two for it, and read the slim indexes of those after (readahead.go, openparts.go). After a slow
// look-up, a selective query looks up several spans at once, and has the blocks read that they name
// (plan.go, internal/ahead).
//
// Memory: tail and cache are bounded by Config. Pebble has its own share. Between calls of Next a
// reader keeps its current part open, and those that were read ahead for it. All readers together
// keep 16 at most, which may take half of the cache's budget. A reader that waits releases them;
// Reader.Close and Log.Close close them.
//
// A Chunk has MaxChunkBytes of memory until it is Reset, and half more of a variant that is not
// stored. What comes from the disk is unpacked, or built, in it. A substream that another reader
// has unpacked before, and a variant of a block of the tail, are in the cache instead, for all.
// What comes from the tail is not copied. A Chunk keeps the blocks alive that its Frames alias: at
// most about 2*pinFactor times MaxChunkBytes, since sparse matches are copied.
//
// # Small blocks
//
// A quiet relay makes 180 blocks of a few events a second. The newest small blocks (at most 256
// events) are a group. The Append that brings it to about 1,024 events, or to 1 MiB or a quarter of
// the tail's memory, replaces it by one block with all their events. The batch has the merged block
// under the key of the group's last, SINGLEDELs for the others, and what is new. Readers hold
// places and no blocks, so they do not see it happen. A group is always wholly in the tail, so no
// reader looks for its blocks in the store. It never spans a gap, two epochs or two memtables (the
// log begins flushes itself, before Pebble must). So SET and SINGLEDEL meet in one flush, and
// nothing of the small blocks is ever written to a table. A trim that would cut a group ends it:
// its blocks stay small. So do those of the last group before a crash.
//
// # References
//
// A block may have the references of its events: sources, subjects and authorities, in numbers.
// They are in a part of their own that only readers with a filter for them read (internal/filter).
// Sources have numbers of the log's own. The caller of Seal asks for them, and the next Append
// writes new ones. The collection of a reference's source is always that of its event.
// A log is of another version once it was opened for them. A variant may have references, too,
// whose subjects are strings of Config.Strings. Those of a block of the tail are built all at once,
// of one on disk those of the events that are wanted.
//
// # Spans
//
// A span summarises a run of blocks of one epoch that stay as they are. It has at most 65,535
// events, 256 blocks, 4,096 collections, 1/64 of the retention in time and bytes. It is written
// with the block that does not fit. Blocks after the newest span are looked at one by one. What
// will be the next span is gathered in memory (some 1 MiB, twice that with references). After a
// start it comes from the indexes of those blocks.
//
// A span says in which blocks each collection, DID and subject is. For DIDs and subjects it has
// fingerprints under a key that is random for each log and never leaves it, in 32 shards: a look-up
// of one DID reads some 8 KiB. Identity and account events are in it once more, copied (unless they
// are more than 1 MiB), since they pass every collection filter.
//
// #sync events are for readers that ask for their kind. The index of a block says whether it has
// some. If not, a reader without a filter copies it whole; else it takes the other events. A log is
// of another version from its first #sync event on.
//
// A reader with a filter looks at the span, then at the indexes of blocks that may have a match.
// Then it reads frames of those that have one. One that wants all of some DIDs looks at their
// shards first, and not at spans that have none of them. The few that it wants of a block, by DID
// or subject, it takes out of the zstd part (extract.go). One that wants some subjects looks at the
// span, and then at their shards. Spans are decoded into the cache (some 10 KiB each); fingerprints
// are looked at in place and go past it.
//
// # Formats
//
// Package internal/format has the encodings of all keys and values, and draws them (formats.go).
// Tables are cut where key ranges meet (logstore.SpanPolicy), so compactions do not merge ranges.
// See internal/pebblestore for when they run.
//
// # Concurrency and lock order
//
// One goroutine calls Append. Seal, NewReader, Progress, Range, Run, Trim, Close are safe for
// concurrent use. A Reader, a Chunk and a Stamper belong to one goroutine at a time. Locks, in
// order: trims.mu (one trim at a time), Log.mu (snapshot changes, commits), blockStore.storeMu
// (readers share it, Close excludes them), openParts.mu, the cache's. No goroutine waits for
// another with that held. What loads a cache entry waits for no other entry. Goroutines that read
// ahead hold storeMu as readers do; Close waits for them.
package replay
