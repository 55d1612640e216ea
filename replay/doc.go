// Package replay is the event log. It seals batches of events into blocks, commits them with the
// position they bring the log to, keeps the newest in memory, and gives them to readers from a cursor
// on, through a filter.
//
//	Batch ── Seal ──▶ Block ── Append ──▶ Pebble (one synced batch) ──▶ snapshot ──▶ Reader.Next
//	       parallel            in order                                 published      many
//
// # Promises
//
// One Pebble batch commits events and position, so that after a crash the log holds all events up to
// its position, once, and nothing beyond. What readers see is a snapshot that is published after the
// commit: they never see what a restart could take back. Readers of old and of new events are one
// mechanism (Reader), so there is no hand-over in which an event could be lost or doubled.
//
// Broken own data and failed writes end the log: Append, Run and reads say why (ErrFailed,
// CorruptionError) and what to do; the process is meant to stop.
//
// # Snapshot, tail, wake-up
//
// The snapshot is one immutable value behind an atomic pointer: state, gaps, streams, the spans' keys, and the tail,
// which is the newest blocks within Config.TailBytes (and at most maxTailBlocks). A reader loads it
// once per Next. Its place is a time_us, the first it has not looked at. If that is beyond
// snapshot.beforeTail, the block is in the tail; else it is in Pebble, found by a seek or by what the block
// before it remembers. Its index, or for a reader that wants neither certain DIDs nor UIDs its outline, comes through the cache, its frames from
// Pebble's to the chunk (fetch.go). Each snapshot has a channel that is closed when the next one replaces it.
// A reader waits on the channel of the very snapshot it looked at last: what came in between has
// closed it already, so no wake-up is lost.
//
// A trim publishes its floor before it deletes. A reader that opens an iterator, or misses a part,
// looks at the floor afterwards: if that is still below its place, nothing it needs was deleted
// before; otherwise it fell off.
//
// A reader of everything that has come to a block on disk has the next two read by goroutines of the log's, while
// its caller writes the first to the socket (ahead.go), and if it is the only one at work, unpacked (ready.go); then they walk
// on over the outlines of those behind, several at a time. One whose filter passes little, and that had to wait for the
// disk, looks at up to maxLooks spans at once, and has as many blocks read that they name (scout.go). Blob files have the kernel
// read ahead where values are read one behind the other and the disk is waited for (internal/pebblestore).
//
// Memory: tail and cache are bounded by Config. A reader holds no block between calls; a Chunk has memory of its own
// of MaxChunkBytes for what is read from the disk, until it is Reset, or keeps alive what its Frames alias, at most about
// 2*pinFactor times MaxChunkBytes, as sparse matches are copied. Who unpacks a strand of a block first does it in that
// memory, or in some that is given back at once, and leaves nothing in the cache; from the second on they share it there,
// if it is one of the part's first 64. Pebble has its own share. Beyond its cache it keeps what is parked: up to 8 open parts, half of
// that cache at most, that a reader has not finished, or that were read ahead for one; nobody's for longer than a second. What is
// unpacked of them is as much again.
//
// # Small blocks
//
// A quiet relay makes 180 blocks of a few events a second. The newest small blocks (at most 256 events) are
// a group; the Append that brings it to about 1,024 events, or to a quarter of the tail's memory, replaces it
// by one block that has the group's parts one behind the other. The batch has the merged block under the key of
// the group's last, SINGLEDELs for the others, and what is new. The snapshot that follows has the merged
// block in the tail. Readers hold a place and no block, so they do not see it happen; and as the tail
// cannot drop a group, none looks for its blocks in the store. No group goes over a gap, an epoch, or into
// another memtable (the log begins flushes itself, before Pebble must): so SET and SINGLEDEL meet in one
// flush and nothing of the small blocks is ever written to a table. A trim that would cut a group settles
// it: its blocks stay small. So do those of the last group before a crash.
//
// # Spans
//
// A span summarises a run of blocks of one epoch that stay as they are: at most 65,535 events, 256
// blocks, 4,096 collections, 1/64 of the retention in time and bytes. It is written with the block that does
// not fit any more. Blocks behind the newest span are looked at one by one; what will be the next span is
// gathered in memory (some 1 MiB), and after a start from the indexes of those blocks. A span says
//
//   - of each block: first and last stamp, position of the last event, number of events;
//   - of each collection: how many events it has, and in which blocks; likewise of identity and account events;
//   - of each DID in it: a fingerprint and the blocks it is in. A fingerprint is SipHash-2-4 under a key
//     that is random for each log and never leaves it, so that nobody can choose DIDs that collide. It is cut so
//     short that of 20,000 DIDs that are not in the span about one seems to be, which costs a look into one
//     block, whose own table of DIDs decides. They are in 32 shards by their first bits, so that who looks
//     for one DID reads some 8 KiB of a span;
//   - the identity and account events once more, copied (unless they are more than 1 MiB), since they pass
//     every collection filter: so a reader of a rare collection does not open all other blocks for them.
//
// A reader with a filter looks at the span, then at the indexes of blocks that may have a match, then
// reads frames of those that have one. One that wants all of some DIDs looks at their shards first, and not at spans
// that have none of them. Spans are decoded into the cache (some 10 KiB each); fingerprints
// are looked at in place and go past it. In bytes an event (BenchmarkSpans -v: an account
// has 5 events on average, 1.5 % are identity events): fingerprints with their blocks 3.4, copies 2.3, the
// rest below 0.1; beside 162 of the blocks' parts there. For 36 hours at 1,500 events/s that is 1.1 GB in 3,000
// spans. In memory there is of all this only the keys, what the cache holds, and what gathers for the next span.
//
// # Keys
//
// Pebble holds one key range per part. All but meta grow at one end only; tables are cut where ranges
// meet (spanPolicy), so compactions do not merge ranges. See internal/pebblestore for when they run. The log compresses the
// plain part itself; of the rest Pebble's MinLZ shrinks the indexes, and what it cannot shrink (plain,
// zstd) it stores as it is.
//
//	01 name                      meta: format | state | streams | uid_store | dictionaries | fingerprint_key
//	02 ID:u32                    a dictionary that blocks in the log may be made with
//	08 time_us:u64               gap
//	09 epoch:u32 lastSeq:u64     block reference: key, seq and op of the last event, totals so far
//	0f time_us:u64               span whose last event has that stamp
//	10 time_us:u64               index part of the block whose last event has that stamp
//	11 time_us:u64               its plain part; of one in strands the first
//	11 time_us:u64 strand:u8     another strand of it
//	12 time_us:u64               its zstd part
//	13 time_us:u64 shard:u8      fingerprints of the DIDs of the span in that shard, and the blocks they are in
//	15 time_us:u64               index of the copies of the span's identity and account events
//	16 time_us:u64               their plain frames
//	17 time_us:u64               their zstd frames
//	18 time_us:u64               outline of the block whose last event has that stamp
//
// Numbers in keys are big-endian. So the first block at or after a time cursor is one seek, and the
// one after a position is one seek over RangeSeq: epochs, unlike streams, are in the log's order.
//
// # Values
//
// Every value but meta format (a big-endian u32 that all versions can read) ends in a trailer;
// numbers are little-endian:
//
//	| value … | range:u8 | version:u8 | 0:u16 | xxhash64(key:u64be, value, range, version, 0):u64 |
//
// where key is the number in the key (lastSeq for references; 0 for meta). The plain part is the
// events as websocket text frames back to back, as they are if they are less than 4 KiB, else compressed
// with MinLZ in pieces of whole frames, of 128 KiB at most; a larger frame is a piece of its own, or several of 1 MiB.
// From 128 KiB on, each piece is in up to 8 strands: the frames of each collection that has a sixteenth of the block's
// bytes (identity and account events count as one; of more than 7 the first), and before them all others, which is strand 0. What a piece
// has of a strand is its frames back to back, compressed by themselves; of none no bytes. A strand is that of all pieces. The first value has
//
//	| coding:u8 (0: as they are, 1: MinLZ) | strands:u8 | pieces:u16 (0 and 0 if as they are) | bytes of the frames:u32 |
//	| for each piece: where it ends in the frames:u32, and for each strand, where it ends in that:u32 |
//	| if there are several: the strand of each event:u8 … | frames …, or strand 0 … |
//
// and each other strand a value of its own, so that a reader of posts reads posts:
//
//	| strand:u8 | strand … |
//
// The zstd part is the events as binary frames, each event compressed alone with the dictionary the index
// names. The index:
//
//	| events:u32 | epoch:u32 | firstSeq:u64 | lastSeq:u64 | dictionary:u32 | collections:u16 | dids:u16 |
//	| kinds:u8 (bit set) | columns:u8 | 0:u16 |
//	| column 1: ends of the collections' names | names … | column 2: ends of the DIDs | DIDs … |
//	| column 16: time_us | 17: seq | 18: op | 19: kind + 16*operation | 20: collection + 1, 0 = none |
//	| 21: DID | 22: DID UID | 23: URI UID | 24: ends in plain | 25: ends in zstd | 26: reserved, all 0 |
//
// The outline repeats what of it readers need who do not look for DIDs and do not want UIDs: 8 bytes an event where the
// index has 44 (BenchmarkSpans -v), to find and read which took such a reader a quarter of its time.
//
//	| events:u32 | epoch:u32 | firstSeq:u64 | lastSeq:u64 | dictionary:u32 | collections:u16 | kinds:u8 | columns:u8 |
//	| column 1: ends of the collections' names | names … | column 16 | 17 | 18 | 19 | 20 | 24 | 25 |
//
// and a column:
//
//	| id:u8 | coding:u8 | width:u8 (0, 1, 2, 4, 8) | base:uvarint | a number of width bytes per value |
//
// coding 0: value = base + number; coding 1: value = the value before + number, the first from base.
// A column of unknown id can be skipped, as its length follows from its width.
//
// A span, where a set of blocks is a bit a block, block 0 in the lowest bit of the first byte:
//
//	| epoch:u32 | blocks:u16 | collections:u16 | identities:u32 | accounts:u32 | copies:u8 (1: there are) | 0:u24 |
//	| by block: column 32: first stamps | 33: last stamps | 34: seq | 35: op of the last event | 36: events |
//	| column 1: ends of the collections' names | names … | column 37: events, by collection |
//	| blocks with identity events | with account events | with each collection … |
//
// a shard of its fingerprints, which are without the five bits that choose the shard, cut to b+16 bits and in ascending
// order, with their blocks:
//
//	| n:u32 | b:u8 | shard:u8 | 0:u16 | for each value of the upper b bits, and one more: index of the first:u16 | lower 16 bits:u16 … |
//	| after each 64 fingerprints but the last: blocks so far:u32 … | number of blocks - 1:u8 … | blocks:u8 … |
//
// and its copies, which are parts as a block's.
//
// # Concurrency and lock order
//
// One goroutine calls Append. Seal, NewReader, Progress, Range, Run, Trim, Close are safe for
// concurrent use; a Reader, a Chunk and a Stamper belong to one goroutine at a time. Locks, in the
// order they may be taken: Log.trimMu (one trim at a time), Log.mu (changes of the snapshot and
// commits), Log.storeMu (shared: readers; exclusive: Close), cache.mu. Nobody waits for another
// goroutine with cache.mu held; a cache entry's owner never waits for another entry that waits for it
// (variants wait for parts, parts for nothing). Goroutines that read ahead hold storeMu as readers do; Close
// waits for them. Between two blocks up to maxAheads of them wait for more, until the log is closed.
package replay
