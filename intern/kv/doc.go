// Package kv is the small transactional key-value interface that interning is written over.
//
// It asks for no more than FoundationDB promises, and every store behind it promises no less:
//
//   - A transaction reads one committed state: the one of its Begin, or a later one.
//   - Writes are kept back until Commit, which applies all of them or none. A transaction must not
//     read a key after writing it: whether it sees its own write is left open.
//   - Keys read with Get conflict: if another transaction writes one of them between this Begin and
//     this Commit, Commit fails with ErrConflict. Last and Scan are snapshot reads and conflict
//     with nothing.
//   - After a nil Commit the writes are durable, and so is everything the transaction has read.
//     This holds for a transaction without writes too: commit before what was read is used
//     elsewhere.
//   - ErrUnknownOutcome from Commit says that the writes may or may not be there, now or a moment
//     later.
//   - A transaction has limits of size and time (Limits). Past them it fails with ErrTooLarge or
//     ErrTooOld.
//
// A transaction is Begin, reads and writes, Commit and Close, in one goroutine; transactions are
// independent and run concurrently. Run is the retry loop.
//
// Stores: pebblekv (one process), fdbkv (FoundationDB, with -tags fdb), simkv (in memory, with
// faults, for tests and benchmarks).
package kv
