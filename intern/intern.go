package intern

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/intern/internal/share"
	"millrace/intern/kv"
)

// errClosed means: the Interner was closed.
var errClosed = errors.New("interner is closed")

// Scope says what Resolve interns.
type Scope uint8

// The scopes.
const (
	ScopeAll  Scope = iota // DIDs and AT URIs
	ScopeDIDs              // DIDs; every AT URI's UID is 0
)

// Config of an Interner. Zero fields take their defaults.
type Config struct {
	Store kv.Store // stays the caller's; close it after the Interner

	// PrefixBits of a new store, 1 to 32. 0: DefaultPrefixBits. A store that exists must have been
	// created with the same number, unless this is 0.
	PrefixBits int

	Workers    int           // transactions in flight; 0: 4
	CacheBytes int64         // for committed mappings; 0: 16 MiB; negative: no cache
	NameBytes  int64         // for strings of UIDs that were looked up; 0: none is kept
	Scope      Scope         // 0: ScopeAll
	Timeout    time.Duration // of one attempt at a transaction; 0: 5 s
	Seed       uint64        // of the choice of sequences; 0: random. For tests.

	// Alone says not to look for other Interners on a store that can be shared. They may be there:
	// what all of them write stays right, but they repeat each other's work.
	Alone bool

	Logger     *slog.Logger          // nil: discard
	Registerer prometheus.Registerer // nil: no metrics

	hooks testHooks
}

// testHooks changes what only tests may change. The zero value changes nothing.
type testHooks struct {
	timing       share.Timing // of the instances of a shared store
	batchStrings int          // 0: the constant
}

const (
	maxWorkers   = 4096
	batchStrings = 512 // most strings in one transaction
)

func (c Config) validate() error {
	switch {
	case c.Store == nil:
		return errors.New("intern: field Store: must be set")
	case c.PrefixBits != 0 && (c.PrefixBits < minPrefixBits || c.PrefixBits > maxPrefixBits):
		return fmt.Errorf("intern: field PrefixBits: %d is not %d to %d", c.PrefixBits, minPrefixBits, maxPrefixBits)
	case c.Workers < 0 || c.Workers > maxWorkers:
		return fmt.Errorf("intern: field Workers: %d is not 1 to %d", c.Workers, maxWorkers)
	case c.NameBytes < 0:
		return fmt.Errorf("intern: field NameBytes: %d is negative", c.NameBytes)
	case c.Timeout < 0:
		return fmt.Errorf("intern: field Timeout: %v is negative", c.Timeout)
	case c.Scope > ScopeDIDs:
		return fmt.Errorf("intern: field Scope: %d is unknown", c.Scope)
	}
	return nil
}

