// Package consume reads a relay's firehose (com.atproto.sync.subscribeRepos) over a websocket. It
// hands the frames over one by one, in order, each sequence number once, until it is stopped.
//
//	dial ?cursor=last ──▶ read message ──▶ skim header, seq ──▶ numbering ──▶ Handle
//	   ▲                     │ text, garbage,     │ #info, errors    │ repeats
//	   │                     ▼ no seq             ▼                  ▼
//	   └── back off ◀─────── counted ──────────── logged, counted ── counted
//
// # Frames
//
// A websocket message is one frame: two DAG-CBOR maps back to back, header and body
// (https://atproto.com/specs/event-stream).
//
//	{"op": 1, "t": "#commit"}  {"seq": 31527015322, "repo": "did:plc:…", …}
//	{"op": 1, "t": "#info"}    {"name": "OutdatedCursor", "message": …}     no seq
//	{"op": -1}                 {"error": "FutureCursor", "message": …}      no seq
//
// The package reads op, t and seq of a frame and no more. Its skimmer allocates nothing and takes
// any key order; of several equal keys the first counts. Everything with a seq is handed over,
// whatever its type and however broken the rest of it is. Messages without a readable header or
// seq, and text messages, are dropped and counted by reason. Nothing that a relay sends ends Run.
//
// The protocol has the relay close after an error frame. Until it does, reading goes on: the
// error may be about one message, which the next connection would meet again. If no frame follows
// for 10 s, the connection is given up.
//
// A message over maxMessageBytes is skipped. At most maxMessageBytes+1 of its bytes are in memory;
// the rest is read in small pieces and forgotten. If its seq stands in the part that was read, it
// is handed over as a Frame with nil Data before the rest is skipped. So the position moves past
// it, and no reconnect can meet it again. Two buffers of at most that size alternate, so that the
// last frame handed over can be compared.
//
// # Numbering
//
// Frames at or below the last one handed over are repeats: dropped and counted. Function decide,
// which is pure, finds in them what is more than a repeat.
//
//   - A gap. The first frame after a resume lies beyond the next number: the relay's window may
//     have moved on. The frame carries a Gap. A jump in the middle of a connection is none.
//     Several relays leave numbers out (frames they filter, batches they reserve), and a
//     connection is ordered and whole, so no consumer was sent the missing number.
//   - A suspected reset. The relay may have restarted its numbering if all frames since a connect
//     lie below the last one. Later two or more in a row suffice. Some relays answer the cursor
//     with the error FutureCursor. Then the next connection asks for no cursor, so that frames are
//     seen at all. indigo's relay goes live with lower numbers. A reset stays suspected until a
//     frame at or above the last one comes, or for EpochPatience. Four times within that the relay
//     is dialled anew, since a host can come back with its old numbering. If the old numbering is
//     back, and frames may have been left out, the connection is made again with the cursor. No gap
//     is recorded.
//   - A new epoch. The patience is over, and a connection made within it still shows lower
//     numbers. Or the numbers catch up with the last one, whose number has an event of another
//     type, account or revision than the one handed over. The epoch counts up, and the relay is
//     asked for everything from the lowest number seen meanwhile. The first frame handed over
//     carries a Gap between the epochs. So what was dropped while waiting comes again; only what
//     the relay sent before the first connection is lost. Epochs that begin within EpochPatience of
//     the one before are backed off.
//
// If a numbering restarts while there is no connection, and passes the position or has no such
// frame, it looks like one that went on.
//
// # Back-off
//
// Each reconnect waits a random time, at first up to 0.5 s and at most up to 30 s, and what a
// Retry-After asks, up to maxAskedWait. A connection that delivered frames, and lasted steadyUp,
// begins the count anew.
//
// # Liveness
//
// A ping goes out every pingInterval in which a read waits. Any byte from the relay, pongs
// included, extends the wait. So a quiet relay that answers is never given up, and one that does
// not answer is redialled after silenceTimeout. A message that has begun must come, or be skipped,
// within messageTimeout.
//
// While Handle blocks nothing is read: that is the backpressure. The wait begins with a read, so
// missing pongs are not held against the relay meanwhile. Nor is it pinged: its pong would stand
// behind the frames that are not read, and some relays end a connection for that. A relay that
// drops the connection loses nothing for us: reading resumes after the last frame handed over.
//
// # Frames that come one by one
//
// To wake a goroutine for a frame costs more than the frame. An owner that has time for it sets
// Idle: it is called before a read would wait, and may let some milliseconds pass. Then what came
// is read without waiting and handed over at once. A read waits only when Idle returns false.
//
// # Concurrency
//
// Run has one goroutine that dials, reads and calls Handle, and per connection one that writes.
// That writes pings, and pongs on behalf of the reader (of several unanswered pings the newest).
// The close frame is written after that one has ended, so each socket has one writer at any time.
// Both are gone when Run returns. Status and the metrics may be read at any time. There is one
// lock, Client.mu, a leaf.
package consume
