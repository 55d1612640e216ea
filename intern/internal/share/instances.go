package share

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"millrace/intern/kv"
)

// Tag is the first byte of the keys that this package writes.
const Tag = 0x04

// partitions is how many parts the strings are divided into, by the hash of their DID. Each has one
// leader.
const partitions = 256

func partitionOf(hash uint64) int { return int(hash >> 56) }

// instance is another Interner on the same store.
type instance struct {
	id        uint64
	heartbeat uint64 // last one seen
	missed    int    // own heartbeats since it changed
	sequences []uint32

	lateness lateness     // the follower's
	until    atomic.Int64 // lateness.until in Unix nanoseconds, for other goroutines
}

// trusted says whether it makes sense to wait for the instance's results.
func (i *instance) trusted() bool {
	until := i.until.Load()
	return until == 0 || time.Now().UnixNano() >= until
}

// late takes a result of the instance that did not come within holdOff.
func (i *instance) late(now time.Time, holdOff time.Duration) {
	i.lateness.observe(now, holdOff)
	if !i.lateness.until.IsZero() {
		i.until.Store(i.lateness.until.UnixNano())
	}
}

// instances makes this instance's heartbeats, and follows those of the others. From these alone
// every Interner knows the leader of each partition. Of the instances that live, it is the one
// whose ID and the partition's number have the greatest hash. Views that differ for a moment cost a
// conflict or a short wait, never a wrong UID.
type instances struct {
	cfg     Config
	observe func(time.Duration)

	heartbeats uint64 // own ones that were committed
	known      map[uint64]*instance
	view       atomic.Pointer[view]

	read []record // by the heartbeat under way
}

// view is which instance leads which partition. It is never changed.
type view struct {
	leaders [partitions]*instance // nil: this one
	alone   bool                  // it leads all
	others  []*instance           // that live
	feeds   map[uint64][]uint32
}

func newInstances(cfg Config, observe func(time.Duration)) *instances {
	i := &instances{cfg: cfg, observe: observe, known: make(map[uint64]*instance)}
	i.view.Store(&view{alone: true})
	return i
}

// leader returns the instance that leads the string with this hash. It is nil for this one, or if
// it is better not to wait for the leader.
func (v *view) leader(hash uint64) *instance {
	if v.alone {
		return nil
	}
	if i := v.leaders[partitionOf(hash)]; i != nil && i.trusted() {
		return i
	}
	return nil
}

// record is an instance's record in the store.
type record struct {
	id, heartbeat uint64
	sequences     []uint32
}

func appendKey(dst []byte, id uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, Tag), id)
}

func appendRecord(dst []byte, heartbeat uint64, sequences []uint32) []byte {
	dst = binary.AppendUvarint(dst, heartbeat)
	dst = binary.AppendUvarint(dst, uint64(len(sequences)))
	for _, s := range sequences {
		dst = binary.AppendUvarint(dst, uint64(s))
	}
	return dst
}

// parseRecord reads a record. Its sequences are new.
func parseRecord(key, value []byte) (record, error) {
	if len(key) != 9 || key[0] != Tag {
		return record{}, fmt.Errorf("the record of an instance has a damaged key: %.64x", key)
	}
	r := record{id: binary.BigEndian.Uint64(key[1:])}
	rest, ok := value, true
	next := func() uint64 {
		v, n := binary.Uvarint(rest)
		if ok = ok && n > 0; ok {
			rest = rest[n:]
		}
		return v
	}
	r.heartbeat = next()
	for count := next(); ok && count > 0; count-- {
		r.sequences = append(r.sequences, uint32(next()))
	}
	if !ok || len(rest) > 0 {
		return record{}, fmt.Errorf("the record of an instance is damaged: %.64x", value)
	}
	return r, nil
}

// run makes heartbeats until ctx ends.
func (i *instances) run(ctx context.Context) {
	for kv.Sleep(ctx, i.cfg.Timing.Heartbeat) == nil {
		_ = i.step(ctx) // an outage is noted by Attempt; the next heartbeat tries again
	}
}

// leave deletes this instance's record from the store.
func (i *instances) leave(ctx context.Context) {
	_ = i.cfg.Interner.Attempt(ctx, i.cfg.Timing.Limit/4, func(_ context.Context, txn kv.Txn) error {
		txn.Clear(appendKey(nil, i.cfg.ID))
		return nil
	})
}

// step is one heartbeat: read the others' records, write the own, draw the conclusions.
func (i *instances) step(ctx context.Context) error {
	begun := time.Now()
	if err := i.cfg.Interner.Attempt(ctx, i.cfg.Timing.Limit, i.heartbeat); err != nil {
		return err
	}
	i.observe(time.Since(begun))
	i.heartbeats++
	i.note()
	i.elect()
	return nil
}

func (i *instances) heartbeat(ctx context.Context, txn kv.Txn) error {
	i.read = i.read[:0]
	err := txn.Scan(ctx, kv.Range{Begin: []byte{Tag}, End: []byte{Tag + 1}}, func(pair kv.Pair) (bool, error) {
		r, err := parseRecord(pair.Key, pair.Value)
		i.read = append(i.read, r)
		return err == nil, err
	})
	if err != nil {
		return err
	}
	for id, other := range i.known {
		if other.missed >= i.cfg.Timing.Forget {
			txn.Clear(appendKey(nil, id))
		}
	}
	txn.Set(appendKey(nil, i.cfg.ID), appendRecord(nil, i.heartbeats+1, i.cfg.Interner.Sequences()))
	return nil
}

// note takes over what a heartbeat has read. Silence is counted in own heartbeats that succeeded,
// so an outage of the store, or of this process, makes no other instance seem dead.
func (i *instances) note() {
	seen := make(map[uint64]bool, len(i.read))
	for _, r := range i.read {
		if r.id == i.cfg.ID {
			continue
		}
		seen[r.id] = true
		other := i.known[r.id]
		if other == nil {
			other = &instance{id: r.id, heartbeat: r.heartbeat}
			i.known[r.id] = other
		} else if other.missed++; other.heartbeat != r.heartbeat {
			other.heartbeat, other.missed = r.heartbeat, 0
		}
		other.sequences = r.sequences
	}
	maps.DeleteFunc(i.known, func(id uint64, _ *instance) bool { return !seen[id] })
}

// elect makes the view: it chooses a leader for each partition.
func (i *instances) elect() {
	v := &view{feeds: make(map[uint64][]uint32)}
	for _, other := range i.known {
		if other.missed < i.cfg.Timing.Missed {
			v.others = append(v.others, other)
			v.feeds[other.id] = other.sequences
		}
	}
	v.alone = len(v.others) == 0
	candidate := i.heartbeats > uint64(i.cfg.Timing.Joining) // before, the others may not know of this one
	for partition := range v.leaders {
		var best uint64
		if candidate {
			best = weight(i.cfg.ID, partition)
		}
		for _, other := range v.others {
			if other.heartbeat <= uint64(i.cfg.Timing.Joining) {
				continue // it does not lead yet, and its results would not come
			}
			if w := weight(other.id, partition); w > best {
				best, v.leaders[partition] = w, other
			}
		}
	}
	before := i.view.Swap(v)
	i.cfg.Metrics.Instances.Set(float64(len(v.others)))
	if len(before.others) != len(v.others) {
		i.cfg.Logger.Info("another instance joined or left the UID store", "others", len(v.others))
	}
}

// weight mixes an instance and a partition.
func weight(id uint64, partition int) uint64 {
	return xxhash.Sum64(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, id), uint64(partition)))
}
