// Package references is the reference store: what records that are alive point at. So a delete
// knows what it deleted, and links and graph can be derived. It is a Pebble database of its own,
// rolled forward from the event log.
//
//	changes ── Hydrate ──▶ overlay ─── the log commits ───▶ Apply ──▶ Pebble, a batch ─▶ Row, Rows
//	           in order    Had, Repeated, Arrival           in order  with the position
//
// # Promises
//
// The table is a function of the changes up to its position, whatever crashes. One batch of the
// database holds a batch's rows, accounts and position. Apply comes after the log's commit. There
// is no write-ahead log: a crash takes the batches back that came after the last flush. So then the
// store is behind the log, never ahead of it. The changes after Position come again, through
// Hydrate and Apply, before ingest starts; Hydrate fills in what it filled in before. The log trims
// only what Flush has made durable. Broken own data and failed writes end the store, as package
// pebbleguard says.
//
// Import and Purge are not in the log, so Flush follows them; Begin and Rebase flush. A crash
// before the Flush may undo them: they are done again. The high-water mark says what was flushed. A
// store that ends before it, as its manifest is damaged, is refused.
//
// # What the log must hold
//
// Follow makes a Batch of each block, or of its part after Position. It has a Change for each
// event and gap, in the log's order, and with nothing that the log does not hold:
//
//   - of a create or update the references column: path, subject and authority of the record's
//     references, in its order, cut to Hydrate's limits. What it had before is kept apart from what
//     it has: it is a result, not an input.
//   - of each op the UIDs of DID and AT URI, operation and seq, from the index; the rev from the
//     event's JSON;
//   - of an #account its status and the time in its JSON; of a #sync the rev in its JSON, and its
//     stamp; of a gap its stamp, at its place between the blocks.
//
// Had and Repeated are in the column for readers. To roll forward they are not needed, as Hydrate
// gives them again; a checker may compare.
//
// # Hydration
//
// The changes of a batch look into the overlay, then into the table, and enter the overlay. It has
// a limit. Batches that were applied stay until others need their room; when none is left, Hydrate
// waits for Apply. The look-ups of a batch are made before any lock is held, several at a time. A
// record whose UID was given meanwhile has no row, says Change.New, unless it was in a batch that
// has left.
// The newest states of accounts are in a cache of Hydrate's own. It forgets none that a batch uses
// which is not in the table yet.
//
// A commit whose rev is not above its account's last is repeated, with all its changes: an epoch
// that starts over sends it again. A deletion of an account is repeated if its time is not above
// the last one's.
//
// A #sync is repeated if its rev is not above the last commit's. Else deletes may be missing, but
// for an account that is not known: it says since when, until it is imported, deleted or purged.
// While there is such an account, the store says since when there are.
//
// # Floors and generations
//
// Deletion, Import and Purge of an account raise its floor above all arrival numbers so far: its
// rows below the floor read as absent. Run sweeps them, some thousand at a time, in the lock of the
// commits. A new generation deletes all rows and accounts with a few range deletions in its batch.
//
// # Formats
//
// Numbers are big-endian; uvarints are as short as they can be. p is the number of prefix bits of a
// UID: its uppermost p bits are its sequence, the others a number.
//
//	uid         | sequence << 2 | class, in (p+9)/8 bytes
//	            | number, in 3, 4, 5 or (71-p)/8 bytes by class |
//	01 name     meta: format | generation | state
//	                  | links: key of the next row to build, empty: complete
//	                  | syncs: inexact accounts:u64 | stamp of their first #sync:u64
//	02 uid      account: flags:u8 | rev:u64 | imported, purged rev:u64
//	                     | floor, deleted, inexact since, status:uvarint |
//	03 uid      account that waits for its sweep: the key at which it goes on, or nothing
//	04 uid      account that was purged: the rev up to which it was:u64
//	10 uid uid  row of (account, record): arrival:uvarint | references …
//	20 to 23    links, of package links; there are some if there is the meta value
//	reference   | path << 3 | authority:uvarint | uid of the subject | authority |
//	format      | version:u32 | p:u8 |
//	generation  | number:u32 | epoch:u32 | seq:u64 | basis … |
//	state       | epoch:u32 | seq:u64 | last arrival:u64 | stamp of the first gap:u64 |
//
// Flags say which numbers an account has: 1 imported, 2 purged, 4 floor, 8 deleted, 16 inexact, 32
// status. The status is its time << 1 | inactive. The authority is 0 for a UID, 1 for none (it is
// the subject) and 2 for none (it is the account). With 3 + class it is a number in the subject's
// sequence. Encoded UIDs sort as UIDs do, and none begins another: the rows of an account are one
// range of keys.
//
// # Concurrency and lock order
//
// One goroutine at a time calls Hydrate, one Apply, in the same order; all else is safe for
// concurrent use. An observer is called in commits.mu. Locks, in the order they may be taken:
// using, for which Close alone waits; flushing, held over a flush; commits.mu, held over Pebble's
// commit; Store.mu (overlay), never held over a call of Pebble; that of recent links. Apply waits
// for nothing that waits for Hydrate.
package references
