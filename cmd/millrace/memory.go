package main

import (
	"fmt"
	"io"

	"github.com/prometheus/procfs"

	"millrace/cmd/millrace/ingest"
	"millrace/replay/references"
)

const (
	// minMemory is the least budget that the daemon starts with.
	minMemory = 64 << 20
	// programBytes is how many of the program's own pages and of libc's are resident under load.
	programBytes = 25 << 20
	// fixedBytes is what the process takes whatever it does: its pages, stacks, the Go runtime's
	// own, and tables and buffers of the heap that have no share.
	fixedBytes = programBytes + 14<<20
	// minInFlight has room for a frame of a mebibyte of JSON; see ingest.FrameJSONBytes.
	minInFlight = 3200 << 10
	// subscriberBytes is about what a waiting subscriber takes: two stacks, its reader and its
	// buffers. They take three quarters of the room for garbage at the most; with more the
	// collector would never rest.
	subscriberBytes = 16 << 10
)

// memoryShares is how --memory is divided, in bytes.
type memoryShares struct {
	inFlight int64 // frames read, events translated, blocks sealed but not yet committed
	tail     int64 // newest blocks, shared by all live subscribers
	cache    int64 // decoded blocks and built variants, shared by all replays
	log      int64 // Pebble of the event log: memtables and block cache
	uids     int64 // Pebble of the UID store: memtables and block cache
	strings  int64 // the cache of hot strings and their UIDs
	clients  int64 // filters, options and buffers of subscribers
	garbage  int64 // what the Go runtime has yet to collect
	fixed    int64

	// with --references=on only
	references int64 // Pebble of the reference store: memtables and block cache
	overlay    int64 // recent changes, and accounts

	// with --verify only
	chains int64 // Pebble of the states of accounts: memtables and block cache
	keys   int64 // of accounts
}

// divideMemory divides the budget: what is not fixed, in twentieths. What inFlight needs more is of
// garbage.
func divideMemory(total byteSize) memoryShares {
	twentieths := func(n int64) int64 { return (int64(total) - fixedBytes) / 20 * n }
	inFlight := max(twentieths(2), minInFlight)
	return memoryShares{
		inFlight: inFlight,
		tail:     twentieths(2),
		cache:    twentieths(2),
		log:      twentieths(4),
		uids:     twentieths(3),
		strings:  twentieths(2),
		clients:  twentieths(1),
		garbage:  twentieths(6) - inFlight,
		fixed:    fixedBytes,
	}
}

// withReferences takes the shares of the reference store, a fifth, from those of which other parts
// have most.
func (s memoryShares) withReferences() memoryShares {
	twentieth := s.clients
	s.tail, s.cache, s.log, s.uids = s.tail-twentieth, s.cache-twentieth, s.log-twentieth, s.uids-twentieth
	s.references, s.overlay = 3*twentieth, twentieth
	return s
}

// withLinks adds a twentieth to the Pebble of the reference store, of that of the event log. From
// it, it takes what recent links and the filter of heads take.
func (s memoryShares) withLinks() memoryShares {
	s.log, s.references = s.log-s.clients, s.references+s.clients-references.RecentBytes-references.HeadFilterBytes
	return s
}

// withVerification takes the shares of what verifies, a tenth, from the UID store and its strings.
func (s memoryShares) withVerification() memoryShares {
	twentieth := s.clients
	s.uids, s.strings = s.uids-twentieth, s.strings-twentieth
	s.chains, s.keys = twentieth, twentieth
	return s
}

// memoryShares divides the budget as the other flags ask.
func (c *config) memoryShares() memoryShares {
	s := divideMemory(c.memory)
	if c.referencesOn() {
		s = s.withReferences()
	}
	if c.links {
		s = s.withLinks()
	}
	if c.verification.verifies() {
		s = s.withVerification()
	}
	return s
}

