package intern

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"millrace/intern/kv"
)

// shards is how many parts the strings are divided into, by the hash of their DID. Each has one leader.
const shards = 256

func shardOf(hash uint64) int { return int(hash >> 56) }

// pace is how fast the Interners of one store notice each other. All of them should use the same.
type pace struct {
	beat    time.Duration // between two signs of life
	missed  int           // beats of others that one may miss before it counts as dead
	joining int           // own beats before this one leads anything while others live
	forget  int           // missed beats after which its record is deleted
	holdOff time.Duration // longest wait for a leader's result
	tail    time.Duration // between two looks at what others wrote, while someone waits
	idle    time.Duration // the same, while nobody waits
	beatFor time.Duration // longest time of one beat
}

// defaultPace finds a dead instance 600 to 800 ms after its last beat.
func defaultPace() pace {
	return pace{beat: 200 * time.Millisecond, missed: 3, joining: 2, forget: 300, holdOff: 250 * time.Millisecond,
		tail: 4 * time.Millisecond, idle: 25 * time.Millisecond, beatFor: 2 * time.Second}
}

// peer is another Interner on the same store.
type peer struct {
	id        uint64
	beat      uint64 // last one seen
	missed    int    // own beats since it changed
	sequences []uint32

	// How far it can be relied on to have the strings that it leads, see follower. Only the follower writes.
	aloneUntil atomic.Int64 // Unix nanoseconds: until then its shards are treated as one's own
	backOff    time.Duration
	lates      int
	lateAt     time.Time // last
}

// trusted says whether it makes sense to wait for the peer's results.
func (p *peer) trusted() bool {
	until := p.aloneUntil.Load()
	return until == 0 || time.Now().UnixNano() >= until
}

// peers beats, and follows who else beats on the store. From that alone, without asking anyone, every Interner knows the
// leader of each shard: of those that live the one whose id and the shard's number have the greatest hash. Views that differ
// for a moment cost a conflict or a short wait, never a wrong UID: who leads decides on who writes first, and nothing else.
type peers struct {
	in   *Interner
	id   uint64
	pace pace

	beats uint64 // own ones that were committed
	known map[uint64]*peer
	view  atomic.Pointer[view]

	parsed []instance // what the beat under way has read
}

// view is who leads what. It is never changed.
type view struct {
	leaders [shards]*peer // nil: this Interner
	alone   bool          // it leads all
	others  []*peer       // that live
	feeds   map[uint64][]uint32
}

func newPeers(in *Interner, id uint64, pace pace) *peers {
	p := &peers{in: in, id: id, pace: pace, known: make(map[uint64]*peer)}
	p.view.Store(&view{alone: true})
	return p
}

// leader returns who leads the string with this hash: nil for oneself, or if it is better not to wait for its leader.
func (v *view) leader(hash uint64) *peer {
	if v.alone {
		return nil
	}
	if p := v.leaders[shardOf(hash)]; p != nil && p.trusted() {
		return p
	}
	return nil
}

// instance is a peer's record in the store:
//
//	04 instance(8) -> beat sequence-count sequence…
type instance struct {
	id, beat  uint64
	sequences []uint32
}

func appendInstanceKey(dst []byte, id uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, tagInstances), id)
}

func appendBeat(dst []byte, beat uint64, sequences []uint32) []byte {
	dst = binary.AppendUvarint(dst, beat)
	dst = binary.AppendUvarint(dst, uint64(len(sequences)))
	for _, s := range sequences {
		dst = binary.AppendUvarint(dst, uint64(s))
	}
	return dst
}

// parseBeat reads a record. Its sequences are new.
func parseBeat(key, value []byte) (instance, error) {
	if len(key) != 9 || key[0] != tagInstances {
		return instance{}, broken("instance key", key)
	}
	r := instance{id: binary.BigEndian.Uint64(key[1:])}
	var count uint64
	beat, rest, ok := uvarint(value)
	if r.beat = beat; ok {
		count, rest, ok = uvarint(rest)
	}
	for ; ok && count > 0; count-- {
		var s uint64
		if s, rest, ok = uvarint(rest); ok {
			r.sequences = append(r.sequences, uint32(s))
		}
	}
	if !ok || len(rest) > 0 {
		return instance{}, broken("instance", value)
	}
	return r, nil
}

