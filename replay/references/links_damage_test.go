package references_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/postings"
	"millrace/replay/links"
	"millrace/replay/references"
)

// linkReads are the methods of a view, of a subject, and of two of the accounts that link to it.
func linkReads(set links.Set, accounts [2]uint64) map[string]func(ctx context.Context, v links.View) (any, error) {
	others := links.OthersQuery{Set: set, OtherPath: set.Path, Limit: 3000}
	return map[string]func(ctx context.Context, v links.View) (any, error){
		"Count":        func(ctx context.Context, v links.View) (any, error) { return v.Count(ctx, set) },
		"CountRecords": func(ctx context.Context, v links.View) (any, error) { return v.CountRecords(ctx, set) },
		"Records": func(ctx context.Context, v links.View) (any, error) {
			return v.Records(ctx, set, links.Page{Limit: 3000})
		},
		"Records of accounts": func(ctx context.Context, v links.View) (any, error) {
			return v.Records(ctx, set, links.Page{Limit: 10, Accounts: accounts[:]})
		},
		"Accounts": func(ctx context.Context, v links.View) (any, error) {
			return v.Accounts(ctx, set, links.Page{Limit: 3000})
		},
		"Sources":     func(ctx context.Context, v links.View) (any, error) { return v.Sources(ctx, set.Subject) },
		"Others":      func(ctx context.Context, v links.View) (any, error) { return v.Others(ctx, others) },
		"OtherCounts": func(ctx context.Context, v links.View) (any, error) { return v.OtherCounts(ctx, others) },
		"Linked":      func(ctx context.Context, v links.View) (any, error) { return v.Linked(ctx, accounts[1], set.Path, 100) },
	}
}

// likedReads are those of the store of liked.
func likedReads() map[string]func(ctx context.Context, v links.View) (any, error) {
	return linkReads(links.Set{Path: 1, Subject: 1}, [2]uint64{76, 77})
}