// names is what of strings is for those that subscribers want references in.
func (s memoryShares) names(c *config) int64 {
	if !c.referencesOn() {
		return 0
	}
	return s.strings / 4
}

// subscribers is how many there is room for.
func (s memoryShares) subscribers() int { return int(s.garbage / 4 * 3 / subscriberBytes) }

// chunks is how many bytes of chunks may be on their way to subscribers that catch up. It is what
// the subscribers themselves leave of the room for garbage.
func (s memoryShares) chunks() int64 { return s.garbage / 4 }

// goLimit is what remains for the Go runtime: Pebble keeps its memtables and block cache outside of
// it, as the program's own pages are. An eighth is what malloc loses between blocks.
func (s memoryShares) goLimit(total byteSize) int64 {
	return int64(total) - (s.log+s.uids+s.references+s.chains)/8*9 - programBytes
}

// checkMemory refuses a budget that the machine does not have. Where that is not known, it takes
// any.
func (c *config) checkMemory() error {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil //nolint:nilerr // not on Linux
	}
	has, err := fs.Meminfo()
	if err != nil || has.MemTotalBytes == nil || uint64(c.memory) <= *has.MemTotalBytes {
		return nil //nolint:nilerr // see above
	}
	return advise(fmt.Errorf("--memory %s is more than this machine has, %.1f GiB", c.memory, float64(*has.MemTotalBytes)/(1<<30)),
		"Choose less: the system needs some of it, too.")
}

func (s memoryShares) print(w io.Writer, total byteSize) {
	fmt.Fprintf(w, "How --memory %s is shared out:\n", total)
	for _, row := range []struct {
		bytes int64
		what  string
	}{
		{s.inFlight, "frames and blocks between the relay's socket and the disk"},
		{s.tail, "the tail: newest blocks, shared by all live subscribers"},
		{s.cache, "decoded blocks and built variants, shared by all replays"},
		{s.log, "the event log's Pebble: memtables and block cache"},
		{s.uids, "the UID store's Pebble: memtables and block cache"},
		{s.strings, "hot strings and their UIDs"},
		{s.clients, "what clients make us remember: filters, options, buffers"},
		{s.garbage, "garbage not yet collected"},
		{s.fixed, "the program itself"},
	} {
		fmt.Fprintf(w, "  %5.0f MiB  %s\n", inMiB(row.bytes), row.what)
	}
	fmt.Fprintf(w, "A frame of more than %.1f MiB as JSON is dropped and counted as too_large.\n", inMiB(ingest.FrameJSONBytes(s.inFlight)))
	fmt.Fprintf(w, "A subscriber takes about %d KiB of the room for garbage, and all of them three quarters of it at the most:\n"+
		"there is room for %s. One more is turned away with 503, as by --max-connections.\n"+
		"The last quarter is for events that are being written to subscribers that catch up.\n",
		subscriberBytes>>10, thousands(int64(s.subscribers())))
}

// printOptions says what the flags beside --memory change of s.
func (s memoryShares) printOptions(w io.Writer, graph byteSize) {
	r, v := s.withReferences(), s.withVerification()
	fmt.Fprintf(w, "With --references=on %.0f MiB are the reference store's Pebble's, and %.0f MiB for recent changes and accounts.\n"+
		"The tail, the decoded blocks, the event log's Pebble and the UID store's each give a quarter of that.\n", inMiB(r.references), inMiB(r.overlay))
	fmt.Fprintf(w, "With --links the reference store's Pebble has %.0f MiB; what it has more is of the event log's Pebble.\n", inMiB(r.withLinks().references))
	fmt.Fprintf(w, "With --graph the process takes up to --graph-memory %s more, some 6 bytes a follow.\n", graph)
	fmt.Fprintf(w, "With --verify %.0f MiB are for the keys of accounts, and as many for their last commits.\n"+
		"The UID store's Pebble gives the one, its hot strings the other.\n", inMiB(v.keys))
}
