package format

import (
	"bytes"
	"math"
	"slices"
	"testing"
)

// TestKeyOrder: keys ascend as what they are made of does, and come back from their bytes.
func TestKeyOrder(t *testing.T) {
	stamps := []int64{0, 1, 255, 256, 1782907200000000, math.MaxInt64}
	var keys [][]byte
	for _, epoch := range []uint32{1, 2, 256, math.MaxUint32} {
		for _, seq := range stamps {
			k := SeqKey(epoch, seq)
			if e, s, ok := ParseSeqKey(k); !ok || e != epoch || s != seq {
				t.Errorf("%x is seq %d of epoch %d, %t", k, s, e, ok)
			}
			keys = append(keys, k)
		}
	}
	for _, r := range []Range{RangeSpan, RangeIndex} {
		for _, us := range stamps {
			k := TimeKey(r, us)
			if got, ok := ParseTimeKey(k); !ok || got != us {
				t.Errorf("%x is of %d, %t", k, got, ok)
			}
			keys = append(keys, k)
		}
	}
	for _, us := range stamps {
		for s := range MaxSubstreams {
			k := SubstreamKey(us, s)
			if got, n, ok := ParseSubstreamKey(k); !ok || got != us || n != s {
				t.Errorf("%x is substream %d of %d, %t", k, n, got, ok)
			}
			keys = append(keys, k)
		}
	}
	for _, us := range stamps {
		for s := range DIDShards {
			k := ShardKey(RangeSpanDIDs, us, s)
			if got, ok := ParseShardKey(k); !ok || got != us {
				t.Errorf("%x is a shard of %d, %t", k, got, ok)
			}
			keys = append(keys, k)
		}
	}
	if !slices.IsSortedFunc(keys, bytes.Compare) {
		t.Error("keys do not ascend")
	}
	for _, r := range Ranges() {
		if k := TimeKey(r, math.MaxInt64); bytes.Compare(r.Start(), k) > 0 || bytes.Compare(k, r.End()) >= 0 {
			t.Errorf("%x is not within the bounds of range %s", k, r)
		}
	}
}

// TestOddKeys: keys of another form are of nothing.
func TestOddKeys(t *testing.T) {
	us := int64(1782907200000000)
	if _, ok := ParseTimeKey(SubstreamKey(us, 1)); ok {
		t.Error("a key that is too long is taken for one of a time_us")
	}
	if _, ok := ParseTimeKey(append(RangeIndex.Start(), 0xff, 0, 0, 0, 0, 0, 0, 0)); ok {
		t.Error("a negative time_us is taken")
	}
	for _, last := range []byte{0, MaxSubstreams} {
		if _, _, ok := ParseSubstreamKey(append(TimeKey(RangePlain, us), last)); ok {
			t.Errorf("substream %d is taken", last)
		}
	}
	for _, k := range [][]byte{TimeKey(RangeSpanDIDs, us), append(TimeKey(RangeSpanDIDs, us), DIDShards)} {
		if _, ok := ParseShardKey(k); ok {
			t.Errorf("%x is taken for a shard's key", k)
		}
	}
	for _, k := range [][]byte{TimeKey(RangeSeq, 1), append(SeqKey(1, 1), 0), SeqKey(1, -1)} {
		if _, _, ok := ParseSeqKey(k); ok {
			t.Errorf("%x is taken for a block reference's key", k)
		}
	}
}
