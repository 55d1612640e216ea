// Package pebbleguard opens Pebble databases and gives their failures one end. All embedded stores
// use it: the UID store (intern/kv/pebblekv), the event log (replay/internal/pebblestore), the
// reference store (replay/references), the chains (replay/chain) and the identity cache
// (translate/verify/identity).
//
// # Open
//
// Open changes nothing in a directory until it is known to hold a sound database, or none:
//
//  1. A directory with a manifest, table, value file or write-ahead log, but without the markers
//     that make these a database, is refused. (Pebble would take it for empty and delete its
//     tables. Copy tools that skip empty files lose the markers.) The file CREATING says that a
//     database is being made, so that a crash while it is made leaves no such directory.
//  2. The directory is locked. On a read-only file system a reader does without.
//  3. The manifest that the marker names must be there, and the options must be legible. The
//     database is opened for reading only. Each table and value file of its manifest must be there,
//     with the size that the manifest has; each value file must end in its footer.
//  4. The high-water mark is compared with what the database holds.
//
// Then it is opened for writing. A database that is opened for reading only stays as it is after
// step 4.
//
// # Failures
//
// On an error that it cannot survive Pebble ends the process, or retries for ever in the
// background. It panics on files that it does not expect. Here all of these become one failure:
// Failed is closed, Err says why, and Pebble is not called again. Reads return a *CorruptionError
// for damaged files. With Config.KeepGoing, for checkers, damage is returned and noted but fails
// nothing.
//
// A directory that is renamed, removed or replaced while it is open is a failure too, and whatever
// has its name then is not changed. Before files are made or removed, and with each mark, the path
// of the lock must lead to the lock that is held.
//
// # The high-water mark
//
// A damaged write-ahead log reads like one that ends there: Pebble cannot distinguish it from a
// crash. So how far a database has come is also in the file MARK, beside Pebble's files, synced
// after the commits that it is about:
//
//	MARK = slot, zeros to byte 4096, slot
//	slot = "mrmark1\n" | generation:u64 | bytes of the value:u16 | value …
//	       | CRC-32C of all before:u32
//
// Numbers are little-endian. Writes take the slots in turn, so that a torn one leaves the other;
// the valid slot with the highest generation counts. A mark ahead of its database means lost
// commits. One behind is normal. It is written at most once a markInterval, so the loss of commits
// that came after the last mark is not noticed.
package pebbleguard
