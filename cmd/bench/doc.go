// Command bench measures what millrace promises (docs/performance.md), one sub-command a subject:
//
//	ingest       from the relay's socket to the durable log with UIDs and a live subscriber: at
//	             full speed, at given rates; beside them the same traffic the Jetstream way
//	replay       replays of a kept log of ten million events: whole, filtered, beside a live
//	             stream; what the log takes of disk; beside the usual way and a bare socket
//	subscribers  many subscribers: mixed filters, quiet ones; CPU, lag and memory
//	intern       schemes of giving out UIDs compared, load on a store (FoundationDB with -tags
//	             fdb), instances that share one
//	links        links of 20 million synthetic references: made, served over HTTP, built anew;
//	             what they take on disk
//	graph        social graphs in memory: bytes, start, evaluations
//	jetstream    the baseline of ingest and replay, which they start as a process of its own
//
// # Cells and children
//
// A subject consists of cells: rows or scenarios that are measured one after the other, each with
// the machine to itself, and that -only picks. What is measured runs as it does in production.
// Millrace and relaysim are built from this module and started as processes of their own
// (process.go, servers.go). Their first lines say where they listen. This process is the
// subscriber, or all subscribers (client.go). CPU and memory are those of each process, so that a
// client's cost is not the server's. All children end with the context, and before the next cell
// begins. The sub-commands intern and links run in this process alone.
//
// A measurement begins when the parts have warmed up. A figure alone says more of the machine than
// of the program. So beside each stands what the same run got of the Jetstream way and of the bare
// resource.
//
// # Truth
//
// The simulated relay writes what a correct consumer must hold. ingest_truth.go reads that from a
// pipe while the stream runs, and ingest_cell.go compares it with what the live subscriber gets,
// byte for byte. subscribers_log.go compares the whole log with the truth, plain and compressed.
// subscribers_set.go compares what each subscriber got with its part of the log. A difference ends
// ingest with an error and is reported in the rows of subscribers. Replays are counted, not
// compared, and so is what the baseline sends.
//
// # Layout
//
// Files carry their subject's name first. What several share: main.go has the sub-commands,
// table.go the tables, lags.go the histogram of durations, traffic.go events made in this process,
// and views.go links and graph over HTTP.
package main
