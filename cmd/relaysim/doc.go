// Command relaysim is a simulated AT Protocol relay. It serves com.atproto.sync.subscribeRepos over a
// websocket, from captured frames or from a generated world of accounts with real signed
// repositories, and it writes down what a correct consumer must hold of what it sent.
//
// # The way of a frame
//
//	capture file ─┐
//	              ├─▶ template ──▶ traffic ─┐
//	world ────────┘   (bytes with          ├─▶ producer ──▶ truth file ──▶ window ──▶ consumers
//	                   holes)     hostile ──┘
//
// A template is a frame, and the truth lines that belong to it, with the envelope's fields (seq, time,
// rev, DID, record keys) cut out; traffic fills the holes and so makes any number of frames out of a
// few thousand at memory speed. The truth comes from indigo's decoders and encoding/json, never from
// the code under test.
//
// # Concurrency
//
// The producer is one goroutine; it owns the numbering, the traffic and the truth file. Everything an
// operator asks for over /admin is a function that it runs between two frames. A frame's truth lines are
// written to the file before the frame is put into the window, so that at any moment, also after a
// kill, the file holds at least what any consumer was sent.
//
// A window is shared by the producer and the consumers under its one mutex; the bytes in it are
// immutable and counted by reference, so that consumers write them to their sockets without the lock.
// Each consumer is one goroutine that writes and one that reads.
//
// # Pace
//
// With a rate, frames are due at fixed times and nobody is waited for: a consumer that the window has
// left behind is sent ConsumerTooSlow and is disconnected. Flat out (rate 0) the producer keeps at
// most half a window ahead of the slowest connected consumer, or, while nobody is connected, of the
// place that the last one had reached; so a consumer is never left behind, and one that returns
// with a cursor at most half a window old finds its place. What counts is what was written to the
// consumer's socket, whose buffers on both sides hold some megabytes that it may not have read.
//
// The end of a numbering reaches the consumers that are connected: they are sent the rest of the window
// first. A disconnect does not wait, and cuts a frame in two if it is told to.
package main
