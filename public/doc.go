// Package public serves the log over websockets, as Jetstream's v1 and v2 wires and what is ours
// on top (docs/wire.md), and over HTTP: links, the graph, UIDs, dictionaries, health and status.
//
// # Subscribers
//
// A subscriber is two goroutines and one socket:
//
//	replay.Reader ──Next──▶ pull loop ──whole frames──▶ socket ──▶ client
//	                          ▲    ▲                      │
//	         filter, ending ──┘    └── pong, close ◀── read loop (gorilla)
//
// The pull loop is the only one that writes. It asks the reader for the next chunk, which is frames
// that are ready to be sent. It hands them to the kernel in one call, many events at a time. The
// read loop puts what the client sends into the subscriber's mailbox and wakes the pull loop; it
// never waits for a write. gorilla would write pongs and close frames by itself. So it is given a
// connection whose Write only records them, and no frame is written inside another one.
//
// The HTTP handler returns as soon as both goroutines run: the request and its URL, which may be
// half a megabyte, are garbage by then.
//
// # Backpressure
//
// A client that takes bytes slowly makes its pull loop wait, and no other. What is left of the
// chunk is copied, so that it pins no block of the log; the copy counts against Config.ClientBytes,
// as do filters. Each of the two has half of it, so that slow clients refuse nobody a filter. One
// address has at most an eighth, but room for two large filters; loopback has no such share. What
// every subscriber takes, slow or not, is outside of it: two goroutines, their buffers and a
// reader, some 16 KiB, which Config.MaxConnections bounds. Before that copy is made, the chunks of
// subscribers that catch up take at most Config.ChunkBytes together, but for single larger events.
// One that finds no room waits. Inbound bytes are read at a bounded rate and messages within
// bounded memory.
//
// # Wake-ups
//
// A subscriber at the end of the log falls asleep: it gives its reader to the waker, one goroutine
// for all. When the log grows the waker visits each subscriber once (a wake pass). It compares its
// filter with the indexes of the newest blocks (replay.Reader.Pending), and wakes it if something
// passes. Subscribers that want the same collections share one filter (sharedFilters), which is
// compared once. Wake passes may use a share of a core (wakeBudget). A heartbeat carries the
// position up to which the waker has looked.
//
// # Subjects
//
// A filter by subject has UIDs. Strings that have none yet wait for theirs (UIDs.Await) as long as
// the filter lives: it grows by each before an event can have it.
//
// # Locks
//
// status.mu is held while a status is computed, and sleeper.sleepMu while the waker uses a reader.
// The others, and those of package admission, are leaves: under one no other lock of the two
// packages is taken. conn.wake takes none.
package public
