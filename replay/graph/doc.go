// Package graph holds the edges between accounts in memory and answers questions about sets of
// accounts. Such sets are whom an account follows, who follows it, and what several sets have in
// common.
//
//	Build, Apply ──▶ ordinals, sets of both directions ──▶ Eval, Count, Sample, Has
//	                 └──────────▶ Save ──▶ file ──▶ Load
//
// A source is a kind of edge, such as app.bsky.graph.follow:subject. Each source has two sets for
// an account: Out, the subjects of its edges, and In, the actors of the edges to it.
//
// # Layout
//
// Each account has an ordinal, a dense 32-bit number that it keeps. A table without pointers leads
// from UID to ordinal, a slice back. For each source and direction a slice has one reference for an
// ordinal. A reference of 0 is the empty set; one with the top bit is the number of a bitmap. Any
// other is a slot in the slab, in units of eight bytes:
//
//	class:u8  low:u8  members:u16  code  0…
//
// Members are sorted ordinals in Rice's code, see rice.go. A set of 4,096 members becomes a roaring
// bitmap, as does one whose code grows while the slab is full. One of fewer than 2,048 becomes a
// slot again. A bitmap has a filter that excludes most accounts that are not in it, which takes
// half a byte to a byte a member.
//
// The slab's chunks are mapped outside the Go heap, on Linux in huge pages: the collector neither
// scans nor counts them for its goal. Slots have size classes, and a freed slot is used again for
// its class.
//
// # Records
//
// The first record of an edge is not kept; a table has those of the second and later ones. A
// removal takes a record from the table, or else the unknown first one, whose part the next record
// then takes. This is exact as long as each change is applied once and each removal follows its
// addition. Apply sees to that by position. A static edge has Record 0: it was imported without
// its record. Flags of static edges and of lost edges are per set, and stay until a rebuild.
//
// # Concurrency
//
// One writer and any number of readers share a read-write lock. An answer holds it throughout, so
// it is that of one position. The cost that Limits bounds is also how long a reader can hold up the
// writer. Apply holds up readers for one batch, so batches must be small.
//
// Save copies no sets at its start. It walks the ordinals, some at a time, in the read lock. The
// writer copies an Out set that it changes before the walk reaches it. Copies that take more than a
// sixteenth of the memory fail the Save.
//
// # Making In sets
//
// A snapshot has Out sets only, and a Filler takes the edges of an actor together. The In sets of
// a source are then made at once, by sorting its edges by subject. A pass takes some groups of
// subjects: their edges go into buckets in the order of their actors, and then into lists. The
// edges of a pass take an eighth of the memory, so there may be several.
//
// # Snapshot
//
//	file     "millrace graph 4\n" section …
//	section  kind:u8 length:u32 payload CRC-32C of kind, length and payload:u32
//	  1      head: JSON, see Header; first
//	  2      UIDs of the next accounts:u64 …
//	  3      table:u8 ordinal:u32, Out sets: (members<<1|bitmap:uvarint length:uvarint data) …
//	  4      table:u8, incomplete sets of Out, then of In: bitmaps, each length:u32 data
//	  5      (source:u32 actor:u32 subject:u32 record:u64) …: second and later records
//	  6      the end: nothing
//
// Numbers are little-endian. The data of a set is low:u8 and its code without zero bytes at the
// end, or a bitmap in roaring's portable format. A set without members has neither length nor data.
package graph
