// Package refs is the work on the reference store of a server that does not run: it reads
// repositories and rows of references, and writes such rows.
//
//	CAR ───────────▶ translate.AppendRecord ──▶ Sink
//	NDJSON, CSV ──▶ translate.InvalidReference ──▶ Sink
//
// Files are hostile. What is read for one block or row is bounded, as is a repository, which is
// held in memory. A repository's blocks must be what their CIDs say, and the keys of its tree in
// order, each on its level: so the walk ends. The signature of its commit is not verified.
//
// Nothing here starts a goroutine; a Reader and an Export belong to one.
package refs
