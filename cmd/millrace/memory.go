package main

import (
	"fmt"
	"io"
)

const (
	// minMemory is the least budget that the daemon starts with.
	minMemory = 64 << 20
	// fixedBytes is what the process takes whatever it does: the program's own pages, stacks, the Go runtime.
	fixedBytes = 24 << 20
)

// shares says who may hold how much of --memory, in bytes.
type shares struct {
	inFlight int64 // frames read, events translated, blocks sealed but not yet committed
	tail     int64 // newest blocks, shared by all live subscribers
	cache    int64 // decoded blocks and built variants, shared by all who replay
	log      int64 // Pebble of the event log: memtables and block cache
	uids     int64 // Pebble of the UID store: memtables and block cache
	strings  int64 // the cache of hot strings and their UIDs
	clients  int64 // filters, options and buffers of subscribers
	garbage  int64 // what the Go runtime has yet to collect
	fixed    int64
}

// memoryShares divides the budget: what is not fixed, in twentieths.
func memoryShares(total byteSize) shares {
	part := func(twentieths int64) int64 { return (int64(total) - fixedBytes) / 20 * twentieths }
	return shares{
		inFlight: part(2),
		tail:     part(3),
		cache:    part(2),
		log:      part(4),
		uids:     part(3),
		strings:  part(2),
		clients:  part(1),
		garbage:  part(3),
		fixed:    fixedBytes,
	}
}

// goLimit is what remains for the Go runtime: Pebble keeps its memtables and block cache outside of it,
// and half of what is fixed is the program's own pages.
func (s shares) goLimit(total byteSize) int64 { return int64(total) - s.log - s.uids - s.fixed/2 }

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
		{s.uids, "the UID store's Pebble: memtables and block cache"},
		{s.strings, "hot strings and their UIDs"},
		{s.clients, "what clients make us remember: filters, options, buffers"},
		{s.garbage, "garbage not yet collected"},
		{s.fixed, "the program itself"},
	} {
		fmt.Fprintf(w, "  %5.0f MiB  %s\n", float64(row.bytes)/(1<<20), row.what)
	}
}
