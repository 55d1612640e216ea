package share

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"millrace/intern/kv"
)

// Interner is what this package needs of the Interner that it works for.
type Interner interface {
	// Attempt runs fn in one transaction, which may take limit; 0: the Interner's own limit.
	Attempt(ctx context.Context, limit time.Duration, fn func(context.Context, kv.Txn) error) error

	// Sequences returns the sequences that it takes UIDs from.
	Sequences() []uint32

	// ReadSequence appends the names that have UIDs of the sequence, from a UID on, and returns the
	// UID after the last of them. From 0 it begins with the newest ones.
	ReadSequence(ctx context.Context, txn kv.Txn, sequence uint32, from uint64, names []Name) (uint64, []Name, error)

	// Cache keeps names in the caches.
	Cache(names []Name)

	// LookUp returns a look-up of items. It holds copies of their bytes.
	LookUp(items []Item) Lookup
}

// Name is a string's forward key with its UID, as a committed transaction has written them.
type Name struct {
	Key []byte
	UID uint64
	DID bool // it is a DID, not an AT URI
}

// Item is one string that a call waits for. A follower owns it until its call is done or the
// workers take it over.
type Item interface {
	// Hash is that of its DID. It decides on the leader.
	Hash() uint64
	// Advance fills in what the caches know. If that is not all, it returns the forward key that it
	// needs next, appended to dst: empty if the key cannot be made yet.
	Advance(dst []byte) (key []byte, done bool)
	// Set fills in a name that Advance asked for.
	Set(n *Name)
}

// Call is the batch that items belong to.
type Call interface {
	InternHere(items []Item) // the Interner's workers must intern them
	Done()                   // the follower has none of the items left
}

// Lookup looks items up in the store without giving them UIDs.
type Lookup interface {
	Run(ctx context.Context) error // in any goroutine
	Found(i int) bool              // all that item i needed was there
	Apply(i int)                   // fills in item i what was there
}

// Timing is how fast the instances of one store notice each other. All of them should use the same.
type Timing struct {
	Heartbeat time.Duration // between two heartbeats
	Missed    int           // heartbeats of others that an instance may miss before it counts as dead
	Joining   int           // heartbeats it makes before it leads anything, while others live
	Forget    int           // missed heartbeats after which its record is deleted
	HoldOff   time.Duration // least wait for a leader's result; see follower.holdOff
	Poll      time.Duration // between two reads of what others wrote, while a string waits
	IdlePoll  time.Duration // the same, while none waits
	Limit     time.Duration // of one heartbeat's transaction
}

// DefaultTiming finds a dead instance 600 to 800 ms after its last heartbeat.
func DefaultTiming() Timing {
	return Timing{Heartbeat: 200 * time.Millisecond, Missed: 3, Joining: 2, Forget: 300, HoldOff: 250 * time.Millisecond,
		Poll: 4 * time.Millisecond, IdlePoll: 25 * time.Millisecond, Limit: 2 * time.Second}
}

// Config of a Group. All fields are needed.
type Config struct {
	ID            uint64 // of this instance; random
	Interner      Interner
	CacheKeyBytes int // longest key that the Interner's caches hold
	Timing        Timing
	Logger        *slog.Logger
	Metrics       *Metrics
}

// Group is one instance's view of those that share its store.
type Group struct {
	instances *instances
	feed      *feed
	follower  *follower
	took      atomic.Int64 // nanoseconds: moving mean of a transaction
}

// New returns a Group that knows of no others.
func New(cfg Config) *Group {
	g := &Group{}
	g.took.Store(int64(cfg.Timing.HoldOff) * 2 / 5) // a guess, until transactions were observed
	g.instances = newInstances(cfg, g.Observe)
	g.feed = newFeed(cfg, g.instances)
	g.follower = newFollower(cfg, g)
	return g
}

// Join makes the first heartbeat. If it fails, Run makes it.
func (g *Group) Join(ctx context.Context) { _ = g.instances.step(ctx) }

// Run works until ctx ends, and then takes this instance's record away, so that the others need not
// wait.
func (g *Group) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { g.instances.run(ctx) })
	wg.Go(func() { g.feed.run(ctx) })
	wg.Go(func() { g.follower.run(ctx) })
	wg.Go(func() { g.follower.lookUp(ctx) })
	wg.Wait()
	g.instances.leave(context.WithoutCancel(ctx))
}

// Led says whether another instance leads the string with this hash and can be relied on: then it
// should be followed.
func (g *Group) Led(hash uint64) bool { return g.instances.view.Load().leader(hash) != nil }

// Leaders returns how many instances lead strings, this one included.
func (g *Group) Leaders() int {
	leaders := make(map[*instance]bool)
	for _, i := range g.instances.view.Load().leaders {
		leaders[i] = true
	}
	return len(leaders)
}

// Follow has the follower wait for items on behalf of call. They are dropped if ctx or Run ends
// first.
func (g *Group) Follow(ctx context.Context, call Call, items []Item) {
	select {
	case g.follower.queue <- task{call: call, items: items}:
	case <-ctx.Done():
	case <-g.follower.ended:
	}
}

// Observe takes the time of a transaction into the mean.
func (g *Group) Observe(took time.Duration) {
	mean := g.took.Load()
	g.took.Store(mean + (int64(took)-mean)/8)
}
