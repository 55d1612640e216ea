package format

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"sort"
)

// The DID index of a span has the fingerprint of each DID in it, and the blocks that the DID is in.
// It is in shards, by the upper bits of the fingerprints, each a value of its own. A reader that
// looks for few DIDs reads a few KiB of it. The index of subjects is of the same form: it has
// fingerprints of UIDs.
const (
	// didBucketBits is how many bits fewer the number of buckets has than that of the DIDs: a
	// bucket has 2 to 4 entries on average.
	didBucketBits = 2
	// maxBucketBits is how many bits name a bucket at most.
	maxBucketBits = 16
	// didGroup is how many entries share one offset into the lists of blocks.
	didGroup = 64
)

// ShardOf returns the shard that has a fingerprint.
func ShardOf(fingerprint uint64) int { return int(fingerprint >> (64 - dIDShardBits)) }

// A pair is the upper 56 bits of a fingerprint and the number of a block in its lowest byte.

// shardsOf sorts pairs, drops repeated ones, and cuts them into those of each shard. It changes
// pairs.
func shardsOf(pairs []uint64) (shards [DIDShards][]uint64) {
	slices.Sort(pairs)
	pairs = slices.Compact(pairs)
	for i := range shards {
		n := sort.Search(len(pairs), func(j int) bool { return ShardOf(pairs[j]) > i })
		shards[i], pairs = pairs[:n], pairs[n:]
	}
	return shards
}

// appendDIDShard appends the value of a key of RangeSpanDIDs or RangeSpanSubjects, without trailer.
// Its pairs ascend, each once.
//
// Fingerprints are without the shard's bits, cut to bucketBits + 16 bits, in ascending order. DIDs
// whose cut fingerprints are equal have one entry, with the blocks of all of them.
func appendDIDShard(dst []byte, shard int, pairs []uint64) []byte {
	distinct := 0
	for i, p := range pairs {
		if i == 0 || p>>8 != pairs[i-1]>>8 {
			distinct++
		}
	}
	bucketBits := max(0, bits.Len(uint(distinct))-didBucketBits)
	cutOf := func(pair uint64) uint64 { return pair << dIDShardBits >> (64 - bucketBits - 16) }

	var lows []uint16
	starts := make([]uint16, 1<<bucketBits+1)
	var counts, numbers []byte
	var ends []uint32
	for i := 0; i < len(pairs); {
		cut := cutOf(pairs[i])
		var set BlockSet
		for ; i < len(pairs) && cutOf(pairs[i]) == cut; i++ {
			set.Add(int(pairs[i] & 0xff))
		}
		n := len(lows)
		if n > 0 && n%didGroup == 0 {
			ends = append(ends, uint32(len(numbers)))
		}
		starts[cut>>16+1]++
		lows = append(lows, uint16(cut))
		before := len(numbers)
		for b := set.Next(0); b < MaxSpanBlocks; b = set.Next(b + 1) {
			numbers = append(numbers, byte(b))
		}
		counts = append(counts, byte(len(numbers)-before-1))
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(lows)))
	dst = append(dst, byte(bucketBits), byte(shard), 0, 0)
	at := uint16(0)
	for _, n := range starts {
		at += n
		dst = binary.LittleEndian.AppendUint16(dst, at)
	}
	for _, low := range lows {
		dst = binary.LittleEndian.AppendUint16(dst, low)
	}
	for _, e := range ends {
		dst = binary.LittleEndian.AppendUint32(dst, e)
	}
	dst = append(dst, counts...)
	return append(dst, numbers...)
}

// DIDShard is a shard of a span's index of DIDs, or of subjects. It aliases the value that it was
// opened from.
type DIDShard struct {
	n, bucketBits         int
	starts, lows          []byte
	ends, counts, numbers []byte
}

// OpenDIDShard opens the value of a shard, without its trailer.
func OpenDIDShard(b []byte, shard int) (v DIDShard, err error) {
	d := &decoder{b: b}
	v.n, v.bucketBits = int(d.uint32()), int(d.byte())
	if of := int(d.byte()); d.err == nil && of != shard {
		d.fail(fmt.Errorf("it is of shard %d, not %d", of, shard))
	}
	d.take(2)
	if v.bucketBits > maxBucketBits {
		d.fail(fmt.Errorf("it numbers its buckets with %d bits, which are too many", v.bucketBits))
	}
	v.starts = d.take(2 * (1<<min(v.bucketBits, maxBucketBits) + 1))
	v.lows = d.take(2 * v.n)
	v.ends = d.take(4 * (max(v.n-1, 0) / didGroup))
	v.counts = d.take(v.n)
	v.numbers, d.b = d.b, nil
	return v, d.end()
}

