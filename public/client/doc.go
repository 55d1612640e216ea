// Package client reads the events of a millrace, or of any Jetstream.
//
//	c, err := client.New(client.Config{
//		URL:     "ws://localhost:6008",
//		Options: client.Options{Collections: []string{"app.bsky.feed.post"}},
//		Cursor:  saved, // "" begins with what comes now
//	})
//	if err != nil {
//		return err
//	}
//	for event, err := range c.Events(ctx) {
//		if err != nil {
//			return err // ctx is done, or the server refuses what is asked for
//		}
//		if event.Commit != nil && event.Commit.Operation == client.OpCreate {
//			handle(event.URI(), event.Commit.Record)
//		}
//		saved = event.Cursor // to go on after this event, another time
//	}
//
// # Each event once
//
// A connection that ends, for whatever reason, is made anew after a pause that grows until
// something new comes. It goes on after the last position that was given out, without a gap or a
// repeat. That also holds if the server has restarted, or another instance behind the same relay
// answers. Only whole messages count, so it does not matter where in a frame a connection breaks.
// Where events are gone for good, since the cursor's place was trimmed from the server's log or the
// relay lost them, Config.OnInfo is called. With Config.Strict the former is an error.
//
// Whether a server has positions shows in its first event. A plain Jetstream has none. There the
// client goes back to the time of the last event, less Config.Overlap, and drops by their content
// those that it has given out. That is as exact as that server is: v1 of Jetstream can lose events
// where it changes from replay to live.
//
// # Jetstream v2's wire
//
// A URL that ends with V2Path is of Jetstream v2's wire, on any server that has it. Cursors are
// seqs there, or times. A seq that is older than the log is an error with Config.Strict; else the
// subscription goes on with the oldest event.
//
// # Several servers
//
// With Config.URLs the client goes to another server, at once, when the one that it reads fails, is
// silent, lags, or refuses the cursor; docs/clients.md has the rules. Between millraces behind one
// relay the seam is exact. A plain Jetstream is joined by time, as above.
//
// # Heartbeats
//
// A connection over which nothing comes for Config.Silence is given up, or less than 1 KiB of a
// message that has begun; pings make sure that a server that lives says something. A millrace is
// asked for heartbeats too, which say how far its log has been read for this client. They move
// Client.Cursor while nothing matches; OnInfo and OnWait may store it. If a server answers pings
// but sends no heartbeats, the client disconnects.
//
// # Errors
//
// What another attempt may cure does not end the iteration. That is: broken connections, timeouts,
// restarts, 429 and 503 (whose Retry-After is kept to), being too slow, a URL where nothing
// answers. Config.OnDisconnect gets each, from the first failed attempt on. Without it each is a
// warning in the program's log (Config.Logger, or slog.Default()). Config.NoReconnect makes the
// first one end the iteration. An answer that the request itself is wrong ends the iteration at
// once, with the server's text. A client that was served before retries for a minute, since another
// instance may accept the request.
//
// # Concurrency and memory
//
// The loop's own goroutine reads, decompresses, parses, and calls the functions in Config; while
// its body runs no events are read, and the server waits. A body that takes longer than the
// server's patience (30 s by default) for one event will find itself reconnected, with nothing
// lost. One more goroutine per connection sends pings, and one asks several servers how far they
// are; none is left when the loop ends.
//
// An Event is the receiver's to keep. It takes four allocations: the message, its strings (one for
// all), the Commit, and one of the websocket library's.
//
// # Locks
//
// Client.mu, then progress.mu, a leaf. conn.writeMu, then Client.mu.
package client
