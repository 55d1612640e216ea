package identity

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/cespare/xxhash/v2"
)

// entryBytes is about what an entry takes in memory, with its key and its place in a map.
const entryBytes = 384

// Directory gives the signing keys of accounts. Safe for concurrent use.
type Directory struct {
	cfg     Config
	metrics *metrics
	fetcher *fetcher

	mu    sync.Mutex
	cache cache
	jobs  map[uint64]*job // queued or being fetched, by UID

	unsynced atomic.Bool // a crash may take back what Changed has dropped

	close    sync.Once
	closeErr error
}

// Open opens the cache in cfg.Dir, or makes an empty one, and starts what fetches. A cache that was
// filled from another directory or export is emptied. Errors: those of pebbleguard.Open, and of
// the export file, which is then read in the background. The caller must call Close.
func Open(cfg Config) (*Directory, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	e, err := openExport(cfg.Export)
	if err != nil {
		return nil, err
	}
	s, err := openStore(&cfg, cfg.source(e))
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	d := &Directory{cfg: cfg, jobs: make(map[uint64]*job), cache: newCache(s, int(cfg.Bytes/2/entryBytes))}
	d.fetcher = newFetcher(d, e)
	d.metrics = newMetrics(cfg.Registerer, d) // no worker has a job yet
	return d, nil
}

// Key returns the signing key of an account, nil unless the state is Current or Stale. It reads
// memory or the local disk. What is missing or too old is fetched in the background: a later call
// has it. did is not kept.
func (d *Directory) Key(uid uint64, did string) (atcrypto.PublicKey, State) {
	check := xxhash.Sum64String(did)
	d.mu.Lock()
	defer d.mu.Unlock()
	e, state, due := d.cache.get(uid, check), Unknown, true
	if e != nil {
		state, due = e.judge(d.cfg.Now())
	}
	if due {
		d.startLocked(uid, check, did)
	}
	d.metrics.lookups[state].Inc()
	if state != Current && state != Stale {
		return nil, state
	}
	return e.key, state
}

// Changed says that the account may have another key: that of an #identity event. What is known of
// it is dropped, and fetched anew if it was there. A crash may take the drop back until Flush.
func (d *Directory) Changed(uid uint64, did string) {
	check, now := xxhash.Sum64String(did), d.cfg.Now().UnixNano()
	d.mu.Lock()
	defer d.mu.Unlock()
	if j := d.jobs[uid]; j != nil && j.begun {
		j.outdated = true
	}
	e := d.cache.get(uid, check)
	if e == nil {
		return
	}
	again := &entry{check: check, next: now}
	if e.fetched == 0 {
		again.next = min(e.next, now+int64(changedEvery))
	} else {
		d.metrics.purged.Inc()
		d.cache.purge(uid)
		d.unsynced.Store(true)
		again.next = min(e.fetched, now) + int64(changedEvery)
	}
	d.cache.keep(uid, again)
	if again.next <= now {
		d.startLocked(uid, check, did)
	}
}

// Refresh fetches the key of an account anew, if it is five minutes old, for one that has not
// verified a signature. pending says that it is being fetched: the key may be another soon.
func (d *Directory) Refresh(uid uint64, did string) (pending bool) {
	check, now := xxhash.Sum64String(did), d.cfg.Now().UnixNano()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.jobs[uid] != nil {
		return true
	}
	e := d.cache.get(uid, check)
	if e == nil {
		return d.startLocked(uid, check, did)
	}
	if e.waits(now) || e.fetched <= now && now-e.fetched < int64(refreshEvery) {
		return false
	}
	e.suspect = d.startLocked(uid, check, did)
	return e.suspect
}

// Flush makes the drops of Changed durable; without drops it costs nothing. After a crash the
// caller calls Changed again for the #identity events since Flush. One goroutine calls it.
func (d *Directory) Flush() error {
	if !d.unsynced.Swap(false) {
		return nil
	}
	return d.cache.store.sync()
}

// Failed is closed when the cache on disk has failed; Err says why. The process should stop.
func (d *Directory) Failed() <-chan struct{} { return d.cache.store.db.Failed() }

// Err returns the failure of the cache on disk, nil while there is none.
func (d *Directory) Err() error { return d.cache.store.db.Err() }

// Close ends the fetches that are under way and closes the cache. No other call may come after it.
// Safe twice.
func (d *Directory) Close() error {
	d.close.Do(func() {
		d.fetcher.stop()
		d.metrics.unregister()
		d.closeErr = d.cache.store.db.Close()
	})
	return d.closeErr
}

// startLocked has an account fetched, and says whether that is under way.
func (d *Directory) startLocked(uid, check uint64, did string) bool {
	if d.jobs[uid] != nil {
		return true
	}
	queue := d.fetcher.queueOf(did)
	if queue == nil { // of a method that has no keys
		d.cache.keep(uid, &entry{check: check, fetched: d.cfg.Now().UnixNano()})
		return false
	}
	j := &job{uid: uid, check: check, did: strings.Clone(did)}
	select {
	case queue <- j:
		d.jobs[uid] = j
		return true
	default:
		d.metrics.dropped.Inc()
		return false
	}
}

// begin notes that a job is being done. From then on Changed outdates its result.
func (d *Directory) begin(j *job) {
	d.mu.Lock()
	defer d.mu.Unlock()
	j.begun = true
}

// finish takes the result of a job: a key, that there is none, or that this is not known.
func (d *Directory) finish(j *job, r result) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.cfg.Now().UnixNano()
	delete(d.jobs, j.uid)
	if j.outdated {
		r.outcome = outdated
	}
	d.metrics.fetches[r.outcome].Inc()
	switch r.outcome {
	case found, absent:
		d.cache.put(j.uid, &entry{check: j.check, key: r.key, fetched: now})
	case outdated:
		d.cache.keep(j.uid, &entry{check: j.check, next: now + int64(changedEvery)})
	case failed:
		e := d.cache.get(j.uid, j.check)
		if e == nil {
			e = &entry{check: j.check}
			d.cache.keep(j.uid, e)
		}
		e.next, e.suspect = now+int64(retryAfter), false
	}
}
