package refs

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/intern"
	"millrace/replay/references"
)

// numberNames names UIDs by rule: those of exportWorld. It takes as many as an Interner does.
type numberNames struct{ most int }

func (n *numberNames) LookupUIDs(ctx context.Context, uids []uint64, names []string) error {
	if n.most = max(n.most, len(uids)); n.most > intern.MaxLookup {
		return fmt.Errorf("%d UIDs at once", len(uids))
	}
	for i, uid := range uids {
		names[i] = fmt.Sprintf("did:web:%d.example.com", uid)
		if uid >= 1000 {
			names[i] = fmt.Sprintf("at://did:web:%d.example.com/a.b.c/%d", uid/10_000, uid)
		}
	}
	return ctx.Err()
}

type twoPaths struct{}

func (twoPaths) SourceOf(number uint32) (string, bool) {
	return map[uint32]string{1: "a.b.c:one", 2: "a.b.c:two"}[number], number < 3
}

// exportStore returns a store with three accounts, each with records that have two references.
func exportStore(t *testing.T, records int) *references.Store {
	t.Helper()
	store, err := references.Open(references.Config{Dir: "refs", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if err := store.Begin("", references.Position{Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	b := references.Batch{Position: references.Position{Epoch: 1, Seq: 3}}
	for account := range uint64(3) {
		for n := range uint64(records) {
			b.Changes = append(b.Changes, references.Change{
				Operation: references.Create, Seq: int64(account) + 1, Account: account + 1, Record: (account+1)*10_000 + n, Rev: 1,
				References: []references.Reference{{Path: 1, Subject: 500, Authority: 500}, {Path: 2, Subject: 501, Authority: 501}},
			})
		}
	}
	if err := store.Hydrate(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if err := store.Apply(&b); err != nil {
		t.Fatal(err)
	}
	return store
}

// TestExport writes more rows than UIDs are looked up at once: all of them, of some accounts, of
// one source.
func TestExport(t *testing.T) {
	const records = exportLookup / 2
	store := exportStore(t, records)
	for name, tc := range map[string]struct {
		accounts []uint64
		sources  map[string]bool
		rows     int
	}{
		"all":          {nil, nil, 6 * records},
		"two accounts": {[]uint64{3, 1}, nil, 4 * records},
		"no account":   {[]uint64{}, nil, 0},
		"a source":     {nil, map[string]bool{"a.b.c:two": true}, 3 * records},
	} {
		t.Run(name, func(t *testing.T) {
			var want strings.Builder
			want.WriteString(strings.Join(columns(), ",") + "\n")
			accounts := tc.accounts
			if accounts == nil {
				accounts = []uint64{1, 2, 3}
			}
			for _, account := range accounts {
				for n := range records {
					for i, path := range []string{"one", "two"} {
						if tc.sources == nil || tc.sources["a.b.c:"+path] {
							fmt.Fprintf(&want, "did:web:%d.example.com,a.b.c,%d,%s,did:web:%d.example.com\n", account, int(account)*10_000+n, path, 500+i)
						}
					}
				}
			}
			var got bytes.Buffer
			names := &numberNames{}
			e := Export{Store: store, Names: names, Table: twoPaths{}, Accounts: tc.accounts, Sources: tc.sources}
			rows, err := e.Run(t.Context(), NewRowWriter(&got, "csv"))
			if err != nil || rows != uint64(tc.rows) {
				t.Errorf("%d rows: %v", rows, err)
			}
			if got.String() != want.String() {
				t.Errorf("%d bytes of rows are not the %d that they should be", got.Len(), want.Len())
			}
		})
	}
}
