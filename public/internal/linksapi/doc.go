// Package linksapi serves links over HTTP: who points at a DID or an AT URI. It is Constellation's
// API, the present one under /xrpc/blue.microcosm.links. and the old one under /links.
//
//	parameters ── Await ──▶ turn ──▶ View ──▶ UIDs of names ──▶ page ──▶ names of UIDs ──▶ JSON
//	    400        400      503    503, 412      400, 503        422          503
//
// All of an answer is of one position of the log, which its headers say: a request reads one view
// of links. The names of a page are looked up in one batch. A cursor names a link by its arrival
// number: later links do not move a page, and a link that stays comes once. It holds on the
// instance that gave it.
//
// Package viewapi has what is not of links alone, and the concurrency.
package linksapi
