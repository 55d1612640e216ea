package intern

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/intern/kv/pebblekv"
)

// TestVerifyDamagedTable: of a store with a damaged table the file is named, once, and what the
// others hold is checked.
func TestVerifyDamagedTable(t *testing.T) {
	fs := vfs.NewMem()
	store, err := pebblekv.Open(pebblekv.Config{Dir: "uids", FS: fs, MemTableBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	interner, err := Open(t.Context(), Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	const names = 20_000
	for first := 0; first < names; first += 500 {
		requests, results := make([]Request, 500), make([]Result, 500)
		for i := range requests {
			requests[i].DID = fmt.Appendf(nil, "did:web:number-%06d.example.com", first+i)
		}
		if err := interner.Resolve(t.Context(), requests, results); err != nil {
			t.Fatal(err)
		}
	}
	if err := interner.Close(); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	file := middleTable(t, fs)
	store, err = pebblekv.Open(pebblekv.Config{Dir: "uids", FS: fs, ReadOnly: true, KeepGoing: true})
	if err != nil {
		t.Fatal(err)
	}
	report, err := Verify(t.Context(), store, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	for _, p := range report.Examples {
		if strings.Contains(p, "carrier") {
			t.Error(p)
		}
	}
	if report.Problems != 1 || !strings.Contains(report.Examples[0], file) || report.DIDs+report.Keys < names || report.DIDs+report.Keys == 2*names {
		t.Errorf("of a damaged %s: %+v", file, report)
	}
}

// middleTable flips a bit in the middle of the largest table.
func middleTable(t *testing.T, fs vfs.FS) (path string) {
	t.Helper()
	names, err := fs.List("uids")
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, name := range names {
		info, err := fs.Stat("uids/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".sst") && info.Size() > size {
			path, size = "uids/"+name, info.Size()
		}
	}
	f, err := fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, size/2); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, size/2); err != nil {
		t.Fatal(err)
	}
	return path
}
