// Package pebblekv is the embedded store: package kv's transactions over Pebble, for one process,
// which Pebble's directory lock enforces.
//
// How kv's guarantees hold:
//
//   - One state: the first read of a transaction opens one Pebble iterator, which is a consistent
//     view, and every later read uses it.
//   - Conflicts: optimistic. Every commit gets a version. The tracker remembers, by 64-bit hash,
//     which keys the latest versions wrote. A transaction that read one of them written after its
//     Begin fails with kv.ErrConflict. Two keys of one hash cost a needless retry, never a missed
//     conflict. Memory of versions is bounded: a transaction older than what is remembered
//     conflicts too.
//   - Atomic and durable: a transaction is one Pebble batch, committed with a sync. Pebble puts
//     batches that wait together into one write and one sync, so workers share their syncs.
//   - What was read is durable: Pebble shows a batch to readers before its sync is done. So Commit
//     of a transaction waits until the batches that were ahead of its view are synced. The sync of
//     its own writes implies that, since the WAL is written in order; only a transaction without
//     writes has to wait.
//
// Errors of the disk are final: after a failed write or sync, or a damaged file, it is
// unknown what is on disk. Every call then fails, and Failed is closed (package pebbleguard).
//
// A key of the store's own, 0xff "mark", repeats the high-water mark (mark.go).
//
// Store.applying is held while a commit is admitted and becomes visible: both have one order.
// Store.mu and tracker.mu are leaves, never held across Pebble calls.
package pebblekv
