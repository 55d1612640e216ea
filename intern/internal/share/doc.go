// Package share divides the strings among the Interners of one shared store. So instances that read
// the same stream do not repeat each other's transactions. UIDs are right without it: conflicts
// between transactions see to that. An Interner whose store is its own does not use it.
//
// # Parts
//
//	instances.go  heartbeats in the store; which instance leads which of the 256 partitions
//	feed.go       reads the names that the other instances write, chunk by chunk
//	follower.go   holds the strings that others lead until they come, and takes over what does not
//	lateness.go   how long a leader whose results were late is not waited for
//
// A string's leader interns it. The others see the same string within milliseconds on the same
// stream, and take its UID from what the leader writes. What does not come within the hold-off they
// look up, and intern themselves if it is not there.
//
// # Record in the store
//
//	04 instance(8) -> heartbeat sequence-count sequence…
//
// The instance is big-endian, the rest are varints. An instance writes its record anew with each
// heartbeat and deletes it when it ends. A record whose heartbeat stays the same for Timing.Forget
// heartbeats is deleted by any of the others.
//
// # Concurrency
//
// Run starts four goroutines and waits for them: heartbeats, the feed, the follower, and its
// look-ups. Join comes before it. All other methods are safe for concurrent use. Which instance
// leads what is one immutable view behind an atomic pointer. There are no locks.
package share