// run beats until the Interner is closed, and then takes its record away, so that the others need not wait.
func (p *peers) run() {
	for kv.Sleep(p.in.ctx, p.pace.beat) == nil {
		_ = p.step(p.in.ctx) // an outage is noted; the next beat tries again
	}
}

// leave deletes the own record.
func (p *peers) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), p.pace.beatFor/4)
	defer cancel()
	_ = kv.Once(ctx, p.in.store, func(txn kv.Txn) error {
		txn.Clear(appendInstanceKey(nil, p.id))
		return nil
	})
}

// step is one beat: read the others' records, write one's own, draw the conclusions.
func (p *peers) step(ctx context.Context) error {
	begun := time.Now()
	if err := p.in.attemptWithin(ctx, p.pace.beatFor, p.beat); err != nil {
		return err
	}
	p.in.noteSpeed(time.Since(begun))
	p.beats++
	p.note()
	p.look()
	return nil
}

func (p *peers) beat(ctx context.Context, txn kv.Txn) error {
	p.parsed = p.parsed[:0]
	err := txn.Scan(ctx, tagRange(tagInstances), func(pair kv.Pair) (bool, error) {
		r, err := parseBeat(pair.Key, pair.Value)
		p.parsed = append(p.parsed, r)
		return err == nil, err
	})
	if err != nil {
		return err
	}
	for id, other := range p.known {
		if other.missed >= p.pace.forget {
			txn.Clear(appendInstanceKey(nil, id))
		}
	}
	txn.Set(appendInstanceKey(nil, p.id), appendBeat(nil, p.beats+1, p.in.sequences.inUse()))
	return nil
}

// note takes over what a beat has read. Silence is counted in own beats that succeeded, so an outage of the store, or of
// this process, lets nobody else seem dead.
func (p *peers) note() {
	seen := make(map[uint64]bool, len(p.parsed))
	for _, r := range p.parsed {
		if r.id == p.id {
			continue
		}
		seen[r.id] = true
		other := p.known[r.id]
		if other == nil {
			other = &peer{id: r.id, beat: r.beat}
			p.known[r.id] = other
		} else if other.missed++; other.beat != r.beat {
			other.beat, other.missed = r.beat, 0
		}
		other.sequences = r.sequences
	}
	maps.DeleteFunc(p.known, func(id uint64, _ *peer) bool { return !seen[id] })
}

// look works out who leads what.
func (p *peers) look() {
	v := &view{feeds: make(map[uint64][]uint32)}
	for _, other := range p.known {
		if other.missed < p.pace.missed {
			v.others = append(v.others, other)
			v.feeds[other.id] = other.sequences
		}
	}
	slices.SortFunc(v.others, func(a, b *peer) int { return compareIDs(a.id, b.id) })
	v.alone = len(v.others) == 0
	candidate := p.beats > uint64(p.pace.joining) // before, the others may not know of us
	for shard := range v.leaders {
		var best uint64
		if candidate {
			best = weight(p.id, shard)
		}
		for _, other := range v.others {
			if other.beat <= uint64(p.pace.joining) {
				continue // it does not lead yet, and who waited for it would wait for nobody
			}
			if w := weight(other.id, shard); w > best {
				best, v.leaders[shard] = w, other
			}
		}
	}
	before := p.view.Swap(v)
	p.in.metrics.peers.Set(float64(len(v.others)))
	if len(before.others) != len(v.others) {
		p.in.cfg.Logger.Info("instances that share the UID store have changed", "others", len(v.others))
	}
}

func compareIDs(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// weight mixes an instance and a shard.
func weight(id uint64, shard int) uint64 {
	return hashKey(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, id), uint64(shard)))
}
