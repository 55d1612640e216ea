// Package counts counts events by kind and collection: totals, and the last five minutes in steps.
// It reads no clock.
package counts

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"millrace/replay/internal/format"
	"millrace/translate"
)

const (
	// Step is how long one entry of a Count's Recent is.
	Step = 2 * time.Second
	// Steps is how many entries Recent has at most: five minutes.
	Steps = 150
	// maxCounted is how many collections are counted apart. Their names come from the network, so
	// there may be any number of them; each takes about 700 bytes here.
	maxCounted = 256
)

// Counts says which events were appended since the log was opened.
type Counts struct {
	Since time.Time // when the log was opened
	Until time.Time // when this was made, which is after Step ended
	// number of the last complete step since Since; -1: none. The last entries of all Recent are
	// its.
	Step int64

	Creates, Updates, Deletes, Identities, Accounts, Syncs Count

	Collections []CollectionCount // commits by collection, the most frequent first
	Other       Count             // commits of collections that are not counted apart

	PlainBytes, ZstdBytes int64 // of the same events, with frame headers
}

// Count is a number of events.
type Count struct {
	Total  int64
	Recent []uint32 // by step, oldest first
}

// CollectionCount is how many commits a collection had. If there were very many collections, the
// rare ones are moved to Other from time to time, and begin again at 0.
type CollectionCount struct {
	Name string
	Count
}

// Counter counts events as they are appended. It is safe for concurrent use; mu is a leaf.
type Counter struct {
	opened time.Time
	start  time.Duration // the monotonic clock at opened

	mu          sync.Mutex
	step        int64 // the one that is being filled
	kinds       [countedKinds]counter
	collections map[string]*counter
	other       counter
	plain, zstd int64

	perBlock []uint32 // scratch: by the block's own collection numbers
}

// counter is a total, and the steps as a ring: step n is at n modulo the length.
type counter struct {
	total int64
	ring  [Steps + 1]uint32 // and the one that is being filled
}

// New makes a counter at now, when the monotonic clock says mono.
func New(now time.Time, mono time.Duration) *Counter {
	return &Counter{opened: now, start: mono, collections: make(map[string]*counter)}
}

// Places in Counter.kinds.
const (
	countedCreate = iota
	countedUpdate
	countedDelete
	countedIdentity
	countedAccount
	countedSync
	countedKinds
)

// countedKind returns the place in Counter.kinds of what the kind column holds; ok is false if it
// has none.
func countedKind(kind uint8) (at int, ok bool) {
	switch translate.Kind(kind & 0xf) {
	case translate.KindCommit:
		at = int(kind>>4) - int(translate.OpCreate) + countedCreate
		return at, at >= countedCreate && at <= countedDelete
	case translate.KindIdentity:
		return countedIdentity, true
	case translate.KindAccount:
		return countedAccount, true
	case translate.KindSync:
		return countedSync, true
	}
	return 0, false
}

// Add counts the events of a block, appended at mono, whose plain and compressed frames have so
// many bytes.
func (c *Counter) Add(mono time.Duration, x *format.SlimIndex, plain, zstd int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(mono)
	c.plain += int64(plain)
	c.zstd += int64(zstd)
	var kinds [256]uint32
	c.perBlock = slices.Grow(c.perBlock[:0], x.Collections.Len()+1)[:x.Collections.Len()+1]
	clear(c.perBlock)
	for i, k := range x.Kind {
		kinds[k]++
		c.perBlock[x.Collection[i]]++
	}
	for k, n := range kinds {
		if at, ok := countedKind(uint8(k)); ok && n > 0 {
			c.kinds[at].add(c.step, n)
		}
	}
	for i, n := range c.perBlock[1:] {
		if n > 0 {
			c.collection(x.Collections.At(i)).add(c.step, n)
		}
	}
}

// collection returns the counter of a collection. If there are too many, the rarer half goes to
// other.
func (c *Counter) collection(name string) *counter {
	if n, ok := c.collections[name]; ok {
		return n
	}
	if len(c.collections) == maxCounted {
		for _, rare := range c.byTotal()[maxCounted/2:] {
			c.other.merge(c.collections[rare])
			delete(c.collections, rare)
		}
	}
	n := new(counter)
	c.collections[string([]byte(name))] = n // a copy: name aliases the block's table
	return n
}

// byTotal returns the collections' names, the most frequent first.
func (c *Counter) byTotal() []string {
	return slices.SortedFunc(maps.Keys(c.collections), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.collections[b].total, c.collections[a].total), cmp.Compare(a, b))
	})
}

// advance begins the step that mono is in.
func (c *Counter) advance(mono time.Duration) {
	step := int64((mono - c.start) / Step)
	for from := max(c.step, step-Steps-1); from < step; {
		from++
		for _, n := range c.all() {
			n.ring[from%int64(len(n.ring))] = 0
		}
	}
	c.step = max(c.step, step)
}

// all returns every counter.
func (c *Counter) all() []*counter {
	all := make([]*counter, 0, countedKinds+1+len(c.collections))
	for i := range c.kinds {
		all = append(all, &c.kinds[i])
	}
	return slices.AppendSeq(append(all, &c.other), maps.Values(c.collections))
}

// Read returns what was counted until mono. The caller sets Until.
func (c *Counter) Read(mono time.Duration) Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(mono)
	kind := func(at int) Count { return c.kinds[at].export(c.step) }
	out := Counts{
		Since: c.opened, Step: c.step - 1,
		Creates: kind(countedCreate), Updates: kind(countedUpdate), Deletes: kind(countedDelete),
		Identities: kind(countedIdentity), Accounts: kind(countedAccount), Syncs: kind(countedSync),
		Other: c.other.export(c.step), PlainBytes: c.plain, ZstdBytes: c.zstd,
		Collections: make([]CollectionCount, 0, len(c.collections)),
	}
	for _, name := range c.byTotal() {
		out.Collections = append(out.Collections, CollectionCount{name, c.collections[name].export(c.step)})
	}
	return out
}

func (n *counter) add(step int64, events uint32) {
	n.total += int64(events)
	n.ring[step%int64(len(n.ring))] += events
}

// merge adds o to n.
func (n *counter) merge(o *counter) {
	n.total += o.total
	for i, events := range o.ring {
		n.ring[i] += events
	}
}

// export returns the counter with its complete steps, those before step.
func (n *counter) export(step int64) Count {
	steps := min(step, Steps)
	c := Count{Total: n.total, Recent: make([]uint32, 0, steps)}
	for i := step - steps; i < step; i++ {
		c.Recent = append(c.Recent, n.ring[i%int64(len(n.ring))])
	}
	return c
}
