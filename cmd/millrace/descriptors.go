package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// The process's limit of open files, RLIMIT_NOFILE, is shared out like --memory, so that no part
// takes what another cannot do without. A store that cannot open a file ends the process.
const (
	// minDescriptors is the least limit that the daemon starts with.
	minDescriptors = 512
	// ownDescriptors is for what has no share: standard streams, listeners, locks, write-ahead
	// logs, manifests, compactions, tables that Pebble closes in the background, the relay, name
	// look-ups, a backup.
	ownDescriptors = 200
	// metricsConnections is how many connections --metrics-listen has at once. Others wait.
	metricsConnections = 32
	// minStoreFiles and maxStoreFiles bound the tables and blob files that one store keeps open.
	// Pebble keeps 64 at least, beside ten files of another kind.
	minStoreFiles = 74
	maxStoreFiles = 1000
	// maxHandshakes is how many connections of --listen are no subscribers, at most.
	maxHandshakes = 512
)

// raiseOpenFiles is what to do where the limit is too low.
const raiseOpenFiles = "Raise it: LimitNOFILE=65536 in the systemd unit, --ulimit nofile=65536 for Docker, " +
	"ulimit -n 65536 in a shell. The hard limit counts; millrace raises the soft one itself."

// descriptors says how many file descriptors each part may have.
type descriptors struct {
	limit       int // of the process
	storeFiles  int // of each store
	handshakes  int
	subscribers int
}

// divideDescriptors divides a limit of open files, with so many stores. Its error says that it is
// too low.
func divideDescriptors(limit uint64, stores int) (descriptors, error) {
	d := shareDescriptors(limit, stores)
	if d.limit >= minDescriptors && d.subscribers > 0 {
		return d, nil
	}
	need := uint64(minDescriptors)
	for shareDescriptors(need, stores).subscribers < 1 {
		need++
	}
	return d, advise(fmt.Errorf("the limit of open files is %d; with these flags millrace needs %d, and more for many subscribers",
		limit, need), raiseOpenFiles)
}

// shareDescriptors is divideDescriptors of any limit: there may be less than no subscriber.
func shareDescriptors(limit uint64, stores int) descriptors {
	d := descriptors{limit: int(min(limit, 1<<30))} // it may be RLIM_INFINITY
	d.storeFiles = storeFiles(limit)
	d.handshakes = min(d.limit/8, maxHandshakes)
	d.subscribers = d.limit - ownDescriptors - metricsConnections - stores*d.storeFiles - d.handshakes
	return d
}

// storeFiles is how many files a store may keep open, of a limit.
func storeFiles(limit uint64) int { return int(min(max(limit/8, minStoreFiles), maxStoreFiles)) }

// commandFiles is storeFiles for the stores of a command.
func commandFiles() int {
	limit, _ := openFilesLimit() // 0: as few as there may be
	return storeFiles(limit)
}

// openFilesLimit is the process's own. The Go runtime has raised the soft limit to the hard one by
// now.
func openFilesLimit() (uint64, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, fmt.Errorf("read the limit of open files: %w", err)
	}
	return uint64(limit.Cur), nil //nolint:unconvert // signed on some systems
}
