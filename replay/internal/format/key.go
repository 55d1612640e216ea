package format

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Range is a range of the store's keys: all that begin with this byte. Each part of a block has a
// range of its own, because the ranges grow at their ends only. Tables of one range never overlap,
// so that compactions move most of them instead of rewriting them.
type Range byte

// The ranges. Of those from RangeSpan on, a key is the range and the time_us of the last event of
// the block or span. In four of them it has one byte more.
const (
	RangeMeta       Range = 0x01 // and the name of a meta value
	RangeDictionary Range = 0x02 // and a dictionary's ID: the dictionary's file
	RangeSource     Range = 0x03 // and a source's number: collection:path
	RangeGap        Range = 0x08 // and the gap's time_us
	RangeSeq        Range = 0x09 // and epoch and last seq of a block: a pointer to the block

	RangeSpan     Range = 0x0f
	RangeIndex    Range = 0x10
	RangePlain    Range = 0x11 // and the number of a substream, but for the first
	RangeZstd     Range = 0x12
	RangeSpanDIDs Range = 0x13 // and the number of a shard of the span's DID index
	// copies of a span's identity and account events, as a block's parts
	RangeCopiesIndex Range = 0x15
	RangeCopiesPlain Range = 0x16
	RangeCopiesZstd  Range = 0x17
	RangeSlimIndex   Range = 0x18
	RangeReferences  Range = 0x19 // of blocks that have some
	// and the number of a shard of the index of subjects, of spans that have some
	RangeSpanSubjects Range = 0x1a
)

// Ranges returns all ranges, in the order of their keys.
func Ranges() []Range {
	return []Range{RangeMeta, RangeDictionary, RangeSource, RangeGap, RangeSeq, RangeSpan, RangeIndex, RangePlain, RangeZstd,
		RangeSpanDIDs, RangeCopiesIndex, RangeCopiesPlain, RangeCopiesZstd, RangeSlimIndex, RangeReferences, RangeSpanSubjects}
}

// BlockRanges returns the ranges of the parts that each block has: index, plain, zstd, slim index.
func BlockRanges() [4]Range { return [4]Range{RangeIndex, RangePlain, RangeZstd, RangeSlimIndex} }

// String returns the range's name in errors: "index", "plain", …
func (r Range) String() string {
	names := [...]string{
		RangeMeta: "meta", RangeDictionary: "dictionary", RangeSource: "source", RangeGap: "gap", RangeSeq: "seq",
		RangeSpan: "span", RangeSpanDIDs: "span_dids", RangeSpanSubjects: "span_subjects",
		RangeIndex: "index", RangeSlimIndex: "slim_index", RangePlain: "plain", RangeZstd: "zstd", RangeReferences: "references",
		RangeCopiesIndex: "copies_index", RangeCopiesPlain: "copies_plain", RangeCopiesZstd: "copies_zstd",
	}
	if int(r) < len(names) && names[r] != "" {
		return names[r]
	}
	return fmt.Sprintf("range %#02x", byte(r))
}

// Start returns the lower bound of the range's keys, inclusive.
func (r Range) Start() []byte { return []byte{byte(r)} }

// End returns the upper bound of the range's keys, exclusive.
func (r Range) End() []byte { return []byte{byte(r) + 1} }

// Names of the meta values, which follow RangeMeta in their keys.
const (
	MetaFormat         = "format"
	MetaState          = "state"
	MetaStreams        = "streams"
	MetaUIDs           = "uid_store"
	MetaDictionaries   = "dictionaries"
	MetaFingerprintKey = "fingerprint_key"
	MetaReferences     = "references"
	MetaCollections    = "collections"
	MetaSeqBases       = "seq_bases"
)

const (
	// timeKeyBytes is the length of a key of TimeKey.
	timeKeyBytes = 1 + 8
	// seqKeyBytes is the length of a key of RangeSeq.
	seqKeyBytes = 1 + 4 + 8

	// MaxSubstreams is how many substreams a block's plain part has at most.
	MaxSubstreams = 8
	// dIDShardBits is how many of a fingerprint's upper bits choose its shard.
	dIDShardBits = 5
	// DIDShards is how many shards a span's index of DIDs has, and that of subjects.
	DIDShards = 1 << dIDShardBits
)

