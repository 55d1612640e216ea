// Package simkv is a simulated store for tests and benchmarks: package kv's transactions in memory,
// with versions kept for readers as FoundationDB keeps them, and with the troubles of a cluster on
// demand: conflicts out of nowhere, commits whose outcome is unknown (applied, not applied, or
// applied later), expired transactions, delays, outages, and crashes that end every transaction in
// flight.
//
// What was committed is never lost, as in a cluster that keeps its promises. Faults are drawn from
// a seeded source; with several goroutines their order still depends on the scheduler.
//
// Lock order: Store.mu only.
package simkv
