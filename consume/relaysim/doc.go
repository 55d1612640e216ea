// Package relaysim is a simulated AT Protocol relay for the demo, tests and benchmarks. It serves
// com.atproto.sync.subscribeRepos over a websocket, from captured frames or from a generated world
// of accounts with real signed repositories. It writes down what a correct consumer must hold of
// what it sent. New makes a Relay from a Config, and Relay.Serve runs it on a listener.
// cmd/relaysim is the same behind flags.
//
// # The way of a frame
//
//	capture file ─┐
//	              ├─▶ template ──▶ traffic ─┐
//	world ────────┤   (bytes with          ├─▶ producer ──▶ truth file ──▶ window ──▶ consumers
//	churn ────────┘    holes)     hostile ──┘
//
// A template is a frame, and the truth lines that belong to it, with the envelope's fields (seq,
// time, rev, DID, record keys) cut out. Traffic fills the holes and so makes any number of frames
// out of a few thousand at memory speed. The truth comes from indigo's decoders and encoding/json,
// never from the code under test. What it says of references comes from a Table, which tests also
// give what is left of the truth when a relay has lost frames.
//
// # Determinism
//
// With Clock "virtual" the messages, and the truth, follow from Config alone. Every random choice
// comes from Seed, by a generator of its own for each part. With the wall clock only time and rev
// differ. What arrives at a consumer when, and where faults fall in the stream, depends on the
// machine.
//
// # Concurrency
//
// The producer is one goroutine. It owns the numbering, the traffic and the truth file. Everything
// an operator asks for over /admin is a function that it runs between two frames. A frame's truth
// lines are written to the file before the frame is put into the window. So at any moment, also
// after a kill, the file holds at least what any consumer was sent.
//
// A window is shared by the producer and the consumers under its one mutex. The bytes in it are
// immutable and counted by reference, so that consumers write them to their sockets without the
// lock. Each consumer is one goroutine that writes and one that reads. Serve returns when all have
// ended.
//
// # Pace
//
// With a rate, frames are due at fixed times and no consumer is waited for. One that the window has
// left behind is sent ConsumerTooSlow and is disconnected. Flat out (rate 0) the producer keeps at
// most half a window ahead of the slowest connected consumer. While none is connected, the place
// that the last one had reached counts. So no consumer is left behind, and one that returns with a
// cursor at most half a window old finds its place. What counts is what was written to the
// consumer's socket, whose buffers on both sides hold some megabytes that it may not have read.
//
// The end of a numbering reaches the consumers that are connected: they are sent the rest of the
// window first. A disconnect does not wait, and cuts a frame in two if it is asked to.
package relaysim
