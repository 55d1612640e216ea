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
//	class:u8  members:u16  bytes of deltas:u16  deltas:uvarint…
//
// Members are sorted ordinals; a delta is the difference to the member before. A set of 4,096
// members becomes a roaring bitmap, and one of fewer than 2,048 a slot again. The slab's chunks
// are mapped outside the Go heap: the collector neither scans them nor counts them for its goal.
// Slots have size classes, and a freed slot is used again for its class.
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
// writer copies a set that it changes before the walk reaches it, up to a sixteenth of the memory;
// with more the Save fails.
//
// # Snapshot
//
//	file     "millrace graph 1\n" section …
//	section  kind:u8 length:u32 payload CRC-32C of kind, length and payload:u32
//	  1      head: JSON, see Header; first
//	  2      UIDs of the next accounts:u64 …
//	  3      index:u8 ordinal:u32, then sets: (kind:u8 members:u32 length:u32 data) …
//	  4      index:u8 incomplete, static: two bitmaps, each length:u32 data
//	  5      (source:u32 actor:u32 subject:u32 record:u64) …: second and later records
//	  6      the end: nothing
//
// Numbers are little-endian. The kind of a set is 0 for none (and nothing follows), 1 for deltas,
// 2 for a bitmap in roaring's portable format.
package graph
