// Package graphapi serves the graph over HTTP: sets of accounts, as expressions under /sets, and
// GraphD's questions by name under /graph.
//
//	parameters ── Await ──▶ turn ──▶ UIDs of names ──▶ sets of links ──▶ graph ──▶ names ──▶ JSON
//	    400        400      503       400, 503           422, 503     4xx, 503      503
//
// An answer is of one position of the graph, which its headers say. A set of links is read on
// demand and kept for some seconds. With one the position is that of the oldest part. A cursor
// names a member, so changes do not move a page. It holds until the graph is built anew.
//
// Package viewapi has the concurrency, and what other views have too.
package graphapi
