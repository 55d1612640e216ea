package main

import (
	"fmt"
	"io"
)

// minMemory is the least budget that the daemon starts with.
const minMemory = 64 << 20

// shares says who may hold how much of --memory, in bytes. The rest, a sixteenth, is the Go
// runtime's and everybody's small change.
type shares struct {
	inFlight int64 // frames read, events translated, blocks sealed but not yet committed
	tail     int64 // newest blocks, shared by all live subscribers
	cache    int64 // decoded blocks and built variants, shared by all who replay
	log      int64 // Pebble of the event log: memtables and block cache
	intern   int64 // Pebble of the UID store and the cache of hot strings
	clients  int64 // filters, options and buffers of subscribers
}

// memoryShares divides the budget. The fractions are sixteenths.
func memoryShares(total byteSize) shares {
	part := func(sixteenths int64) int64 { return int64(total) / 16 * sixteenths }
	return shares{
		inFlight: part(3),
		tail:     part(3),
		cache:    part(2),
		log:      part(3),
		intern:   part(2),
		clients:  part(2),
	}
}

func (s shares) print(w io.Writer, total byteSize) {
	fmt.Fprintf(w, "How --memory %s is shared out:\n", total)
	for _, row := range []struct {
		bytes int64
		what  string
	}{
		{s.inFlight, "frames and blocks between the relay's socket and the disk"},
		{s.tail, "the tail: newest blocks, shared by all live subscribers"},
		{s.cache, "decoded blocks and built variants, shared by all who replay"},
		{s.log, "the event log's Pebble: memtables and block cache"},
		{s.intern, "the UID store's Pebble and the cache of hot strings"},
		{s.clients, "what clients make us remember: filters, options, buffers"},
	} {
		fmt.Fprintf(w, "  %5.0f MiB  %s\n", float64(row.bytes)/(1<<20), row.what)
	}
}
