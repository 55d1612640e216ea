package format

// This file draws the layouts of all keys and values.
//
// # Keys
//
// The first byte is the range. All ranges but meta grow at one end only. Numbers in keys are
// big-endian. So the first block at or after a time_us is one seek, and the one after a position is
// one seek over the block pointers. Epochs, unlike streams, are in the log's order.
//
//	01 name                      meta: format | state | streams | uid_store | dictionaries |
//	                             fingerprint_key | references | collections | seq_bases
//	02 ID:u32                    a dictionary that blocks in the log may be made with
//	03 number:u32                source of references that the number stands for,
//	                             from 1 on: collection:path
//	08 time_us:u64               gap
//	09 epoch:u32 lastSeq:u64     block pointer: key, seq and op of the last event, totals so far
//	0f time_us:u64               span whose last event has that stamp
//	10 time_us:u64               index of the block whose last event has that stamp
//	11 time_us:u64               its plain part; the first substream of one in substreams
//	11 time_us:u64 substream:u8  another substream of it
//	12 time_us:u64               its zstd part
//	13 time_us:u64 shard:u8      shard of the span's DID index
//	15 time_us:u64               index of the copies of the span's identity and account events
//	16 time_us:u64               their plain frames
//	17 time_us:u64               their zstd frames
//	18 time_us:u64               slim index of the block whose last event has that stamp
//	19 time_us:u64               its references, if it has some
//	1a time_us:u64 shard:u8      shard of the span's index of subjects, if it has some
//
// # Trailer
//
// Numbers in values are little-endian. Each value but meta format (a big-endian u32 that all
// versions can read) ends in a trailer. Its key is the number in the value's key: time_us, lastSeq,
// the ID, the source's number, or 0 for meta. Meta format is 7, as the version in trailers, until
// the log is opened for references, or gets its first block with some. The batch that has that
// block sets it to 8, that of the first block with a #sync event to 9, with an unverified
// event to 10. An older program then refuses the log.
//
//	| value … | range:u8 | version:u8 | 0:u16
//	| xxhash64(key:u64be, value, range, version, 0):u64 |
//
// # Column
//
//	| id:u8 | coding:u8 | width:u8 (0, 1, 2, 4, 8) | base:uvarint
//	| a number of width bytes for each value |
//
// Coding 0: value = base + number. Coding 1: value = the value before + number, the first from
// base. A column of unknown id can be skipped, as its length follows from its width.
//
// # Index
//
//	| events:u32 | epoch:u32 | firstSeq:u64 | lastSeq:u64 | dictionary:u32 | collections:u16
//	| dids:u16 |
//	| kinds:u8 (bit set; 0x80: it has references) | columns:u8 | 0:u16 |
//	| column 1: ends of the collections' names | names … | column 2: ends of the DIDs | DIDs … |
//	| column 16: time_us | 17: seq | 18: op | 19: kind + 16*operation
//	| 20: collection + 1, 0 = none |
//	| 21: DID | 22: DID UID | 23: URI UID | 24: ends in plain | 25: ends in zstd
//	| 26: reason why the event is unverified, 0 = none; see verify.Reason |
//
// The slim index repeats what readers need that neither look for DIDs nor want UIDs, in a fifth of
// the bytes.
//
//	| events:u32 | epoch:u32 | firstSeq:u64 | lastSeq:u64 | dictionary:u32 | collections:u16
//	| kinds:u8 | columns:u8 |
//	| column 1: ends of the collections' names | names … | column 16 | 17 | 18 | 19 | 20 | 24
//	| 25 |
//
// # References
//
// Only a block has them in which an event has a reference, or is marked as repeated: an operation
// that came again and changed nothing. Subjects and authorities are lists of UIDs: subjects, each
// with its authority, in the order in which references first name them. Of authorities only those
// are listed that are not the subject itself.
//
//	| events:u32 | references:u32 | sources:u32 | subjects:u32 | authorities:u32
//	| column 48: numbers of the sources |
//	| subjects | authorities
//	| for each subject, its authority:uvarint (0: none, 1: itself, 2: the next one,
//	|   3+n: n before the newest) … |
//	| for each event: 2*references + repeated:uvarint, and for each reference |
//	|   4*source + 2*had + new:uvarint, and unless it is of the next new subject,
//	|   n before the newest:uvarint … |
//
// A list of UIDs has those of each upper 16 bits once, unless they are many:
//
//	| prefixes:u8 | width:u8 | prefix:u16 …
//	| for each UID: which prefix:u8, or none if there is one,
//	|   or if 0 itself:u16; the rest:width bytes … |
//
// # Plain and zstd parts
//
// The zstd part is the events as binary frames back to back, each event compressed alone with the
// dictionary that the index names. The plain part is the events as text frames back to back. They
// are stored as they are if they are less than 4 KiB. Else they are compressed with MinLZ in pages
// of whole frames, of 128 KiB at most. A larger frame is a page of its own, or several of 1 MiB.
// From 128 KiB on, each page is in up to 8 substreams. Those from 1 on are the frames of each
// collection that has a sixteenth of the block's bytes, of more than 7 the first. Events of
// other kinds count as one collection. Substream 0, before them, is all others. What a page has
// of a substream is its frames back to back, compressed by themselves; of none no bytes. A
// substream is that of all pages. The first value has
//
//	| coding:u8 (0: as they are, 1: MinLZ) | substreams:u8 | pages:u16 (0 and 0 if as they are)
//	| bytes of the frames:u32 |
//	| for each page: where it ends in the frames:u32, and for each substream,
//	|   where it ends in that:u32 |
//	| if there are several: the substream of each event:u8 … | frames …, or substream 0 … |
//
// and each other substream is a value of its own:
//
//	| substream:u8 | substream … |
//
// # Span
//
// A set of blocks is a bit for each block, block 0 in the lowest bit of the first byte.
//
//	| epoch:u32 | blocks:u16 | collections:u16 | identities:u32 | accounts:u32
//	| flags:u8 (1: copies, 2: subjects, 4: #sync events) | 0:u24 |
//	| by block: column 32: first stamps | 33: last stamps | 34: seq | 35: op of the last event
//	| 36: events |
//	| column 1: ends of the collections' names | names … | column 37: events, by collection |
//	| blocks with identity events | with account events | with each collection … |
//	| if there are #sync events: their number:u32 | blocks with some |
//
// A shard of its DID index has fingerprints without the five bits that choose the shard, cut to
// b+16 bits, in ascending order. It also has the blocks of each. b is such that of 20,000 DIDs that
// are not in the span about one seems to be. That costs a look-up in one block, whose own table of
// DIDs decides.
//
//	| n:u32 | b:u8 | shard:u8 | 0:u16
//	| for each value of the upper b bits, and one more: index of the first:u16
//	| lower 16 bits:u16 … |
//	| after each 64 fingerprints but the last: blocks so far:u32 … | number of blocks - 1:u8 …
//	| blocks:u8 … |
//
// The index of subjects has, in the same form, fingerprints of the subjects of references: of the
// UID, 8 bytes, and a byte 0. Of authorities that are not the subject itself it has those of the
// UID and a byte 1.
//
// Its copies are stored as a block's index, plain part of one value, and zstd part.
//
// # Meta values
//
// A point is time_us:u64, epoch:u32, seq:u64, op:u32; totals: blocks, events, bytes, each u64.
//
//	state         | epoch:u32 | seq:u64 | time_us:u64 | points: floor, oldest, newest
//	              | totals: all, trimmed | previous epoch:u32, seq:u64 |
//	streams       | n:u32 | for each: epoch:u32, length:u16, relay … |
//	seq_bases     | for each stream, if one is not 0: epoch:u32, base:u64 … |
//	dictionaries  | for each: ID:u32, since_us:u64, from:u64, through:u64 |
//	gap           | from, to: stream:u32, seq:u64, op:u32 |
//	block pointer | key:u64 | seq:u64 | op:u32 | totals |
//
// The high-water mark, which is in a file of its own, is epoch:u32, seq:u64, time_us:u64, and the
// number of events ever appended:u64.
