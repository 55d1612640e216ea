package client

import "sync/atomic"

// Stats counts what a client has done since New.
type Stats struct {
	Connects    int64 // connections that were made
	Failures    int64 // attempts to connect that failed or were refused
	Disconnects int64 // connections that ended
	Switches    int64 // connections to another server than the last one
	Events      int64 // events that were yielded
	Bytes       int64 // of messages, as they came over the wire
	Duplicates  int64 // events that came again after a break and were dropped
	Fetches     int64 // dictionaries that the server was asked for
}

// Stats returns the counts so far.
func (c *Client) Stats() Stats {
	return Stats{
		Connects: c.counts.connects.Load(), Failures: c.counts.failures.Load(), Disconnects: c.counts.disconnects.Load(),
		Events: c.counts.events.Load(), Bytes: c.counts.bytes.Load(), Duplicates: c.counts.duplicates.Load(),
		Fetches: c.counts.fetches.Load(), Switches: c.counts.switches.Load(),
	}
}

// counts is what Stats reads.
type counts struct {
	connects, failures, disconnects, events, bytes, duplicates, fetches, switches atomic.Int64
}
