package references_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/replay/internal/postings"
	"millrace/replay/links"
	"millrace/replay/references"
)

// liked opens a store in which 3,000 accounts like the record 1, and one the record 2.
func liked(t *testing.T) *references.Store { return likedIn(t, vfs.NewMem()) }

func likedIn(t *testing.T, fs vfs.FS) *references.Store {
	t.Helper()
	s := emptyIn(t, fs)
	b := references.Batch{Position: references.Position{Epoch: 1, Seq: 3001}}
	for i := range uint64(3001) {
		subject := uint64(1)
		if i == 3000 {
			subject = 2
		}
		b.Changes = append(b.Changes, references.Change{Operation: references.Create, Seq: int64(i) + 1, Account: 10 + i, Record: 10_000 + i, Rev: 1 + i,
			References: []references.Reference{{Path: 1, Subject: subject, Authority: subject}}})
		if len(b.Changes) == 100 || i == 3000 { // a chunk is split when a later batch finds it large
			b.Position.Seq = int64(i) + 1
			if err := s.Hydrate(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			if err := s.Apply(&b); err != nil {
				t.Fatal(err)
			}
			b = references.Batch{}
			b.Position.Epoch = 1
		}
	}
	return s
}

// emptyIn opens a store with links, and begins a generation.
func emptyIn(t *testing.T, fs vfs.FS) *references.Store {
	t.Helper()
	s, err := references.Open(references.Config{Dir: "refs", FS: fs, Links: references.LinksOn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Begin("test", references.Position{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestVerifyLinks: each kind of damage is a problem.
func TestVerifyLinks(t *testing.T) {
	c := references.UIDCodec{}
	large, small := postings.Set{Subject: 1, Path: 1}, postings.Set{Subject: 2, Path: 1}
	link := func(arrival, account uint64) []byte {
		return postings.AppendEntries(nil, []postings.Entry{{Arrival: arrival, Link: postings.AppendLink(nil, c, account, 1)}})
	}
	for name, test := range map[string]struct {
		harm func(b *pebble.Batch) error
		says string
	}{
		"sound": {func(*pebble.Batch) error { return nil }, ""},
		"link missing": {func(b *pebble.Batch) error {
			return b.Delete(postings.AppendSet(nil, c, postings.RangeMembers, small), nil)
		}, "in no chunk"},
		"link of no row": {func(b *pebble.Batch) error {
			return b.Merge(postings.AppendSet(nil, c, postings.RangeMembers, small), link(7000, 5), nil)
		}, "not in the table"},
		"wrong counts": {func(b *pebble.Batch) error {
			return b.Set(postings.AppendSet(nil, c, postings.RangeHead, large), postings.Head{Records: 3000, Accounts: 2999, Tail: 3000}.Append(nil), nil)
		}, "counts"},
		"no counts": {func(b *pebble.Batch) error {
			return b.Delete(postings.AppendSet(nil, c, postings.RangeHead, large), nil)
		}, "no counts"},
		"counts of nothing": {func(b *pebble.Batch) error {
			return b.Set(postings.AppendSet(nil, c, postings.RangeHead, small), postings.Head{Records: 1, Accounts: 1}.Append(nil), nil)
		}, "counts"},
		"account missing": {func(b *pebble.Batch) error { return b.Delete(postings.AppendAccount(nil, c, large, 77), nil) }, "accounts"},
		"account with another link": {func(b *pebble.Batch) error {
			return b.Set(postings.AppendAccount(nil, c, large, 77), postings.AppendArrivals(nil, []uint64{69}), nil)
		}, "accounts"},
		"account of a small set": {func(b *pebble.Batch) error {
			return b.Set(postings.AppendAccount(nil, c, small, 77), postings.AppendArrivals(nil, []uint64{69}), nil)
		}, "no counts"},
		"wrong chunk": {func(b *pebble.Batch) error {
			return b.Merge(postings.AppendChunk(nil, c, large, 2999), link(1, 5), nil)
		}, "wrong chunk"},
		"start missing": {func(b *pebble.Batch) error {
			start, end := []byte{byte(postings.RangeStart)}, []byte{byte(postings.RangeStart) + 1}
			return b.DeleteRange(start, end, nil)
		}, "starts"},
		"start of no chunk": {func(b *pebble.Batch) error { return b.Set(postings.AppendStart(nil, c, small, 7), nil, nil) }, "starts"},
		"link of no account": {func(b *pebble.Batch) error {
			return b.Merge(postings.AppendSet(nil, c, postings.RangeMembers, small), postings.AppendEntries(nil, []postings.Entry{{Arrival: 7000, Link: []byte{0xff}}}), nil)
		}, "key "},
		"not as written": {func(b *pebble.Batch) error {
			return b.Set(postings.AppendSet(nil, c, postings.RangeHead, small), []byte{0}, nil)
		}, "cut short"},
	} {
		t.Run(name, func(t *testing.T) {
			s := liked(t)
			v, err := s.View()
			if err != nil {
				t.Fatal(err)
			}
			c = v.Codec
			_ = v.Close()
			references.Harm(t, s, test.harm)
			report, err := links.Verify(t.Context(), s, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(report.Examples, "\n")
			if report.Sound() != (test.says == "") || !strings.Contains(got, test.says) {
				t.Errorf("problems %q, want one with %q", got, test.says)
			}
			if test.says == "" && (report.Links != 3001 || report.Sets != 2 || report.Large != 1) {
				t.Errorf("%+v", report)
			}
		})
	}
}

// TestVerifyManyProblems: a hundred problems are spelled out, and all are counted; progress comes
// each 4,096 keys.
func TestVerifyManyProblems(t *testing.T) {
	for _, n := range []uint64{99, 100, 101} {
		s := liked(t)
		v, err := s.View()
		if err != nil {
			t.Fatal(err)
		}
		small := postings.AppendSet(nil, v.Codec, postings.RangeMembers, postings.Set{Subject: 2, Path: 1})
		var entries []postings.Entry
		for i := range n {
			entries = append(entries, postings.Entry{Arrival: 7000 + i, Link: postings.AppendLink(nil, v.Codec, 5, 1+i)})
		}
		_ = v.Close()
		references.Harm(t, s, func(b *pebble.Batch) error { return b.Merge(small, postings.AppendEntries(nil, entries), nil) })
		var seen []uint64
		report, err := links.Verify(t.Context(), s, func(n uint64) { seen = append(seen, n) })
		if err != nil {
			t.Fatal(err)
		}
		if report.Problems != n || len(report.Examples) != int(min(n, 100)) || report.Sets != 2 || report.Links != 3001+n {
			t.Errorf("%d problems: %d with %d examples, %d sets, %d links", n, report.Problems, len(report.Examples), report.Sets, report.Links)
		}
		if len(seen) == 0 {
			t.Error("no progress")
		}
		for i, got := range seen {
			if got != 4096*uint64(i+1) {
				t.Errorf("progress %v", seen)
				break
			}
		}
	}
}

// TestLinksSweptBetween: a row that the sweep deletes between Hydrate and Apply of what replaces it
// takes its link away once.
func TestLinksSweptBetween(t *testing.T) {
	s := liked(t)
	batch := func(seq int64, c references.Change) *references.Batch {
		c.Seq, c.Account = seq, 77
		b := &references.Batch{Position: references.Position{Epoch: 1, Seq: seq}, Changes: []references.Change{c}}
		if err := s.Hydrate(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	apply := func(b *references.Batch) {
		if err := s.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	apply(batch(4000, references.Change{Operation: references.DeleteAccount, TimeUS: 1}))
	again := batch(4001, references.Change{Operation: references.Create, Record: 10_067, Rev: 4001,
		References: []references.Reference{{Path: 1, Subject: 1, Authority: 1}}})
	references.Sweep(t, s)
	apply(again)
	if report, err := links.Verify(t.Context(), s, nil); err != nil || !report.Sound() || report.Links != 3001 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestLinksBuiltBesideChanges: of rows that change while links are built, each link is taken once,
// by the build or by Apply.
func TestLinksBuiltBesideChanges(t *testing.T) {
	cfg := references.Config{Dir: "refs", FS: vfs.NewMem(), Links: references.LinksOff}
	open := func() *references.Store {
		s, err := references.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	seq := int64(0)
	apply := func(s *references.Store, op references.Operation, account uint64) {
		seq++
		c := references.Change{Operation: op, Seq: seq, Account: account, Record: 1000 + account, Rev: uint64(seq)}
		if op != references.Delete {
			c.References = []references.Reference{{Path: 1, Subject: 1, Authority: 1}}
		}
		b := &references.Batch{Position: references.Position{Epoch: 1, Seq: seq}, Changes: []references.Change{c}}
		if err := s.Hydrate(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if err := s.Apply(b); err != nil {
			t.Fatal(err)
		}
	}
	s := open()
	if err := s.Begin("test", references.Position{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	for account := range uint64(5) {
		apply(s, references.Create, 10+account)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Links = references.LinksOn
	references.BuildBy(&cfg, 3)
	s = open()
	defer func() { _ = s.Close() }()
	if !references.BuildLinks(t, s) {
		t.Fatal("five rows were built in one step of three")
	}
	apply(s, references.Create, 9)  // before what is built
	apply(s, references.Delete, 10) // built
	apply(s, references.Update, 11)
	apply(s, references.Update, 13) // not built yet
	apply(s, references.Delete, 14)
	apply(s, references.Create, 15)
	for references.BuildLinks(t, s) {
	}
	if report, err := links.Verify(t.Context(), s, nil); err != nil || !report.Sound() || report.Links != 5 {
		t.Errorf("%+v, %v", report, err)
	}
}

// TestLinksOfVersion2: links without starts of chunks are not complete, and are built again.
func TestLinksOfVersion2(t *testing.T) {
	fs := vfs.NewMem()
	s := likedIn(t, fs)
	references.Harm(t, s, func(b *pebble.Batch) error {
		start, end := []byte{byte(postings.RangeStart)}, []byte{byte(postings.RangeStart) + 1}
		format := append([]byte{references.RangeMeta}, "format"...)
		return errors.Join(b.DeleteRange(start, end, nil), b.Set(format, []byte{0, 0, 0, 2, 14}, nil))
	})
	for _, cfg := range []references.Config{{ReadOnly: true}, {}, {Links: references.LinksOn}} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		cfg.Dir, cfg.FS = "refs", fs
		var err error
		if s, err = references.Open(cfg); err != nil {
			t.Fatal(err)
		}
		if _, err := links.Verify(t.Context(), s, nil); !errors.Is(err, links.ErrBuilding) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
	for references.BuildLinks(t, s) {
	}
	if report, err := links.Verify(t.Context(), s, nil); err != nil || !report.Sound() || report.Links != 3001 || report.Large != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	_ = s.Close()
}
