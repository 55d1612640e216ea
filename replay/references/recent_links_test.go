package references_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/replay/links"
	"millrace/replay/references"
)

// follows applies one batch in which each account follows the subject 1.
func follows(t *testing.T, s *references.Store, accounts ...uint64) {
	t.Helper()
	at := s.Position()
	b := references.Batch{Position: references.Position{Epoch: at.Epoch, Seq: at.Seq + int64(len(accounts))}}
	for i, account := range accounts {
		b.Changes = append(b.Changes, references.Change{
			Operation: references.Create, Seq: at.Seq + 1 + int64(i), Account: account, Record: 1000 + account, Rev: 1,
			References: []references.Reference{{Path: 1, Subject: 1, Authority: 1}},
		})
	}
	if err := s.Hydrate(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(&b); err != nil {
		t.Fatal(err)
	}
}

// TestRecentWhileBuilding: links count as recent from the first one on that comes after links are
// complete.
func TestRecentWhileBuilding(t *testing.T) {
	cfg := references.Config{Dir: "refs", FS: vfs.NewMem(), Links: references.LinksOff}
	references.BuildBy(&cfg, 2)
	s, err := references.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Begin("test", references.Position{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	follows(t, s, 10, 20, 30, 40)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.Links = references.LinksOn
	if s, err = references.Open(cfg); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	references.BuildLinks(t, s)
	follows(t, s, 11, 31) // one that is built, one that is not
	for references.BuildLinks(t, s) {
	}
	if got := s.Recent(); got.From != 0 || len(got.Sets) > 0 {
		t.Errorf("links that came while they were built are in %+v", got)
	}
	follows(t, s, 12, 32, 42)
	v, err := links.New(s).View()
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	most, err := v.MostLinked(t.Context(), 5)
	if err != nil || len(most.Sets) != 1 || most.Sets[0].Records != 3 || most.Since.IsZero() {
		t.Errorf("%+v, %v", most, err)
	}
}
