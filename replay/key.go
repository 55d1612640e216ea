package replay

import (
	"encoding/binary"
	"math"

	"github.com/cockroachdb/pebble/v2"
)

// The key ranges of the store, by first byte. Each part of a block has a range of its own, because
// the ranges grow at their ends only: tables of one range never overlap, so that compactions move
// most of them instead of rewriting them. See doc.go for the picture.
const (
	rangeMeta       byte = 0x01
	rangeDictionary byte = 0x02 // + ID, big-endian: the dictionary's file
	rangeGap        byte = 0x08 // + time_us
	rangeSeq        byte = 0x09 // + epoch, last seq
	rangeSpan       byte = 0x0f // + time_us of the last event, as all the next
	rangeIndex      byte = 0x10
	rangePlain      byte = 0x11 // or that and a strand's number
	rangeZstd       byte = 0x12

	rangeSpanDIDs    byte = 0x13 // + a shard's number: fingerprints of a span's DIDs, and the blocks they are in
	rangeOthersIndex byte = 0x15 // copies of a span's identity and account events, as a block's parts
	rangeOthersPlain byte = 0x16
	rangeOthersZstd  byte = 0x17
	rangeOutline     byte = 0x18 // of a block: what most readers need of its index
)

// storeRanges returns all ranges, in order.
func storeRanges() []byte {
	return []byte{rangeMeta, rangeDictionary, rangeGap, rangeSeq, rangeSpan, rangeIndex, rangePlain, rangeZstd,
		rangeSpanDIDs, rangeOthersIndex, rangeOthersPlain, rangeOthersZstd, rangeOutline}
}

// blockRanges returns the ranges of a block's parts, in the order in which blockCheck has them.
func blockRanges() [4]byte { return [4]byte{rangeIndex, rangePlain, rangeZstd, rangeOutline} }

// Names of the meta values, after rangeMeta.
const (
	metaFormat  = "format"
	metaState   = "state"
	metaStreams = "streams"
	metaUIDs    = "uid_store"

	metaDictionaries = "dictionaries"

	metaFingerprintKey = "fingerprint_key"
)

// blockKeyBytes is the length of a key in the ranges that are keyed by time_us.
const blockKeyBytes = 1 + 8

// seqKeyBytes is the length of a key of rangeSeq.
const seqKeyBytes = 1 + 4 + 8

// timeKey returns r + big-endian us: the key of a block's part or of a gap.
func timeKey(r byte, us int64) []byte {
	return binary.BigEndian.AppendUint64([]byte{r}, uint64(us))
}

// keyTime is the inverse of timeKey. A key of another length is one that this version did not write.
func keyTime(key []byte) (us int64, ok bool) {
	if len(key) != blockKeyBytes {
		return 0, false
	}
	v := binary.BigEndian.Uint64(key[1:])
	return int64(v), v <= math.MaxInt64
}

// strandKey returns the key of strand s of the plain part of the block whose key is us; the first is in the part's own
// value.
func strandKey(us int64, s int) []byte {
	if s == 0 {
		return timeKey(rangePlain, us)
	}
	return append(timeKey(rangePlain, us), byte(s))
}

// strandKeyTime is the inverse of strandKey.
func strandKeyTime(key []byte) (us int64, s int, ok bool) {
	if len(key) == blockKeyBytes+1 && key[blockKeyBytes] > 0 && key[blockKeyBytes] < maxStrands {
		s, key = int(key[blockKeyBytes]), key[:blockKeyBytes]
	}
	us, ok = keyTime(key)
	return us, s, ok
}

// shardKey returns the key of a shard of the DIDs of the span whose key is us.
func shardKey(us int64, shard int) []byte { return append(timeKey(rangeSpanDIDs, us), byte(shard)) }

// shardKeyTime is the inverse of shardKey.
func shardKeyTime(key []byte) (us int64, ok bool) {
	if len(key) != blockKeyBytes+1 || key[blockKeyBytes] >= didShards {
		return 0, false
	}
	return keyTime(key[:blockKeyBytes])
}

// seqKey returns the key of the block whose last frame is seq of epoch. Epochs, unlike the streams
// they stand for, are in the order of the log, and so are these keys.
func seqKey(epoch uint32, seq int64) []byte {
	k := binary.BigEndian.AppendUint32([]byte{rangeSeq}, epoch)
	return binary.BigEndian.AppendUint64(k, uint64(seq))
}

// metaKey returns the key of a meta value.
func metaKey(name string) []byte { return append([]byte{rangeMeta}, name...) }

// dictionaryKey returns the key of a dictionary's file.
func dictionaryKey(id uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{rangeDictionary}, id)
}

// spanPolicy tells Pebble to end a table where a range ends, so that no table spans two of them, and to compress what
// becomes smaller by it: with MinLZ where its assembly is, else with snappy. The plain part is compressed already; the
// zstd part would lose a quarter of its bytes, and a cold compressed reader a third of its speed. What it does not compress
// goes to blob files.
func spanPolicy(start []byte) (pebble.SpanPolicy, []byte, error) {
	if len(start) == 0 {
		return pebble.SpanPolicy{}, []byte{rangeMeta}, nil
	}
	var p pebble.SpanPolicy
	switch start[0] {
	case math.MaxUint8:
		return p, nil, nil
	case rangePlain, rangeZstd, rangeOthersPlain, rangeOthersZstd:
	default:
		p.PreferFastCompression = true
		p.ValueStoragePolicy = pebble.ValueStorageLowReadLatency
	}
	return p, []byte{start[0] + 1}, nil
}
