package references_test

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/replay/internal/postings"
	"millrace/replay/links"
	"millrace/replay/references"
)

// TestVerifyEachValue takes away, cuts and changes each value of a small store that has one of each
// kind. One of both checks finds it, where the value depends on others or has a form.
func TestVerifyEachValue(t *testing.T) {
	cfg := references.Config{Dir: "refs", FS: vfs.NewMem(), Links: references.LinksOn}
	references.SplitBy(&cfg, 3)
	s, err := references.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Begin("test", references.Position{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	seq := int64(0)
	apply := func(c references.Change) {
		seq++
		c.Rev = uint64(seq)
		if c.Operation != references.Purge {
			c.Seq, c.TimeUS = seq, seq
		}
		b := references.Batch{Position: references.Position{Epoch: 1, Seq: seq}, Changes: []references.Change{c}}
		if err := s.Hydrate(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		if err := s.Apply(&b); err != nil {
			t.Fatal(err)
		}
	}
	for i := range uint64(12) { // subject 1 becomes large
		apply(references.Change{Operation: references.Create, Account: 10 + i%5, Record: 100 + i, References: []references.Reference{
			{Path: 1, Subject: 1, Authority: 1}, {Path: 2, Subject: 20 + i%2, Authority: 3}}})
	}
	apply(references.Change{Operation: references.DeleteAccount, Account: 11})
	apply(references.Change{Operation: references.Purge, Account: 12})

	type pair struct{ key, value []byte }
	var pairs []pair
	v, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	kinds, known := map[byte]int{}, map[string]bool{}
	for it, ok := v.Iterator(), v.Iterator().SeekGE([]byte{0}); ok; ok = it.Next() {
		pairs = append(pairs, pair{bytes.Clone(it.Key()), bytes.Clone(it.Value())})
		kinds[it.Key()[0]]++
		known[string(it.Key())] = true
	}
	if err := v.Close(); err != nil || len(kinds) != 9 {
		t.Fatalf("keys %v, %v", kinds, err)
	}
	sound := func() bool {
		one, err := s.Verify(t.Context(), nil)
		two, err2 := links.Verify(t.Context(), s, nil)
		return err == nil && err2 == nil && one.Sound() && two.Sound()
	}
	put := func(key, value []byte) {
		references.Harm(t, s, func(b *pebble.Batch) error {
			if value == nil {
				return b.Delete(key, nil)
			}
			return b.Set(key, value, nil)
		})
	}
	if !sound() {
		t.Fatal("the store is not sound")
	}
	for _, p := range pairs {
		r := p.key[0]
		if r == references.RangeMeta { // Open reads these
			continue
		}
		var values [][]byte
		if r != references.RangePurged && r != references.RangeAccount || r == references.RangeAccount && bytes.HasSuffix(p.key, []byte{10}) {
			values = append(values, nil) // of the others no row is left
		}
		if r != references.RangeSweep && r != byte(postings.RangeStart) {
			values = append(values, p.value[:len(p.value)-1:len(p.value)-1], append(bytes.Clone(p.value), 0))
		} else {
			values = append(values, []byte{r})
		}
		for i := range p.value {
			flips := r == byte(postings.RangeMembers) || r == byte(postings.RangeAccount) || r == byte(postings.RangeHead) && i < 2
			if flips {
				values = append(values, bytes.Clone(p.value))
				values[len(values)-1][i] ^= 1
			}
		}
		for _, value := range values {
			if put(p.key, value); sound() {
				t.Errorf("value %x of key %x, in place of %x, is sound", value, p.key, p.value)
			}
		}
		for _, key := range [][]byte{append(bytes.Clone(p.key), 0), p.key[:len(p.key)-1]} { // of another form
			if known[string(key)] {
				continue
			}
			if put(key, p.value); sound() {
				t.Errorf("key %x, beside %x, is sound", key, p.key)
			}
			put(key, nil)
		}
		if put(p.key, p.value); !sound() {
			t.Fatalf("it is not sound as it was: key %x", p.key)
		}
	}
}
