// Package links answers who points at a DID or an AT URI: how many records and accounts, and which.
//
// A set is the links from one source to one subject. Sets are derived from the record table of the
// reference store, and are in its database. They change in the batches that change the table. So a
// View agrees with the rows at its position, after any crash. Package references writes them, with
// the formats of replay/internal/postings; this package reads them.
//
//	log ──▶ references: rows, links of rows ──▶ one batch ──▶ View ──▶ Count, Records, Accounts, …
//
// # Layout
//
// What a link takes at a mean set of five links, in an uncompressed block:
//
//	20 subject path [start]   chunk: entries …                                       2 + 12 bytes
//	21 subject path           of a large set: records, accounts, tail:uvarint        –
//	22 subject path account   of a large set: arrival numbers of the account's links  8, if so
//	23 subject path start     of a large set: a chunk starts there                    –
//	entry                     | (difference to the number before) << 5 | bytes of the link
//	                          | link |
//	link                      | uid of the account | account XOR record, without zeros before it |
//	start                     first arrival number that may be in the chunk:u64, absent if 0
//	tail                      start of the last chunk
//
// Subject and account are encoded as in package references, path is a uvarint. Arrival numbers rise
// with the log and are never used again. So the entries of a chunk are in the order of the links,
// and the chunks of a set in that of their keys. An entry without a link removes the one of its
// number. The second number of 22 and later ones are differences, too.
//
// # Writing
//
// A row that changes is a removal and an addition for each of its references. The writer adds them
// as merge operands, which Pebble folds when it reads and compacts. To small sets it adds unread.
// One addition of 128, by its arrival number, reads its chunk. If that has more than 1,024 links,
// its later half becomes a chunk of its own, and the set is large for good. Of a large set the
// writer knows from 22 whether an account is new to it, and counts in 21. From 23 it knows the
// chunk of an arrival number, without the value of a chunk. A small set is counted when it is read.
//
// So the links are a function of the log, but for empty chunks, which stay.
//
// # Building
//
// Links that are switched on begin at the first row of the table. They take some rows at a time, in
// the lock of the commits. Changes of rows that are not built yet are left out: the build finds
// what they made. When the last row is built, links are complete. Links that are switched off are
// dropped, and a new generation drops them with the table.
//
// # Hidden records
//
// Rows of deleted accounts are counted until the sweep has deleted them. Lists look up the account
// of each link, and leave out what is below its floor, or of an account that is not active.
package links