// TimeKey returns the key of what r has for the time_us.
func TimeKey(r Range, timeUS int64) []byte {
	return appendTimeKey(make([]byte, 0, timeKeyBytes), r, timeUS)
}

// appendTimeKey appends the key that TimeKey returns.
func appendTimeKey(dst []byte, r Range, timeUS int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, byte(r)), uint64(timeUS))
}

// ParseTimeKey is the inverse of TimeKey. ok is false if the key has another form.
func ParseTimeKey(key []byte) (timeUS int64, ok bool) {
	if len(key) != timeKeyBytes {
		return 0, false
	}
	v := binary.BigEndian.Uint64(key[1:])
	return int64(v), v <= math.MaxInt64
}

// SubstreamKey returns the key of a substream of the plain part of the block whose key is timeUS.
// The first is in the part's own value.
func SubstreamKey(timeUS int64, substream int) []byte {
	key := appendTimeKey(make([]byte, 0, timeKeyBytes+1), RangePlain, timeUS)
	if substream > 0 {
		key = append(key, byte(substream))
	}
	return key
}

// ParseSubstreamKey is the inverse of SubstreamKey. ok is false if the key has another form.
func ParseSubstreamKey(key []byte) (timeUS int64, substream int, ok bool) {
	if len(key) == timeKeyBytes+1 && key[timeKeyBytes] > 0 && key[timeKeyBytes] < MaxSubstreams {
		substream, key = int(key[timeKeyBytes]), key[:timeKeyBytes]
	}
	timeUS, ok = ParseTimeKey(key)
	return timeUS, substream, ok
}

// ShardKey returns the key of a shard of the index of DIDs or of subjects, of the span whose key is
// timeUS.
func ShardKey(r Range, timeUS int64, shard int) []byte {
	return append(appendTimeKey(make([]byte, 0, timeKeyBytes+1), r, timeUS), byte(shard))
}

// ParseShardKey is the inverse of ShardKey, but for the shard. ok is false if the key has another
// form.
func ParseShardKey(key []byte) (timeUS int64, ok bool) {
	if len(key) != timeKeyBytes+1 || key[timeKeyBytes] >= DIDShards {
		return 0, false
	}
	return ParseTimeKey(key[:timeKeyBytes])
}

// SeqKey returns the key of the pointer to the block whose last frame is seq of epoch. Epochs,
// unlike the streams that they stand for, are in the order of the log, and so are these keys.
func SeqKey(epoch uint32, seq int64) []byte {
	key := binary.BigEndian.AppendUint32(append(make([]byte, 0, seqKeyBytes), byte(RangeSeq)), epoch)
	return binary.BigEndian.AppendUint64(key, uint64(seq))
}

// ParseSeqKey is the inverse of SeqKey. ok is false if the key has another form.
func ParseSeqKey(key []byte) (epoch uint32, seq int64, ok bool) {
	if len(key) != seqKeyBytes {
		return 0, 0, false
	}
	v := binary.BigEndian.Uint64(key[5:])
	return binary.BigEndian.Uint32(key[1:]), int64(v), v <= math.MaxInt64
}

// MetaKey returns the key of a meta value.
func MetaKey(name string) []byte { return append([]byte{byte(RangeMeta)}, name...) }

// DictionaryKey returns the key of a dictionary's file.
func DictionaryKey(id uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{byte(RangeDictionary)}, id)
}

// SourceKey returns the key of a source.
func SourceKey(number uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{byte(RangeSource)}, number)
}

// ParseSourceKey is the inverse of SourceKey. ok is false if the key has another form.
func ParseSourceKey(key []byte) (number uint32, ok bool) {
	if len(key) != 5 {
		return 0, false
	}
	number = binary.BigEndian.Uint32(key[1:])
	return number, number > 0 && number <= MaxSources
}
