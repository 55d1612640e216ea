// Package fdbkv is the FoundationDB store: package kv's transactions over a cluster that any number
// of processes share. Everything but this comment is built with -tags fdb only. That needs cgo and
// FoundationDB's client library (libfdb_c, 7.3 or later; the API version is 730).
//
// How kv's guarantees hold:
//
//   - One state, conflicts, atomic and durable commits are FoundationDB's own. Get makes
//     conflicting reads, all of them under way at once; Last and Scan make snapshot reads. Reading
//     one's own writes is switched off, as kv leaves it open and it costs time.
//   - All keys lie in a directory of the directory layer, by default "millrace", under its short
//     prefix.
//   - Outcomes: see translate. A commit that the context, a time-out or a change of the cluster's
//     version cut off has an unknown outcome. It may be applied a moment later. Its reads are
//     checked then too, so it fails if a retry has done its work.
//   - Limits: a transaction is refused from 4 MB of keys and values on, far below the cluster's 10
//     MB. It ends after five seconds, the cluster's own limit.
//
// The client library has one network thread in a process, started by the first Open; databases stay
// open until the process ends. A Store is safe for concurrent use; a transaction belongs to one
// goroutine.
package fdbkv
