// Package refs is the work on the reference store of a server that does not run. It imports,
// exports and checks what records point at (docs/operations.md).
//
//	CAR ──────────▶ translate.AppendRecord ────────▶ Import ── Hydrate, Apply ──▶ references.Store
//	NDJSON, CSV ──▶ translate.InvalidReference ──▶     ▲                            │        │
//	                             Log.Changes ──────────┘         rows ◀── Export ───┘      Check
//
// Files are hostile. What is read for one block or row is bounded, as is a repository, which is
// held in memory. A repository's blocks must be what their CIDs say, and the keys of its tree in
// order, each on its level: so the walk ends. The signature of its commit is not verified.
//
// Import gathers accounts, some hundred thousand records, and then reads the log once for them. An
// account's batch is what its file says and, over it, what the log has above the file's rev. The
// log must reach back to when the file was true: --as-of, or the time in the rev. What it has of
// the ten minutes before that is laid over rows too, as the clocks of servers differ. Then the
// account is as the network has it at the log's end. If the table knows a commit above the rev
// that the log lacks, the account is refused as too old. If the log has a commit above the rev from
// before --as-of, a repository counts as old as its rev. Of rows that cannot be noticed.
//
// Only EdgeReader.Read starts goroutines, and it waits for them. All else belongs to one.
package refs
