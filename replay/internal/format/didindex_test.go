package format

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// testKey keys the fingerprints of the tests.
var testKey = FingerprintKey{1, 2}

// spanOf makes a span of random blocks, and says which DIDs and collections are in which.
func spanOf(t *testing.T, rng *rand.Rand, blocks, events int) (o *SpanBuilder, dids map[string]BlockSet) {
	t.Helper()
	dids = make(map[string]BlockSet)
	o = NewSpanBuilder(1, testKey)
	seq, us := int64(0), int64(1782907200000000)
	for n := range blocks {
		var block []testEvent
		first := seq + 1
		for range events {
			seq++
			us += int64(1 + rng.IntN(1000))
			e := randomEvent(rng, Place{1, seq, 0}, us)
			e.did = testDID(int(rng.ExpFloat64() * 300))
			set := dids[e.did]
			set.Add(n)
			dids[e.did] = set
			block = append(block, e)
		}
		b := sealEvents(t, block, first, seq)
		o.Add(b.BlockEvents, b.Values.Bytes())
	}
	return o, dids
}

// TestSpanDIDs: each DID is found, in all blocks it is in; hardly any other is.
func TestSpanDIDs(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 2))
	for _, size := range [][2]int{{1, 1}, {1, 50}, {3, 20}, {256, 2}, {40, 100}} {
		o, dids := spanOf(t, rng, size[0], size[1])
		var shards [DIDShards]DIDShard
		for i, pairs := range shardsOf(o.pairs) {
			var err error
			if shards[i], err = OpenDIDShard(appendDIDShard(nil, i, pairs), i); err != nil {
				t.Fatal(err)
			}
		}
		find := func(did string) (*DIDShard, int) {
			fingerprint := testKey.Fingerprint(did)
			v := &shards[ShardOf(fingerprint)]
			return v, v.Find(fingerprint)
		}
		extra := 0
		for did, want := range dids {
			var got BlockSet
			v, i := find(did)
			if i < 0 {
				t.Fatalf("seed %d, %v: %s is not found", seed, size, did)
			}
			if err := v.AddTo(&got, i); err != nil {
				t.Fatal(err)
			}
			missing := want
			missing.Intersect(&got)
			if missing != want {
				t.Fatalf("seed %d, %v: %s is in %x, found in %x", seed, size, did, want, got)
			}
			if got != want {
				extra++
			}
		}
		found := 0
		for i := range 10_000 {
			if _, e := find(fmt.Sprint("did:web:", i)); e >= 0 {
				found++
			}
		}
		if found > 10 || extra > 5 {
			t.Errorf("seed %d, %v: %d of 10,000 absent DIDs are found, %d of %d have other blocks", seed, size, found, extra, len(dids))
		}
	}
}

func TestSpanRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for _, size := range [][2]int{{1, 1}, {7, 9}, {8, 9}, {9, 9}, {256, 3}} {
		o, _ := spanOf(t, rng, size[0], size[1])
		o.Finish()
		o.Copied, o.HasSubjects = size[0]%2 == 0, size[1] == 9
		enc := AppendSpan([]byte("prefix"), &o.Span)
		got, err := DecodeSpan(bytes.TrimPrefix(enc, []byte("prefix")))
		if err != nil {
			t.Fatal(err)
		}
		for i := range enc {
			enc[i] = 0xaa // DecodeSpan keeps nothing of it
		}
		if diff := cmp.Diff(&o.Span, got, cmp.AllowUnexported(Span{}, NameTable{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("%v: -want +got\n%s", size, diff)
		}
		enc = AppendSpan(nil, &o.Span)
		for range 2000 {
			bad := bytes.Clone(enc)
			bad[rng.IntN(len(bad))] ^= 1 << rng.IntN(8)
			_, _ = DecodeSpan(bad[:len(bad)-rng.IntN(2)]) // must not panic
		}
	}
}

// TestFingerprint checks the reference implementation's vectors: key 00 01 … 0f, input 00 01 … of n
// bytes.
func TestFingerprint(t *testing.T) {
	key := make([]byte, FingerprintKeyBytes)
	for i := range key {
		key[i] = byte(i)
	}
	k, err := DecodeFingerprintKey(key)
	if err != nil {
		t.Fatal(err)
	}
	input := make([]byte, 16)
	for i := range input {
		input[i] = byte(i)
	}
	for n, want := range map[int]uint64{
		0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 7: 0xab0200f58b01d137, 8: 0x93f5f5799a932462, 15: 0xa129ca6149be45e5,
	} {
		if got := k.Fingerprint(string(input[:n])); got != want {
			t.Errorf("%d bytes: %016x, want %016x", n, got, want)
		}
	}
}

// TestShardGroups: in a shard of several groups of fingerprints, each has its own blocks.
func TestShardGroups(t *testing.T) {
	const shard, entries = 3, 5*didGroup + 7
	var pairs []uint64
	want := make(map[uint64]BlockSet)
	for i := range uint64(entries) {
		fingerprint := uint64(shard)<<(64-dIDShardBits) | i<<40
		var set BlockSet
		for b := i % 7; b < MaxSpanBlocks; b += 1 + i%50 {
			set.Add(int(b))
			pairs = append(pairs, fingerprint|b)
		}
		want[fingerprint] = set
	}
	v, err := OpenDIDShard(appendDIDShard(nil, shard, pairs), shard)
	if err != nil {
		t.Fatal(err)
	}
	for fingerprint, want := range want {
		i := v.Find(fingerprint)
		if i < 0 {
			t.Fatalf("fingerprint %x is not found", fingerprint)
		}
		var got BlockSet
		if err := v.AddTo(&got, i); err != nil || got != want {
			t.Errorf("entry %d is in %x, %v, want %x", i, got, err, want)
		}
	}
	if v.NumBlocks() != len(pairs) {
		t.Errorf("all entries have %d blocks, want %d", v.NumBlocks(), len(pairs))
	}
}

// FuzzOpenShard: no bytes make a shard panic.
func FuzzOpenShard(f *testing.F) {
	f.Add(appendDIDShard(nil, 0, []uint64{1 << 40, 2<<40 | 1, 2<<40 | 255}), uint64(2<<40))
	f.Add(appendDIDShard(nil, 0, nil), uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, fingerprint uint64) {
		v, err := OpenDIDShard(b, 0)
		if err != nil {
			return
		}
		var set BlockSet
		if i := v.Find(fingerprint << dIDShardBits >> dIDShardBits); i >= 0 {
			_ = v.AddTo(&set, i)
		}
	})
}

// FuzzDecodeSpan: no bytes make the decoder panic, and what it takes is encoded to what it takes.
func FuzzDecodeSpan(f *testing.F) {
	b := goldenBlock(f)
	o := NewSpanBuilder(3, testKey)
	o.Add(b.BlockEvents, b.Values.Bytes())
	o.Finish()
	f.Add(AppendSpan(nil, &o.Span))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := DecodeSpan(b)
		if err != nil {
			return
		}
		s.FirstWith(s.LastPoint().TimeUS)
		got, err := DecodeSpan(AppendSpan(nil, s))
		if err != nil {
			t.Fatalf("what was decoded does not decode again: %v", err)
		}
		if diff := cmp.Diff(s, got, cmp.AllowUnexported(Span{}, NameTable{}), cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// TestCopiesOfOneDictionary: a span of blocks of several dictionaries has no copies.
func TestCopiesOfOneDictionary(t *testing.T) {
	a, b := goldenBlock(t), goldenBlock(t)
	for _, dictionary := range []uint32{a.Index.Dictionary, a.Index.Dictionary + 1} {
		o := NewSpanBuilder(3, testKey)
		b.Index.Dictionary = dictionary
		o.Add(a.BlockEvents, a.Values.Bytes())
		o.Add(b.BlockEvents, b.Values.Bytes())
		if o.Finish(); o.Copied != (dictionary == a.Index.Dictionary) {
			t.Errorf("dictionaries %d and %d: there are copies: %t", a.Index.Dictionary, dictionary, o.Copied)
		}
	}
}
