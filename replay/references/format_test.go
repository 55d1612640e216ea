package references

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// TestGolden pins every format that is on disk. If it fails, stores in the field no longer open:
// raise version and keep reading the old one.
func TestGolden(t *testing.T) {
	var out strings.Builder
	add := func(name string, b []byte) { out.WriteString(name + " " + hex.EncodeToString(b) + "\n") }
	for _, p := range []uint{1, 14, 32} {
		c := UIDCodec{p}
		uid := func(sequence, n uint64) uint64 { return sequence<<(64-p) | n }
		for _, n := range []uint64{1, 1<<24 - 1, 1 << 24, 1<<32 - 1} {
			add("uid", c.Append(nil, uid(1, n)))
		}
		add("uid", c.Append(nil, 1<<63|1<<30))
		add("uid", c.Append(nil, ^uint64(0)))
	}
	c := UIDCodec{14}
	did, other, near := uint64(77<<50|5), uint64(78<<50|9), uint64(77<<50|1<<33)
	add("account key", c.accountKey(rangeAccount, did))
	add("sweep key", c.accountKey(rangeSweep, did))
	add("purged key", c.accountKey(rangePurged, did))
	add("record key", c.recordKey(recordID{did, 77<<50 | 1<<25}))
	add("row", c.appendRow(nil, did, 1, nil))
	add("row", c.appendRow(nil, did, 1<<34, []Reference{
		{0, other, other}, {15, near + 1, did}, {16, near + 1, near}, {300, other, near}, {1<<32 - 1, did, did},
	}))
	add("account", appendAccount(nil, &accountState{rev: 1 << 60}))
	add("account", appendAccount(nil, &accountState{1 << 60, 1<<60 - 1, 1<<60 - 2, 300, 1_782_907_200_000_000, 1_782_907_200_000_001, 0, false}))
	add("account", appendAccount(nil, &accountState{rev: 1 << 60, statusUS: 1_782_907_200_000_000, inactive: true}))
	add("purged", appendBig(nil, 1<<60, 8))
	for _, name := range []string{metaFormat, metaGeneration, metaState, metaSyncs} {
		add("meta key", metaKey(name))
	}
	add("format", appendFormat(nil, 14))
	add("generation", appendGeneration(nil, &Generation{3, "basis", Position{Epoch: 2, Seq: 77}}))
	add("state", appendState(nil, &state{position: Position{Epoch: 2, Seq: 31527015330}, arrival: 1 << 34, inexactUS: 1_782_907_200_000_000}))
	add("syncs", appendSyncs(nil, &syncs{3, 1_782_907_200_000_000}))
	file := filepath.Join("testdata", "formats.golden")
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755), os.WriteFile(file, []byte(out.String()), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Errorf("formats (-want +got):\n%s", d)
	}
}

// TestUIDOrder: encoded UIDs sort as UIDs do, come back, and none begins another, whatever the
// prefix bits are.
func TestUIDOrder(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	for p := uint(1); p <= maxPrefixBits; p++ {
		c := UIDCodec{p}
		var uids []uint64
		for range 500 {
			uids = append(uids, rng.Uint64()>>rng.UintN(64), rng.Uint64N(4)<<(64-p)|rng.Uint64()>>(p+rng.UintN(64-p)))
		}
		slices.Sort(uids)
		uids = slices.Compact(uids)
		var last []byte
		for i, uid := range uids {
			b := c.Append(nil, uid)
			got, rest, err := c.Next(append(slices.Clone(b), 9))
			if err != nil || got != uid || len(rest) != 1 || len(b) > maxUIDBytes {
				t.Fatalf("p %d: %x comes back from %x as %x, %x, %v", p, uid, b, got, rest, err)
			}
			if i > 0 && (bytes.Compare(last, b) >= 0 || bytes.HasPrefix(b, last)) {
				t.Fatalf("p %d: %x of %x is not after %x of %x", p, b, uid, last, uids[i-1])
			}
			last = b
		}
	}
}

// TestVersion1: a store of version 1 becomes one of this version, unless it is only read or copied.
func TestVersion1(t *testing.T) {
	s := openTest(t, Config{Links: LinksOn})
	do(t, s, 1, like(1, 10, 1, 100))
	old := binary.BigEndian.AppendUint32(nil, 1)
	old = append(old, appendFormat(nil, s.codec.prefixBits)[4:]...)
	Harm(t, s, func(b *pebble.Batch) error { return b.Set(metaKey(metaFormat), old, nil) })
	dir := s.cfg.Dir
	if err := errors.Join(s.Close(), CheckpointClosed(s.cfg, "copy")); err != nil {
		t.Fatal(err)
	}
	for _, from := range []struct {
		dir      string
		readOnly bool
	}{{dir, true}, {"copy", true}, {dir, false}} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		readOnly, cfg := from.readOnly, s.cfg
		cfg.Dir, cfg.ReadOnly = from.dir, readOnly
		s = openTest(t, cfg)
		if b, _, err := s.db.Value(metaKey(metaFormat)); err != nil || bytes.Equal(b, old) != readOnly || !slices.Equal(rows(t, s), []uint64{10}) {
			t.Errorf("read only %t: format %x, %v, rows %v", readOnly, b, err, rows(t, s))
		}
		if version, err := s.FormatVersion(); err != nil || (version == 1) != readOnly {
			t.Errorf("read only %t: version %d, %v", readOnly, version, err)
		}
		if on, built, err := s.LinksProgress(); err != nil || !on || built == 1 {
			t.Errorf("read only %t: links %t, built %g, %v; the older ones do not count", readOnly, on, built, err)
		}
	}
	_ = s.Close()
}