// TestDamagedLinks: each question that needs a value which is not as it was written has an error,
// and the others have none.
func TestDamagedLinks(t *testing.T) {
	s := liked(t)
	v, err := links.New(s).View()
	if err != nil {
		t.Fatal(err)
	}
	for name, read := range likedReads() {
		if _, err := read(t.Context(), v); err != nil {
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
		{"counts", postings.AppendSet(nil, c, postings.RangeHead, set), []byte{0}, []string{"Count", "CountRecords", "Records", "Records of accounts", "Accounts", "Sources", "Others", "OtherCounts"}},
		{"account", postings.AppendAccount(nil, c, set, 77), []byte{0xff}, []string{"Records of accounts", "Accounts"}},
		{"account of another link", postings.AppendAccount(nil, c, set, 77), postings.AppendArrivals(nil, []uint64{69}), []string{"Records of accounts"}},
		{"chunk", postings.AppendSet(nil, c, postings.RangeMembers, set), []byte{0xff}, []string{"Records", "Records of accounts", "Accounts", "Others", "OtherCounts"}},
		{"link", postings.AppendSet(nil, c, postings.RangeMembers, set), postings.AppendEntries(nil, []postings.Entry{{Arrival: 1, Link: []byte{0xff}}}),
			[]string{"Records", "Records of accounts", "Accounts", "Others", "OtherCounts"}},
		{"start of a chunk", append(postings.AppendSet(nil, c, postings.RangeMembers, set), 1), []byte{0xff}, []string{"Records", "Accounts", "Others", "OtherCounts"}},
		{"set", append(postings.AppendSubject(nil, c, postings.RangeMembers, 1), 0xff), nil, []string{"Sources"}},
		{"row", references.RowKey(s, 77, 10_067), []byte{}, []string{"Others", "OtherCounts", "Linked"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := liked(t)
			references.Harm(t, s, func(b *pebble.Batch) error { return b.Set(tc.key, tc.value, nil) })
			for name, read := range likedReads() {
				v, err := links.New(s).View()
				if err != nil {
					t.Fatal(err)
				}
				_, err = read(t.Context(), v)
				var damage *pebbleguard.CorruptionError
				if errors.As(err, &damage) != slices.Contains(tc.fails, name) || err != nil && damage == nil {
					t.Errorf("%s: %v", name, err)
				}
				_ = v.Close()
			}
		})
	}
}

// TestDamagedSmallSet: all that reads the one chunk of a small set has an error if it is damaged.
func TestDamagedSmallSet(t *testing.T) {
	s := liked(t)
	rv, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	set := postings.Set{Subject: 2, Path: 1}
	chunk := postings.AppendSet(nil, rv.Codec, postings.RangeMembers, set)
	_ = rv.Close()
	references.Harm(t, s, func(b *pebble.Batch) error { return b.Set(chunk, []byte{0xff}, nil) })
	for name, read := range linkReads(set, [2]uint64{76, 3010}) {
		v, err := links.New(s).View()
		if err != nil {
			t.Fatal(err)
		}
		var damage *pebbleguard.CorruptionError
		if _, err := read(t.Context(), v); errors.As(err, &damage) == (name == "Linked") {
			t.Errorf("%s: %v", name, err)
		}
		_ = v.Close()
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
		if _, err := likedReads()[name](t.Context(), v); err == nil || !strings.Contains(err.Error(), "the table does not have") {
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
	for name, read := range likedReads() {
		v, err := links.New(s).View()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := read(ctx, v); !errors.Is(err, why) && !strings.HasPrefix(name, "Count") { // which waits for nothing
			t.Errorf("%s: %v", name, err)
		}
		if _, err := v.MostLinked(ctx, 5); !errors.Is(err, why) {
			t.Errorf("MostLinked: %v", err)
		}
		_ = v.Close()
	}
	if _, err := links.Verify(ctx, s, nil); !errors.Is(err, why) {
		t.Errorf("Verify: %v", err)
	}
}

var errRead = errors.New("the disk cannot be read")

// TestEachFailedLinkRead: a read of the disk that fails is the error of the question that needs it,
// never a missing link or damage.
func TestEachFailedLinkRead(t *testing.T) {
	fs, cfg := references.FaultStore(t)
	for name, read := range linkReads(links.Set{Path: 1, Subject: 100}, [2]uint64{1, 2}) {
		t.Run(name, func(t *testing.T) {
			var want any
			fails := 0
			for n := int64(0); ; n++ { // 0: none
				var calls atomic.Int64
				var armed atomic.Bool
				cfg := cfg
				cfg.FS = errorfs.Wrap(fs.CrashClone(vfs.CrashCloneCfg{}), errorfs.InjectorFunc(func(op errorfs.Op) error {
					if armed.Load() && op.Kind == errorfs.OpFileReadAt && calls.Add(1) == n {
						return errRead
					}
					return nil
				}))
				s, err := references.Open(cfg)
				if err != nil {
					t.Fatal(err)
				}
				armed.Store(true)
				var got any
				v, err := links.New(s).View()
				if err == nil {
					got, err = read(t.Context(), v)
					_ = v.Close()
				}
				armed.Store(false)
				_ = s.Close()
				var damage *pebbleguard.CorruptionError
				switch {
				case n == 0 && err == nil:
					want = got
				case err == nil && !cmp.Equal(want, got), err != nil && (!errors.Is(err, errRead) || errors.As(err, &damage)):
					t.Fatalf("read %d fails: %+v, %v", n, got, err)
				case err != nil:
					fails++
				}
				if calls.Load() < n {
					break
				}
			}
			if fails < 2 {
				t.Errorf("only %d reads fail", fails)
			}
		})
	}
}

// TestIndex: what an index says of its store.
func TestIndex(t *testing.T) {
	s := liked(t)
	x := links.New(s)
	if p := x.Progress(); p != (links.Progress{Complete: true, Done: 1}) || p.String() != "complete" || (links.Progress{Done: 0.1234}).String() != "12.3 % built" {
		t.Errorf("progress %+v, %s", p, p)
	}
	if x.Since() != (references.Position{Epoch: 1}) || x.InexactSince() != 0 {
		t.Errorf("since %v, inexact since %d", x.Since(), x.InexactSince())
	}
	at := references.Position{Epoch: 1, Seq: s.Position().Seq + 1}
	b := references.Batch{Position: at, Changes: []references.Change{{Operation: references.Gap, Seq: at.Seq, TimeUS: 77}}}
	if err := errors.Join(s.Hydrate(t.Context(), &b), s.Apply(&b), x.Wait(t.Context(), at)); err != nil || x.InexactSince() != 77 {
		t.Errorf("inexact since %d, %v", x.InexactSince(), err)
	}
	why := errors.New("the client has gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	at.Seq++
	if err := x.Wait(ctx, at); !errors.Is(err, why) || !strings.HasPrefix(err.Error(), fmt.Sprintf("wait for links at 1-%d: ", at.Seq)) {
		t.Errorf("wait: %v", err)
	}
	off, err := references.Open(references.Config{Dir: "refs", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer off.Close()
	if p := links.New(off).Progress(); p != (links.Progress{}) {
		t.Errorf("without links: %+v", p)
	}
}
