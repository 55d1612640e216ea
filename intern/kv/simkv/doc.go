// Package simkv is a simulated store for tests and benchmarks. It has package kv's transactions in
// memory: each reads a clone of the rows from its Begin, which the B-tree makes at once. It has the
// faults of a cluster on demand. They are conflicts without a cause, commits whose outcome is
// unknown (applied, not applied, or applied later) and expired transactions. There are delays,
// outages, and crashes that end every transaction in flight.
//
// What was committed is never lost, as in a cluster that keeps its promises. Faults are drawn from
// a seeded source; with several goroutines their order still depends on the scheduler.
//
// Lock order: Store.mu, dice.mu.
package simkv
