package replay

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sync/semaphore"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/ahead"
	"millrace/replay/internal/cache"
	"millrace/replay/internal/filter"
	"millrace/replay/internal/format"
	"millrace/replay/internal/logstore"
	"millrace/replay/internal/pebblestore"
)

// blockStore reads what the log has on disk: indexes, parts and spans of blocks. It owns what
// readers share for that: the cache, the bound of what they hold open, and reading ahead. Its users
// hold storeMu shared or, trims, trims.mu.
type blockStore struct {
	store   *pebblestore.Store
	snap    *atomic.Pointer[snapshot] // the log's, whose floor says what a trim deleted
	key     format.FingerprintKey     // of the spans
	sources *logstore.Sources
	cfg     *Config

	unfiltered *Filter // for readers of everything but #sync events, where there are some

	cache       *cache.Cache[cacheKey, cached]
	readers     sync.Map // of *Reader: those that are not closed
	readahead   readahead
	lookups     *semaphore.Weighted // of one for each look-up beside a reader's own
	activeScans atomic.Int32        // calls of Next under way

	// storeMu keeps the store open under readers: they hold it shared, Close exclusively.
	storeMu  sync.RWMutex
	closed   bool  // guarded by storeMu
	closeErr error // guarded by storeMu
}

// newBlockStore returns the store of l's blocks.
func newBlockStore(l *Log, sources *logstore.Sources) *blockStore {
	return &blockStore{
		store:      l.store,
		snap:       &l.snap,
		key:        l.spans.Key(),
		sources:    sources,
		cfg:        &l.cfg,
		cache:      newCache(l.cfg.CacheBytes),
		lookups:    semaphore.NewWeighted(ahead.MaxLookups),
		readahead:  readahead{slots: make(chan struct{}, ahead.MaxLookups)},
		unfiltered: filter.Default(),
	}
}

// close waits for those that hold storeMu, closes the open parts, and then calls closeStore. Later
// calls return what the first did.
func (bs *blockStore) close(closeStore func() error) error {
	bs.storeMu.Lock()
	defer bs.storeMu.Unlock()
	if !bs.closed {
		bs.closed = true
		bs.closeOpenParts()
		bs.closeErr = closeStore()
	}
	return bs.closeErr
}

// stored returns the index, slim index or span that range r has under a key that is known.
func (bs *blockStore) stored(r format.Range, key int64) (cached, error) {
	return bs.cache.Get(cacheKey{block: key, part: r}, func() (v cached, err error) {
		err = bs.view(r, key, func(b []byte) error { return v.decode(b, r, key) })
		return v, err
	})
}

// storedAt is stored where an iterator is.
func (bs *blockStore) storedAt(it *pebbleguard.Iterator, r format.Range, key int64) (cached, error) {
	return bs.cache.Get(cacheKey{block: key, part: r}, func() (cached, error) { return bs.decodeAt(it, r, key) })
}

// decodeAt is storedAt past the cache.
func (bs *blockStore) decodeAt(it *pebbleguard.Iterator, r format.Range, key int64) (v cached, err error) {
	sealed, err := it.ValueAndErr()
	if err != nil {
		return v, bs.readError(r, key, err)
	}
	err = bs.unseal(sealed, r, key, func(b []byte) error { return v.decode(b, r, key) })
	return v, err
}

// indexOf returns the index of a block on disk whose key is known, or its slim index: what range r
// has of it.
func (bs *blockStore) indexOf(r format.Range, key int64) (*blockIndex, error) {
	v, err := bs.stored(r, key)
	return v.idx, err
}

// spanOf returns a span whose key is known.
func (bs *blockStore) spanOf(key int64) (*format.Span, error) {
	v, err := bs.stored(format.RangeSpan, key)
	return v.span, err
}

// blocksOf returns the blocks of a span that may have events of the DIDs or subjects with these
// fingerprints, which ascend. Its index in range r says so. What it reads is looked at once, so it
// goes past the cache.
func (bs *blockStore) blocksOf(r format.Range, key int64, fingerprints []uint64) (set format.BlockSet, err error) {
	for len(fingerprints) > 0 {
		shard := format.ShardOf(fingerprints[0])
		n := sort.Search(len(fingerprints), func(i int) bool { return format.ShardOf(fingerprints[i]) > shard })
		err := bs.viewAt(format.ShardKey(r, key, shard), r, key, func(b []byte) error {
			v, err := format.OpenDIDShard(b, shard)
			for i := 0; i < n && err == nil; i++ {
				if e := v.Find(fingerprints[i]); e >= 0 {
					err = v.AddTo(&set, e)
				}
			}
			return err
		})
		if err != nil {
			return set, err
		}
		fingerprints = fingerprints[n:]
	}
	return set, nil
}

