// Package feed keeps a graph equal to the reference store, and answers graph.Queries.
//
//	references: Apply ── Observe ──▶ queue ──▶ Run ──▶ graph ──▶ answers
//	            rows at one position ── build ──▶┘      └──▶ snapshot
//
// # Promise
//
// A graph that answers has the edges of the rows that are alive at its position, whatever crashes.
// It takes each batch of the store once, in their order, all of a batch at once. So an answer lies
// between two batches. What an account had goes with the batch that raises its floor.
//
// # Start
//
// New compares the snapshot with the store. One of the same generation and position has what the
// rows have, since rows are a function of the log. For one of an earlier position New reads from
// the log which accounts may have changed since, and Run gives these the edges of their rows. If
// there is no such snapshot, Run builds the graph from all rows. Both go on beside the running
// server, and then take what has come meanwhile.
//
// Without a snapshot the graph begins with the file of static edges, which millrace graph
// import writes. A snapshot has them.
//
// Run saves the graph at once, every ten minutes, and at its end. Import and Purge are not in the
// log, and leave the position as it is. A program that makes them, or changes the static edges,
// removes the snapshot before, with Forget.
//
// Accounts that the snapshot does not have may get other ordinals than they had. So pages go on
// after a clean stop, and not after a crash.
//
// A graph that misses edges for want of memory is not saved: the next start builds it anew.
//
// # Concurrency
//
// Observe's callback puts batches into the queue, in the lock of the store's commits. At its limit
// the queue holds up Apply, and so ingest, until Run has taken some. Run waits for nothing that
// waits for the store.
package feed
