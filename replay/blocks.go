package replay

import (
	"sync"
	"sync/atomic"

	"millrace/replay/internal/format"
	"millrace/replay/internal/pebblestore"
)

// blockStore reads what the log has on disk: indexes, parts and spans of blocks. It owns what readers share for that:
// the cache, open parts, and reading ahead. Its users hold storeMu shared.
type blockStore struct {
	store *pebblestore.Store
	snap  *atomic.Pointer[snapshot] // the log's, whose floor says what a trim deleted
	key   format.FingerprintKey     // of the spans

	cache       *cache
	parked      parked // parts that are open
	readahead   readahead
	lookupSlots chan struct{} // holds one for each span that a reader looks at beside another
	activeScans atomic.Int32  // calls of Next under way

	// storeMu keeps the store open under readers: they hold it shared, Close exclusively.
	storeMu  sync.RWMutex
	closed   bool  // guarded by storeMu
	closeErr error // guarded by storeMu
}

// newBlockStore returns the store of l's blocks.
func newBlockStore(l *Log) *blockStore {
	return &blockStore{
		store:       l.store,
		snap:        &l.snap,
		key:         l.spans.key,
		cache:       newCache(l.cfg.CacheBytes),
		lookupSlots: make(chan struct{}, maxLooks),
		readahead: readahead{
			slots:   make(chan struct{}, maxLooks),
			queue:   make(chan ahead),
			closing: l.closing,
			begins:  l.cfg.hooks.readAhead,
		},
	}
}

// close waits for those that hold storeMu, closes the open parts, and then calls closeStore. Later calls return what
// the first did.
func (bs *blockStore) close(closeStore func() error) error {
	bs.storeMu.Lock()
	defer bs.storeMu.Unlock()
	if !bs.closed {
		bs.closed = true
		bs.parked.close()
		bs.closeErr = closeStore()
	}
	return bs.closeErr
}
