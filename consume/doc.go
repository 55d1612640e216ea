// Package consume reads a relay's firehose (com.atproto.sync.subscribeRepos) over a websocket and
// hands its frames over one by one, in order, each sequence number once, for as long as it is let.
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
//	{"op": -1}                 {"error": "FutureCursor", "message": …}      ends the connection
//
// The package reads of a frame only what it takes to put it in order: op, t and seq, found by a
// skimmer that allocates nothing and takes any key order; of several equal keys the first counts.
// Everything with a seq is handed over, whatever its type and however broken the rest of it is. What
// has no readable header or seq, and text messages, are dropped and counted by reason; nothing a
// relay sends ends Run.
//
// A message over MaxMessageBytes is skipped: at most MaxMessageBytes+1 of its bytes are ever in
// memory, the rest is read in small pieces and forgotten. (Two buffers of at most that size take turns,
// so that the last frame handed over can be compared; they shrink when messages do.) If its seq stands in the part that was
// read, it is handed over as a Frame with nil Data before the rest is skipped, so that the position
// moves past it and no reconnect can meet it again. Skipping may take as long as a silent relay is
// waited for; then the connection is given up.
//
// # Numbering
//
// Frames at or below the last one handed over are repeats: dropped, counted. Three things are more
// than repeats; type numbering, which is pure, tells them apart.
//
//   - A gap. The first frame after a resume lies beyond the next number: the relay's window may have
//     moved on without us. The frame carries a Gap. A jump in the middle of a connection is none:
//     several relays leave numbers out (frames they filter, batches they reserve), a connection is
//     ordered and whole, so there a missing number was never sent to anyone.
//   - A suspicion. Frames lie below the last one and none at or above it comes: the relay may
//     have restarted its numbering. Relays differ in how they say so. Some answer the cursor with the
//     error FutureCursor; then the next connection asks for no cursor, so that frames are seen at
//     all. indigo's just goes live with lower numbers. A suspicion lasts until a frame at or above
//     the last one ends it, or for EpochPatience; four times within that the relay is dialled afresh,
//     for a host can come back with its old numbering. If it does, and frames were left out since,
//     the connection is made again with the cursor instead of recording a gap.
//   - A new epoch. The patience is over and a connection made within it still shows lower
//     numbers; or the numbers climb back to the last one, and under it stands an event of another
//     type, account or revision than the one handed over. The epoch counts up, the relay is asked for
//     everything from the lowest number seen meanwhile on, and the first frame handed over carries a
//     Gap between the epochs. What was dropped while waiting so comes again; only what the relay sent
//     before the first look is lost. A relay that goes back and forth between numberings begins an
//     epoch each time; those that begin within EpochPatience of the one before are backed off.
//
// A numbering that restarts and passes the position where nobody sees it, while we are not connected
// or with that very number left out, cannot be told from one that went on.
//
// # Liveness
//
// A ping goes out every PingInterval in which a read waits. Any byte from the relay, pongs included,
// extends the wait, so a quiet relay that answers is fine for ever and one that does not is redialled
// after SilenceTimeout.
//
// While Handle blocks nothing is read (that is the backpressure). The wait begins when a
// read begins, so it is not held against the relay that no pong was seen meanwhile; nor is it
// pinged: it could not get the pong through behind the frames that we do not take, and some relays
// end a connection for that. Its own pings lie behind those frames too and could only be answered by
// taking them into memory. A relay that drops us for it loses nothing for us, since we resume after
// the last frame handed over.
//
// # Frames that come one by one
//
// To wake a goroutine for a frame costs more than the frame. So who has time for it sets Idle: before a read would wait,
// it may let some milliseconds pass, after which the socket is looked into, without waiting, and what came is handed
// over at once. Only when Idle says that it has waited enough does a read wait.
//
// # Concurrency
//
// Run has one goroutine that dials, reads and calls Handle, and per connection one that writes: pings,
// and pongs on behalf of the reader (of several unanswered pings the newest). The close frame is written
// after that one has ended, so each socket has one writer at any time. Both are gone when Run
// returns. Status and the metrics may be read at any time. There is one lock, Client.mu, a leaf.
package consume