// view calls f with a stored value, without its trailer, which f must not keep. An error of f's
// means that the value is corrupt.
func (bs *blockStore) view(r format.Range, key int64, f func(b []byte) error) error {
	return bs.viewAt(format.TimeKey(r, key), r, key, f)
}

// viewAt is view of the value at storeKey, whose trailer names r and key.
func (bs *blockStore) viewAt(storeKey []byte, r format.Range, key int64, f func(b []byte) error) error {
	sealed, closer, err := bs.open(storeKey, r, key)
	if err != nil {
		return err
	}
	defer closer.Close()
	return bs.unseal(sealed, r, key, f)
}

// unseal calls f with what a value has without its trailer, which names r and key.
func (bs *blockStore) unseal(sealed []byte, r format.Range, key int64, f func(b []byte) error) error {
	b, err := format.OpenTrailer(sealed, r, key)
	if err == nil {
		err = f(b)
	}
	if err != nil {
		return bs.corrupt(r, key, err)
	}
	return nil
}

// open returns the sealed value at storeKey, whose trailer names r and key. It is good until closer
// is closed.
func (bs *blockStore) open(storeKey []byte, r format.Range, key int64) (sealed []byte, closer io.Closer, err error) {
	sealed, closer, err = bs.store.Get(storeKey)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return nil, nil, bs.missing(r, key)
	case err != nil:
		return nil, nil, bs.readError(r, key, err)
	case len(sealed) == 0:
		return nil, nil, bs.corrupt(r, key, errors.New("it is empty"))
	}
	return sealed, closer, nil
}

// missing says why a value is not there.
func (bs *blockStore) missing(r format.Range, key int64) error {
	// A trim that took it published its floor before, see blockScan.iterator.
	if bs.snap.Load().Floor.TimeUS >= key {
		return ErrTrimmed
	}
	return bs.corrupt(r, key, format.ErrMissing)
}

// readError says what an error of the store means, if it is one: that the disk gave back something
// else than was written, or that it could not be read.
func (bs *blockStore) readError(r format.Range, key int64, err error) error {
	if err == nil || errors.Is(err, ErrFailed) {
		return err
	}
	if !errors.As(err, new(*CorruptionError)) {
		err = logstore.ReadError(r, key, err)
	}
	if errors.As(err, new(*CorruptionError)) {
		bs.store.FailAdvised(err)
	}
	return err
}

// corrupt makes a *CorruptionError and fails the log with it: it no longer holds what it must.
func (bs *blockStore) corrupt(r format.Range, key int64, err error) error {
	err = logstore.Corrupt(r, key, err)
	bs.store.FailAdvised(err)
	return err
}

// cacheKey names one thing in the cache: a stored part of a block, or a variant of it.
type cacheKey struct {
	block     int64
	part      format.Range // its range; 0: a variant of a block of the tail
	substream int          // of a plain part, counted over its pages
	variant   variant
	// of a variant, the stamp of its first event. A merged block has the key of the last small
	// block in it, and both have variants
	first int64
}

// frames are a variant's frames, back to back.
type frames struct {
	data []byte
	ends []uint32 // one past each event's frame
	// sizes that events count with against a filter's limit; nil: those of the frames' payloads
	payloads []uint32
}

// cached is what the cache holds of a key: one of these.
type cached struct {
	idx  *blockIndex        // of part RangeIndex, RangeSlimIndex or RangeCopiesIndex
	span *format.Span       // of part RangeSpan
	refs *format.References // of part RangeReferences
	frames
}

func (v cached) memory() int64 {
	switch {
	case v.idx != nil:
		return v.idx.memory()
	case v.span != nil:
		return v.span.Memory()
	case v.refs != nil:
		return v.refs.Memory()
	}
	return int64(cap(v.data) + 4*cap(v.ends) + 4*cap(v.payloads))
}

// decode sets v to what b is: an index, a slim index or a span.
func (v *cached) decode(b []byte, r format.Range, key int64) (err error) {
	if r == format.RangeSpan {
		if v.span, err = format.DecodeSpan(b); err == nil && v.span.Key() != key {
			err = fmt.Errorf("its last block is %d", v.span.Key())
		}
		return err
	}
	if v.idx, err = decodeBlockIndex(r, b); err == nil && v.idx.Key() != key && r != format.RangeCopiesIndex {
		err = fmt.Errorf("its last event is stamped %d", v.idx.Key())
	}
	return err
}

// maxHeldParts is how many parts all readers together hold open between their calls of Next, at
// most. An open part keeps memory of Pebble's, and files that a trim has deleted. Its bytes are
// charged to the cache.
const maxHeldParts = 16

func newCache(maxBytes int64) *cache.Cache[cacheKey, cached] {
	return cache.New[cacheKey](cache.Config[cached]{MaxBytes: maxBytes, MaxCharges: maxHeldParts, Size: cached.memory})
}
