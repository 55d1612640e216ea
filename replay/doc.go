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
// The snapshot is one immutable value behind an atomic pointer: state, gaps, streams, and the tail,
// which is the newest blocks within Config.TailBytes (and at most maxTailBlocks). A reader loads it
// once per Next. Its place is a time_us, the first it has not looked at. If that is beyond
// snapshot.beforeTail, the block is in the tail; else it is in Pebble, found by a seek, and its parts
// come through the cache. Each snapshot has a channel that is closed when the next one replaces it.
// A reader waits on the channel of the very snapshot it looked at last: what came in between has
// closed it already, so no wake-up is lost.
//
// A trim publishes its floor before it deletes. A reader that opens an iterator, or misses a part,
// looks at the floor afterwards: if that is still below its place, nothing it needs was deleted
// before; otherwise it fell off.
//
// Memory: tail and cache are bounded by Config. A reader holds no block between calls; a Chunk keeps
// alive what its Frames alias, at most about 2*pinFactor times the reader's MaxChunkBytes, as sparse
// matches are copied. Pebble has its own share.
//
// # Keys
//
// Pebble holds one key range per part. All but meta grow at one end only; tables are cut where ranges
// meet (spanPolicy), so compactions move them instead of merging ranges. One compression setting
// serves all: MinLZ shrinks the plain part; what it cannot shrink (zstd) Pebble stores as it is.
//
//	01 name                      meta: format | state | streams | uid_store | dictionaries
//	02 ID:u32                    a dictionary that blocks in the log may be made with
//	08 time_us:u64               gap
//	09 epoch:u32 lastSeq:u64     block reference: key, seq and op of the last event, totals so far
//	0f                           reserved for span summaries
//	10 time_us:u64               index part of the block whose last event has that stamp
//	11 time_us:u64               its plain part
//	12 time_us:u64               its zstd part
//
// Numbers in keys are big-endian. So the first block at or after a time cursor is one seek, and the
// one after a position is one seek over rangeSeq: epochs, unlike streams, are in the log's order.
//
// # Values
//
// Every value but meta format (a big-endian u32 that all versions can read) ends in a trailer;
// numbers are little-endian:
//
//	| value … | range:u8 | version:u8 | 0:u16 | xxhash64(key:u64be, value, range, version, 0):u64 |
//
// where key is the number in the key (lastSeq for references; 0 for meta). The plain part is the
// events as websocket text frames back to back, the zstd part as binary frames, each event compressed
// alone with the dictionary the index names. The index:
//
//	| events:u32 | epoch:u32 | firstSeq:u64 | lastSeq:u64 | dictionary:u32 | collections:u16 | dids:u16 |
//	| kinds:u8 (bit set) | columns:u8 | 0:u16 |
//	| column 1: ends of the collections' names | names … | column 2: ends of the DIDs | DIDs … |
//	| column 16: time_us | 17: seq | 18: op | 19: kind + 16*operation | 20: collection + 1, 0 = none |
//	| 21: DID | 22: DID UID | 23: URI UID | 24: ends in plain | 25: ends in zstd | 26: reserved, all 0 |
//
// and a column:
//
//	| id:u8 | coding:u8 | width:u8 (0, 1, 2, 4, 8) | base:uvarint | a number of width bytes per value |
//
// coding 0: value = base + number; coding 1: value = the value before + number, the first from base.
// A column of unknown id can be skipped, as its length follows from its width.
//
// # Concurrency and lock order
//
// One goroutine calls Append. Seal, NewReader, Progress, Range, Run, Trim, Close are safe for
// concurrent use; a Reader, a Chunk and a Stamper belong to one goroutine at a time. Locks, in the
// order they may be taken: Log.trimMu (one trim at a time), Log.mu (changes of the snapshot and
// commits), Log.storeMu (shared: readers; exclusive: Close), cache.mu. Nobody waits for another
// goroutine with cache.mu held; a cache entry's owner never waits for another entry that waits for it
// (variants wait for parts, parts for nothing).
package replay
