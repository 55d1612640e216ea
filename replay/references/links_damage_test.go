package references_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/postings"
	"millrace/replay/links"
	"millrace/replay/references"
)

// linkReads are the methods of a view, of subject 1, which is linked by many.
var linkReads = map[string]func(ctx context.Context, v links.View) error{
	"Count": func(ctx context.Context, v links.View) error {
		_, err := v.Count(ctx, links.Set{Path: 1, Subject: 1})
		return err
	},
	"Records": func(ctx context.Context, v links.View) error {
		_, err := v.Records(ctx, links.Set{Path: 1, Subject: 1}, links.Page{Limit: 3000})
		return err
	},
	"Records of accounts": func(ctx context.Context, v links.View) error {
		_, err := v.Records(ctx, links.Set{Path: 1, Subject: 1}, links.Page{Limit: 10, Accounts: []uint64{76, 77}})
		return err
	},
	"Accounts": func(ctx context.Context, v links.View) error {
		_, err := v.Accounts(ctx, links.Set{Path: 1, Subject: 1}, links.Page{Limit: 3000})
		return err
	},
	"Sources": func(ctx context.Context, v links.View) error {
		_, err := v.Sources(ctx, 1)
		return err
	},
	"Others": func(ctx context.Context, v links.View) error {
		_, err := v.Others(ctx, links.OthersQuery{Set: links.Set{Path: 1, Subject: 1}, OtherPath: 1, Limit: 3000})
		return err
	},
	"OtherCounts": func(ctx context.Context, v links.View) error {
		_, err := v.OtherCounts(ctx, links.OthersQuery{Set: links.Set{Path: 1, Subject: 1}, OtherPath: 1, Limit: 3000})
		return err
	},
}

// TestDamagedLinks: each question that needs a value which is not as it was written has an error,
// and the others have none.
func TestDamagedLinks(t *testing.T) {
	s := liked(t)
	v, err := links.New(s).View()
	if err != nil {
		t.Fatal(err)
	}
	for name, read := range linkReads {
		if err := read(t.Context(), v); err != nil {
			t.Errorf("%s of a sound store: %v", name, err)
		}
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	rv, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	c := rv.Codec
	_ = rv.Close()
	set := postings.Set{Subject: 1, Path: 1}
	for _, tc := range []struct {
		name  string
		key   []byte
		value []byte
		fails []string
	}{
		{"counts", postings.AppendSet(nil, c, postings.RangeHead, set), []byte{0}, []string{"Count", "Records", "Records of accounts", "Accounts", "Sources", "Others", "OtherCounts"}},
		{"account", postings.AppendAccount(nil, c, set, 77), []byte{0xff}, []string{"Records of accounts", "Accounts"}},
		{"account of another link", postings.AppendAccount(nil, c, set, 77), postings.AppendArrivals(nil, []uint64{69}), []string{"Records of accounts"}},
		{"chunk", postings.AppendSet(nil, c, postings.RangeMembers, set), []byte{0xff}, []string{"Records", "Records of accounts", "Accounts", "Others", "OtherCounts"}},
		{"start of a chunk", append(postings.AppendSet(nil, c, postings.RangeMembers, set), 1), []byte{0xff}, []string{"Records", "Accounts", "Others", "OtherCounts"}},
		{"set", append(postings.AppendSubject(nil, c, postings.RangeMembers, 1), 0xff), nil, []string{"Sources"}},
		{"row", references.RowKey(s, 77, 10_067), []byte{}, []string{"Others", "OtherCounts"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := liked(t)
			references.Harm(t, s, func(b *pebble.Batch) error { return b.Set(tc.key, tc.value, nil) })
			for name, read := range linkReads {
				v, err := links.New(s).View()
				if err != nil {
					t.Fatal(err)
				}
				err = read(t.Context(), v)
				var damage *pebbleguard.CorruptionError
				if errors.As(err, &damage) != slices.Contains(tc.fails, name) || err != nil && damage == nil {
					t.Errorf("%s: %v", name, err)
				}
				_ = v.Close()
			}
		})
	}
}

// TestLinkWithoutRow: a link whose record the table does not have is an error.
func TestLinkWithoutRow(t *testing.T) {
	s := liked(t)
	references.Harm(t, s, func(b *pebble.Batch) error { return b.Delete(references.RowKey(s, 77, 10_067), nil) })
	for _, name := range []string{"Others", "OtherCounts"} {
		v, err := links.New(s).View()
		if err != nil {
			t.Fatal(err)
		}
		if err := linkReads[name](t.Context(), v); err == nil || !strings.Contains(err.Error(), "the table does not have") {
			t.Errorf("%s: %v", name, err)
		}
		_ = v.Close()
	}
}

// TestCancelledLinks: a question whose context has ended is answered by the context's cause.
func TestCancelledLinks(t *testing.T) {
	s := liked(t)
	why := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	for name, read := range linkReads {
		v, err := links.New(s).View()
		if err != nil {
			t.Fatal(err)
		}
		if err := read(ctx, v); !errors.Is(err, why) && name != "Count" { // which waits for nothing
			t.Errorf("%s: %v", name, err)
		}
		_ = v.Close()
	}
	if _, err := links.Verify(ctx, s, nil); !errors.Is(err, why) {
		t.Errorf("Verify: %v", err)
	}
}