// withDefaults returns c with its zeros filled.
func (c Config) withDefaults() Config {
	c.Workers = cmp.Or(c.Workers, 4)
	c.CacheBytes = cmp.Or(c.CacheBytes, 16<<20)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	if limit := c.Store.Limits().Duration; limit > 0 {
		c.Timeout = min(c.Timeout, limit*4/5) // well before the store gives up
	}
	c.Seed = cmp.Or(c.Seed, rand.Uint64())
	c.hooks.batchStrings = cmp.Or(c.hooks.batchStrings, batchStrings)
	c.hooks.timing = cmp.Or(c.hooks.timing, share.DefaultTiming())
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// Interner gives every DID and AT URI its UID. Safe for concurrent use.
type Interner struct {
	cfg         Config
	store       kv.Store
	header      header
	codec       codec
	metrics     *metrics
	health      *health
	dids, uris  *cache
	names       nameCache
	registry    registry
	collections *collections
	sequences   *sequences
	workers     []*worker
	calls       sync.Pool    // of *call
	exclusive   bool         // no other process has the store open
	working     sync.RWMutex // held by a worker through a transaction, and by direct, exclusively
	numbering   sync.Mutex   // held by a worker through a transaction that numbers collections
	group       *share.Group // of the instances on a shared store; nil: the store is not shared

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // workers
}

// Open opens the store's UIDs, in an empty store with a new store ID, and starts the workers. A
// store that does not answer is tried again until ctx ends; ctx has no meaning after Open has
// returned. Errors: ErrEmpty (of a store open for reading only), ErrNewerFormat, ErrPrefixBits,
// ErrUnfinished, and those of the store.
func Open(ctx context.Context, cfg Config) (*Interner, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	in := &Interner{cfg: cfg, store: cfg.Store, collections: newCollections(), names: nameCache{maxBytes: cfg.NameBytes},
		exclusive: !cfg.Store.Limits().Shared}
	m, err := newMetrics(cfg.Registerer, &in.registry)
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	in.metrics, in.health = m, newHealth(cfg.Logger, m)
	in.ctx, in.cancel = context.WithCancel(context.Background())
	fresh := newHeader(cmp.Or(cfg.PrefixBits, DefaultPrefixBits), cfg.Store.Limits())
	err = in.retry(ctx, func(ctx context.Context, txn kv.Txn) (err error) {
		in.header, err = openHeader(ctx, txn, fresh, cfg.PrefixBits)
		return err
	})
	if errors.Is(err, kv.ErrReadOnly) { // no header can be written
		err = ErrEmpty
	}
	if err != nil {
		in.cancel()
		return nil, fmt.Errorf("open UID store: %w", err)
	}
	in.codec = in.header.codec
	in.dids = newCache(cfg.CacheBytes / 4 * 3)
	in.uris = newCache(cfg.CacheBytes / 4)
	in.sequences = &sequences{rng: rand.New(rand.NewPCG(cfg.Seed, 1)), count: 1 << in.codec.prefixBits, taken: make(map[uint32]struct{})}
	for range cfg.Workers {
		w := &worker{in: in, queue: make(chan task, queueTasks), txn: newTransaction(in)}
		in.workers = append(in.workers, w)
		in.wg.Go(w.run)
	}
	if cfg.Store.Limits().Shared && !cfg.Alone {
		in.group = share.New(share.Config{ID: rand.Uint64(), Interner: shared{in}, CacheKeyBytes: cacheKey, Timing: cfg.hooks.timing,
			Logger: cfg.Logger, Metrics: m.share})
		in.group.Join(in.ctx)
		in.wg.Go(func() { in.group.Run(in.ctx) })
	}
	return in, nil
}

// StoreID names the store for ever: 32 hex digits. Logs record it.
func (in *Interner) StoreID() string { return in.header.ID() }

// PrefixBits returns p of the store: a UID's uppermost p bits are its sequence.
func (in *Interner) PrefixBits() int { return int(in.codec.prefixBits) }

// Status says whether the store answered last time.
func (in *Interner) Status() Status { return in.health.status() }

// Close stops the workers and waits for them. Batches under way end with errClosed. Safe twice.
func (in *Interner) Close() error {
	in.cancel()
	in.wg.Wait()
	in.working.Lock() // a call that has no worker is over
	defer in.working.Unlock()
	return nil
}

// Request is one event's DID and, for an op, its path, or a name. Empty Collection: the DID only.
// The bytes are only read, and only until Resolve returns.
type Request struct {
	DID        []byte
	Collection []byte
	RecordKey  []byte // empty: at://DID/Collection

	Name []byte // instead of the others: a whole DID or AT URI, such as the subject of a reference
}

// Result holds the UIDs of a Request; URIUID is 0 if it has no Collection, or with ScopeDIDs. Of a
// Name URIUID is 0 if it is a DID, and DIDUID is that of its authority. A handle is neither DID nor
// AT URI: as an authority it has the UID of the AT URI that ends with it, at://handle.
type Result struct {
	DIDUID, URIUID uint64
	// New: URIUID was given while Resolve ran, to this call or another. So whatever got its UIDs
	// before the call does not have it. False says nothing.
	New bool
}

// Resolve sets out[i] to the UIDs of reqs[i], which are durable in the store. Strings that had none
// get one now. It waits for as long as the store is slow or down. Only the end of ctx or of the
// Interner, an invalid string (*InvalidError, nothing interned), or damage to the store ends it
// early. Then out is invalid.
func (in *Interner) Resolve(ctx context.Context, reqs []Request, out []Result) error {
	c := in.newCall(ctx)
	for i := range reqs {
		n, reason := reqs[i].name()
		if reason != "" {
			in.release(c)
			return &InvalidError{Index: i, Reason: reason}
		}
		c.add(&n, i)
		if n.form == formHandle {
			c.addHandle(&n, i)
		}
	}
	if err := in.finish(c); err != nil {
		return err
	}
	for i := range c.items {
		if item := &c.items[i]; item.isAuthority {
			out[item.index].DIDUID = item.uriUID // the URI's own item came before
		} else {
			out[item.index] = Result{DIDUID: item.didUID, URIUID: item.uriUID, New: item.isNew}
		}
	}
	in.release(c)
	if !in.registry.waits() {
		return nil
	}
	for i := range reqs {
		if name := reqs[i].Name; len(name) > 0 {
			in.registry.resolved(name, out[i].DIDUID, out[i].URIUID)
		}
	}
	return nil
}

// name returns the name that r is for.
func (r *Request) name() (name, string) {
	if len(r.Name) > 0 {
		return parseName(r.Name)
	}
	n, reason := didName(r.DID)
	if reason != "" || len(r.Collection) == 0 {
		return n, reason
	}
	if reason = checkNSID(r.Collection); reason == "" && len(r.RecordKey) > 0 {
		reason = checkRecordKey(r.RecordKey)
	}
	n.setPath(r.Collection, r.RecordKey)
	return n, reason
}

// finish has the workers do what the caches could not, and waits. After an error the call is no
// longer the caller's.
func (in *Interner) finish(c *call) error {
	if in.dispatch(c) {
		select {
		case <-c.ready:
		case <-c.ctx.Done():
			return fmt.Errorf("intern: %w", context.Cause(c.ctx))
		case <-in.ctx.Done():
			return errClosed
		}
	}
	if err := c.err; err != nil {
		in.release(c)
		return fmt.Errorf("intern: %w", err)
	}
	return nil
}

// dispatch queues the items that are not done, with the group if another instance leads them, else
// with their workers. It returns false if there are none, or direct has done them.
func (in *Interner) dispatch(c *call) bool {
	var ours, theirs []*item
	for i := range c.items {
		item := &c.items[i]
		switch {
		case item.done():
		case in.group != nil && in.group.Led(item.hash):
			theirs = append(theirs, item)
		default:
			ours = append(ours, item)
		}
	}
	if len(ours)+len(theirs) == 0 || len(theirs) == 0 && in.direct(c, ours) {
		return false
	}
	tasks := in.split(c, ours)
	c.tasks.Store(int32(len(tasks)))
	if len(theirs) > 0 {
		c.tasks.Add(1)
		in.group.Follow(c.ctx, c, in.newForeign(theirs))
	}
	for _, t := range tasks {
		if !in.handOver(t) {
			break
		}
	}
	return true
}

// split sorts items by worker.
func (in *Interner) split(c *call, items []*item) []task {
	if len(items) == 0 {
		return nil
	}
	tasks := make([]task, len(in.workers))
	for _, item := range items {
		at := int(item.hash % uint64(len(tasks)))
		tasks[at].call, tasks[at].worker = c, at
		tasks[at].items = append(tasks[at].items, item)
	}
	return slices.DeleteFunc(tasks, func(t task) bool { return t.call == nil })
}

// handOver queues a task with its worker; false: its caller has left, or the Interner was closed.
func (in *Interner) handOver(t task) bool {
	select {
	case in.workers[t.worker].queue <- t:
		return true
	case <-t.call.ctx.Done():
		return false
	case <-in.ctx.Done():
		return false
	}
}

// retry runs fn in a transaction until it commits, fails for good, or ctx or the Interner ends.
func (in *Interner) retry(ctx context.Context, fn func(context.Context, kv.Txn) error) error {
	return kv.Retry(ctx, func() error {
		err := in.attempt(ctx, in.cfg.Timeout, fn)
		if kv.Retryable(err) && ctx.Err() == nil && in.ctx.Err() != nil {
			return errClosed
		}
		return err
	})
}

// attempt runs fn in one transaction, which may take limit.
func (in *Interner) attempt(ctx context.Context, limit time.Duration, fn func(context.Context, kv.Txn) error) error {
	attempt, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := kv.Once(attempt, in.store, func(txn kv.Txn) error { return fn(attempt, txn) })
	if ctx.Err() == nil {
		in.health.note(err)
	}
	return err
}