// FuzzDecoders: no input makes a decoder panic, and what one takes is written as it was. The
// exception is a format of version 1: it is written as this one.
func FuzzDecoders(f *testing.F) {
	golden, err := os.ReadFile(filepath.Join("testdata", "formats.golden"))
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(golden)) {
		b, err := hex.DecodeString(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint8(14), uint64(77<<50|5))
	}
	f.Fuzz(func(t *testing.T, b []byte, p uint8, account uint64) {
		c := UIDCodec{uint(p%maxPrefixBits) + 1}
		same := func(what string, again []byte, err error) {
			if err == nil && !bytes.Equal(again, b) {
				t.Errorf("%s: %x is written as %x", what, b, again)
			}
		}
		uid, rest, err := c.Next(b)
		same("uid", append(c.Append(nil, uid), rest...), err)
		if arrival, encoded, err := rowArrival(b); err == nil {
			refs, err := c.appendReferences(nil, account, encoded)
			same("row", c.appendRow(nil, account, arrival, refs), err)
		}
		a, err := decodeAccount(b)
		same("account", appendAccount(nil, &a), err)
		if bits, err := decodeFormat(b); err == nil && binary.BigEndian.Uint32(b) == version {
			same("format", appendFormat(nil, bits), nil)
		}
		g, err := decodeGeneration(b)
		same("generation", appendGeneration(nil, &g), err)
		s, err := decodeState(b)
		same("state", appendState(nil, &s), err)
		y, err := decodeSyncs(b)
		same("syncs", appendSyncs(nil, &y), err)
		rev, err := decodePurged(b)
		same("purged", appendBig(nil, rev, 8), err)
		if len(b) > 0 {
			id, err := c.parseRecordKey(b)
			same("record key", append(b[:1:1], c.recordKey(id)[1:]...), err)
			account, err := c.parseAccountKey(b)
			same("account key", c.accountKey(keyRange(b[0]), account), err)
		}
	})
}

// TestCutValues: a value is read whole, also without a basis, and not if its end is missing.
func TestCutValues(t *testing.T) {
	for name, v := range map[string]struct {
		value  []byte
		decode func([]byte) error
	}{
		"account":    {appendAccount(nil, &accountState{1 << 60, 1, 2, 300, 400, 500, 600, true}), func(b []byte) error { _, err := decodeAccount(b); return err }},
		"generation": {appendGeneration(nil, &Generation{Number: 1, From: Position{Epoch: 2, Seq: 77}}), func(b []byte) error { _, err := decodeGeneration(b); return err }},
		"state":      {appendState(nil, &state{position: Position{Epoch: 2, Seq: 77}}), func(b []byte) error { _, err := decodeState(b); return err }},
		"syncs":      {appendSyncs(nil, &syncs{1, 2}), func(b []byte) error { _, err := decodeSyncs(b); return err }},
	} {
		for n := range len(v.value) + 1 {
			if err := v.decode(v.value[:n]); (err == nil) != (n == len(v.value)) {
				t.Errorf("%s, %d of %d bytes: %v", name, n, len(v.value), err)
			}
		}
	}
}

// TestRow: references come back as they were, after what dst had.
func TestRow(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 4))
	for range 5000 {
		c := UIDCodec{1 + rng.UintN(maxPrefixBits)}
		uids := []uint64{rng.Uint64(), rng.Uint64() >> 40, rng.Uint64N(1 << 20), 1<<63 | rng.Uint64N(1<<40), 1<<63 | rng.Uint64N(1<<20)}
		uid := func() uint64 { return uids[rng.IntN(len(uids))] }
		var refs []Reference
		for range rng.IntN(5) {
			refs = append(refs, Reference{rng.Uint32() >> rng.UintN(32), uid(), uid()})
		}
		account, arrival := uid(), rng.Uint64()>>rng.UintN(60)|1
		b := c.appendRow([]byte("before"), account, arrival, refs)
		if most := len("before") + 10 + referenceBytes*len(refs); len(b) > most {
			t.Fatalf("%d bytes are more than %d", len(b), most)
		}
		got, encoded, err := rowArrival(b[len("before"):])
		if err != nil || got != arrival {
			t.Fatalf("arrival %d, %v", got, err)
		}
		before := []Reference{{1, 2, 3}}
		again, err := c.appendReferences(before, account, encoded)
		if d := cmp.Diff(append(before, refs...), again, cmpopts.EquateEmpty()); err != nil || d != "" {
			t.Fatalf("%v (-want +got):\n%s", err, d)
		}
	}
}