// Find returns the entry of a fingerprint of this shard; -1 if there is none: then its DID is in
// none of the blocks.
func (v *DIDShard) Find(fingerprint uint64) int {
	cut := fingerprint << dIDShardBits >> (64 - v.bucketBits - 16)
	low := uint16(cut)
	bucket := int(cut >> 16)
	from := int(binary.LittleEndian.Uint16(v.starts[2*bucket:]))
	to := min(int(binary.LittleEndian.Uint16(v.starts[2*bucket+2:])), v.n)
	for i := from; i < to; i++ {
		if binary.LittleEndian.Uint16(v.lows[2*i:]) == low {
			return i
		}
	}
	return -1
}

// NumBlocks returns how many blocks all entries have, together.
func (v *DIDShard) NumBlocks() int { return len(v.numbers) }

// AddTo adds the blocks of entry i to the set.
func (v *DIDShard) AddTo(set *BlockSet, i int) error {
	at := 0
	if g := i / didGroup; g > 0 {
		at = int(binary.LittleEndian.Uint32(v.ends[4*(g-1):]))
	}
	for j := i - i%didGroup; j < i; j++ {
		at += int(v.counts[j]) + 1
	}
	end := at + int(v.counts[i]) + 1
	if end > len(v.numbers) {
		return errShort
	}
	for _, b := range v.numbers[at:end] {
		set.Add(int(b))
	}
	return nil
}

// FingerprintKey keys the fingerprints of a log's DIDs. It is random and secret, so that nobody can
// choose DIDs whose fingerprints collide.
type FingerprintKey struct{ k0, k1 uint64 }

// FingerprintKeyBytes is the length of a key in the store.
const FingerprintKeyBytes = 16

// DecodeFingerprintKey decodes the value of MetaFingerprintKey, without trailer:
// FingerprintKeyBytes random bytes.
func DecodeFingerprintKey(b []byte) (FingerprintKey, error) {
	if len(b) != FingerprintKeyBytes {
		return FingerprintKey{}, fmt.Errorf("it has %d bytes, not %d", len(b), FingerprintKeyBytes)
	}
	return FingerprintKey{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])}, nil
}

// Fingerprint returns SipHash-2-4 (Aumasson and Bernstein, 2012) of s.
func (k FingerprintKey) Fingerprint(s string) uint64 {
	v := sipState{k.k0 ^ 0x736f6d6570736575, k.k1 ^ 0x646f72616e646f6d,
		k.k0 ^ 0x6c7967656e657261, k.k1 ^ 0x7465646279746573}
	last := uint64(len(s)) << 56
	for ; len(s) >= 8; s = s[8:] {
		m := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
			uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
		v.d ^= m
		v.round()
		v.round()
		v.a ^= m
	}
	for i := range len(s) {
		last |= uint64(s[i]) << (8 * i)
	}
	v.d ^= last
	v.round()
	v.round()
	v.a ^= last
	v.c ^= 0xff
	for range 4 {
		v.round()
	}
	return v.a ^ v.b ^ v.c ^ v.d
}

// The roles of a UID in a reference. A fingerprint is of a UID and its role.
const (
	uidOfSubject byte = iota
	uidOfAuthority
)

// FingerprintSubject returns the fingerprint of the UID of a subject.
func (k FingerprintKey) FingerprintSubject(uid uint64) uint64 { return k.ofUID(uid, uidOfSubject) }

// FingerprintAuthority returns the fingerprint of the UID of a subject's authority, for one that is
// not the subject itself.
func (k FingerprintKey) FingerprintAuthority(uid uint64) uint64 { return k.ofUID(uid, uidOfAuthority) }

func (k FingerprintKey) ofUID(uid uint64, role byte) uint64 {
	var b [9]byte
	binary.LittleEndian.PutUint64(b[:], uid)
	b[8] = role
	return k.Fingerprint(string(b[:]))
}

// Fingerprints yields those of a block's subjects and authorities, some maybe more than once, and
// the index of the subject.
func (r *References) Fingerprints(k FingerprintKey) iter.Seq2[uint64, int] {
	return func(yield func(uint64, int) bool) {
		if r == nil {
			return
		}
		for i, s := range r.Subjects {
			if !yield(k.FingerprintSubject(s.UID), i) {
				return
			}
			if s.Authority != 0 && s.Authority != s.UID && !yield(k.FingerprintAuthority(s.Authority), i) {
				return
			}
		}
	}
}

type sipState struct{ a, b, c, d uint64 }

func (v *sipState) round() {
	v.a += v.b
	v.b = bits.RotateLeft64(v.b, 13) ^ v.a
	v.a = bits.RotateLeft64(v.a, 32)
	v.c += v.d
	v.d = bits.RotateLeft64(v.d, 16) ^ v.c
	v.a += v.d
	v.d = bits.RotateLeft64(v.d, 21) ^ v.a
	v.c += v.b
	v.b = bits.RotateLeft64(v.b, 17) ^ v.c
	v.c = bits.RotateLeft64(v.c, 32)
}
