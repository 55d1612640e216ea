// Package viewapi has what the APIs share that answer from a view of the log: links, the graph.
//
//	parameters ── Await ──▶ Turn ──▶ … ──▶ Reached ──▶ … ──▶ Names ──▶ JSON
//	    400        400       503              412              503
//
// A view is of one position of the log, which headers of each answer say. A request may wait for a
// position, and has no turn while it does. Errors have XRPC's form.
//
// # Concurrency
//
// A request takes no goroutine beside its handler's. Eight of an API have a turn at the same time;
// the others wait for it, at most ten seconds.
package viewapi
