package intern

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/intern/kv"
	"millrace/intern/kv/pebblekv"
	"millrace/intern/kv/simkv"
)

// filled returns a store with many strings, and their UIDs.
func filled(t *testing.T, store kv.Store, strings int) map[string]uint64 {
	t.Helper()
	in := openOn(t, store, Config{})
	defer in.Close()
	want := make(map[string]uint64)
	rng := rand.New(rand.NewPCG(1, 1))
	for len(want) < strings {
		batch := randomStrings(rng, 100)
		for range 100 {
			batch = append(batch, fmt.Sprintf("at://did:web:big.com/a.b.c/%s", appendTID(nil, rng.Uint64()>>1)))
		}
		for i, uid := range resolve(t, in, batch...) {
			want[batch[i]] = uid
		}
	}
	return want
}

func create(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), name), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// exported returns the dump of a store.
func exported(t *testing.T, store kv.Store) []byte {
	t.Helper()
	f := create(t, "dump")
	var seen uint64
	sum, err := Export(ctx, store, f, func(n uint64) { seen = n })
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(f.Name())
	if err != nil || seen != sum.Names || int64(len(b)) != sum.Bytes {
		t.Fatalf("%v: %d bytes, progress says %d names, summary %+v", err, len(b), seen, *sum)
	}
	return b
}

// importDump checks a dump and brings it into a store.
func importDump(ctx context.Context, store kv.Store, file io.ReadSeeker, progress func(uint64)) (*Summary, error) {
	d, err := CheckDump(ctx, file)
	if err != nil {
		return nil, err
	}
	return d.Import(ctx, store, progress)
}

// TestExportImport moves a store with keys in place to one with keys spread, and back.
func TestExportImport(t *testing.T) {
	from, err := pebblekv.Open(pebblekv.Config{Dir: "uids", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	want := filled(t, from, 20_000)
	dump := exported(t, from)
	to := simkv.New(simkv.Config{})
	sum, err := importDump(ctx, to, bytes.NewReader(dump), nil)
	if err != nil {
		t.Fatal(err)
	}
	if int(sum.Names) < len(want) || sum.PrefixBits != 14 || sum.Collections == 0 || sum.Sequences == 0 {
		t.Errorf("summary %+v", *sum)
	}
	checkStore(t, to, want)
	one, two := openOn(t, from, Config{}), openOn(t, to, Config{})
	if one.StoreID() != two.StoreID() || sum.StoreID != one.StoreID() {
		t.Errorf("store IDs %s, %s, %s", one.StoreID(), two.StoreID(), sum.StoreID)
	}
	if one.codec == two.codec {
		t.Error("both stores have the same layout")
	}
	if again := exported(t, to); string(again[len(dump)-200:]) == "" || len(again) != len(dump) {
		t.Errorf("the dump of the copy has %d bytes, that of the original %d", len(again), len(dump))
	}
	resolve(t, two, "did:web:after.com") // and it works
	checkStore(t, to, want)
	if again, err := importDump(ctx, to, bytes.NewReader(dump), nil); err != nil || *again != *sum {
		t.Errorf("import into a store that has it all: %v, summary %+v", err, again)
	}
	checkStore(t, to, want)
	if _, err := importDump(ctx, to, bytes.NewReader(exported(t, to)), nil); !errors.Is(err, errNotEmpty) || !strings.Contains(err.Error(), "store ID") {
		t.Errorf("import of a later dump: %v", err)
	}
}

// TestExportResumes cuts a dump at any place: the next export goes on and gives the same bytes.
func TestExportResumes(t *testing.T) {
	store := simkv.New(simkv.Config{})
	filled(t, store, 20_000)
	dump := exported(t, store)
	rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
	for _, at := range []int{0, 3, 30, len(dump), len(dump) - 1, len(dump) - 60, len(dump) / 2, rng.IntN(len(dump)-200) + 200, rng.IntN(len(dump)-200) + 200} {
		f := create(t, "dump")
		if _, err := f.Write(dump[:at]); err != nil {
			t.Fatal(err)
		}
		if at > 1000 { // the end of a file may be garbage after a crash, after a whole dump too
			if _, err := f.Write(make([]byte, 100)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Export(ctx, store, f, nil); err != nil {
			t.Fatalf("cut at %d of %d: %v", at, len(dump), err)
		}
		if got, _ := os.ReadFile(f.Name()); !bytes.Equal(got, dump) {
			t.Errorf("cut at %d: %d bytes instead of %d", at, len(got), len(dump))
		}
	}
	other := simkv.New(simkv.Config{})
	filled(t, other, 10)
	f := create(t, "dump")
	_, _ = f.Write(dump[:len(dump)/2])
	if _, err := Export(ctx, other, f, nil); err == nil {
		t.Error("an export of another store goes on with this one's dump")
	}
	for _, text := range []string{"x", "mrUIDs 1", strings.Repeat("x", 1000)} {
		f := create(t, "dump")
		_, _ = f.WriteString(text)
		if _, err := Export(ctx, store, f, nil); !errors.Is(err, errDump) {
			t.Errorf("export into a file that is no dump: %v", err)
		}
		if got, _ := os.ReadFile(f.Name()); string(got) != text {
			t.Errorf("the file that is no dump has %d bytes, not its %d", len(got), len(text))
		}
	}
	if _, err := Export(ctx, simkv.New(simkv.Config{}), create(t, "x"), nil); !errors.Is(err, ErrEmpty) {
		t.Errorf("export of an empty store: %v", err)
	}
}

// TestDumpIsReadUntilStopped: a signal ends the reading of a dump, which may take minutes, before
// an import and where an export goes on.
func TestDumpIsReadUntilStopped(t *testing.T) {
	store := simkv.New(simkv.Config{})
	filled(t, store, 500)
	dump := exported(t, store)
	stopped, stop := context.WithCancelCause(ctx)
	errSignal := errors.New("a signal")
	stop(errSignal)
	if _, err := CheckDump(stopped, bytes.NewReader(dump)); !errors.Is(err, errSignal) {
		t.Errorf("a check: %v", err)
	}
	header, err := storeHeader(ctx, store)
	if err != nil {
		t.Fatal(err)
	}
	f := create(t, "dump")
	_, _ = f.Write(dump)
	if _, err := (&exporter{store: store, header: header}).resume(stopped, f); !errors.Is(err, errSignal) {
		t.Errorf("an export: %v", err)
	}
	if got, _ := os.ReadFile(f.Name()); !bytes.Equal(got, dump) {
		t.Errorf("the dump has %d bytes, not its %d", len(got), len(dump))
	}
}

// TestVerifySeesWriters has Verify not call a store damaged that is written meanwhile.
func TestVerifySeesWriters(t *testing.T) {
	store := simkv.New(simkv.Config{})
	filled(t, store, 20_000)
	in := openOn(t, store, Config{})
	n := 0
	report, err := Verify(ctx, store, func(uint64) {
		n++
		resolve(t, in, fmt.Sprintf("did:web:late%d.com", n))
	})
	if n == 0 || !errors.Is(err, errWritten) {
		t.Errorf("after %d writes: %+v, %v", n, report, err)
	}
}

// TestExportSeesWriters checks that a store written meanwhile is not exported silently in part.
func TestExportSeesWriters(t *testing.T) {
	store := simkv.New(simkv.Config{})
	filled(t, store, 20_000)
	in := openOn(t, store, Config{})
	n := 0
	_, err := Export(ctx, store, create(t, "dump"), func(uint64) {
		n++
		resolve(t, in, fmt.Sprintf("did:web:late%d.com", n))
	})
	if !errors.Is(err, errWritten) {
		t.Errorf("got %v", err)
	}
}

var errKilled = errors.New("killed")

// TestImportResumes kills an import after every number of transactions: the store cannot be opened,
// and the next import finishes it.
func TestImportResumes(t *testing.T) {
	source := simkv.New(simkv.Config{})
	want := filled(t, source, 20_000)
	dump := exported(t, source)
	var totals []uint64 // transactions both imports took together
	for commits := 0; ; commits++ {
		store := simkv.New(simkv.Config{})
		left := commits
		killed := &hookedStore{Store: store, beforeCommit: func() error {
			if left--; left < 0 {
				return errKilled
			}
			return nil
		}}
		_, err := importDump(ctx, killed, bytes.NewReader(dump), nil)
		if err == nil {
			if commits < 4 {
				t.Errorf("an import took only %d transactions", commits)
			}
			break
		}
		if !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		if commits > 0 {
			if _, err := Open(ctx, Config{Store: store}); !errors.Is(err, ErrUnfinished) {
				t.Errorf("after %d transactions: open: %v", commits, err)
			}
			other := simkv.New(simkv.Config{})
			filled(t, other, 10)
			if _, err := importDump(ctx, store, bytes.NewReader(exported(t, other)), nil); !errors.Is(err, errNotEmpty) {
				t.Errorf("another dump into an unfinished import: %v", err)
			}
		}
		wrote := store.Stats().Committed
		if _, err := importDump(ctx, store, bytes.NewReader(dump), nil); err != nil {
			t.Fatal(err)
		}
		totals = append(totals, store.Stats().Committed)
		if last := totals[len(totals)-1]; last != totals[0] {
			t.Errorf("with an interruption after %d transactions it took %d, not %d", wrote, last, totals[0])
		}
		checkStore(t, store, want)
	}
}

// TestDamagedDump flips each of many bytes and cuts the dump at many places: nothing is imported.
func TestDamagedDump(t *testing.T) {
	source := simkv.New(simkv.Config{})
	filled(t, source, 500)
	dump := exported(t, source)
	for at := 0; at < len(dump); at += 1 + at/20 {
		for _, bad := range [][]byte{append(append(append([]byte(nil), dump[:at]...), dump[at]^0x20), dump[at+1:]...), dump[:at]} {
			if _, err := CheckDump(ctx, bytes.NewReader(bad)); err == nil {
				t.Fatalf("damage at byte %d of %d is not seen", at, len(dump))
			}
		}
	}
	store := simkv.New(simkv.Config{})
	if _, err := importDump(ctx, store, bytes.NewReader(dump[:len(dump)-1]), nil); !errors.Is(err, errDump) {
		t.Errorf("import: %v", err)
	}
	if n := store.Stats().Committed; n != 0 {
		t.Errorf("%d transactions of a damaged dump", n)
	}
	if _, err := CheckDump(ctx, bytes.NewReader(slices.Concat(dump, dump))); !errors.Is(err, errDump) {
		t.Errorf("two dumps in one: %v", err)
	}
}

// TestDumpRefuses: a dump whose checksums hold and whose contents cannot be is refused, by what is
// wrong.
func TestDumpRefuses(t *testing.T) {
	source := simkv.New(simkv.Config{})
	filled(t, source, 300)
	dump := exported(t, source)
	var whole []segment
	r := newDumpReader(bytes.NewReader(dump))
	if err := r.open(); err != nil {
		t.Fatal(err)
	}
	header := r.header
	for s, err := r.segment(); err == nil; s, err = r.segment() {
		whole = append(whole, segment{s.kind, bytes.Clone(s.payload)})
	}
	whole = whole[:len(whole)-1] // without its end
	write := func(header []byte, segments []segment, counts dumpCounts) []byte {
		var b bytes.Buffer
		w := &dumpWriter{w: bufio.NewWriter(&b), sum: sha256.New(), counts: counts}
		err := w.write([]byte(dumpMagic))
		for _, s := range append([]segment{{segHeader, header}}, segments...) {
			err = errors.Join(err, w.segment(s))
		}
		if err = errors.Join(err, w.end()); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	h := header.appendTo(nil)
	if !bytes.Equal(write(h, whole, r.counts), dump) {
		t.Fatal("the dump is not written as it was")
	}
	type change struct {
		name     string
		header   []byte
		segments []segment
		counts   dumpCounts
		says     string
	}
	names, collections, sequences := r.counts, r.counts, r.counts
	names.names++
	collections.collections--
	sequences.sequences++
	changes := []change{
		{"names", h, whole, names, "its end states"},
		{"collections", h, whole, collections, "its end states"},
		{"sequences", h, whole, sequences, "its end states"},
		{"nothing", h, nil, r.counts, "its end states"},
		{"a longer header", append(bytes.Clone(h), 0), whole, r.counts, "header"},
		{"a second header", h, append([]segment{{segHeader, h}}, whole...), r.counts, "segment 'H' after 'H'"},
		{"another kind", h, append([]segment{{'X', nil}}, whole...), r.counts, "segment 'X' after 'H'"},
		{"collections last", h, append(slices.Clone(whole[1:]), whole[0]), r.counts, "segment 'C' after 'S'"},
	}
	for n := range h {
		changes = append(changes, change{fmt.Sprintf("a header of %d bytes", n), h[:n], whole, r.counts, ""})
	}
	for i, s := range whole {
		longer := slices.Clone(whole)
		longer[i].payload = append(bytes.Clone(s.payload), 1)
		changes = append(changes, change{fmt.Sprintf("a longer segment %q", s.kind), h, longer, r.counts, ""})
		if s.kind == segUIDs {
			twice := slices.Insert(slices.Clone(whole), i, s)
			changes = append(changes, change{"UIDs twice", h, twice, r.counts, "order of UIDs"})
		}
	}
	for _, c := range changes {
		_, err := CheckDump(ctx, bytes.NewReader(write(c.header, c.segments, c.counts)))
		if !errors.Is(err, errDump) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestSkipAhead restores an old copy: what was given out since is not given out again, in sequences
// that the copy knows and in others.
func TestSkipAhead(t *testing.T) {
	store := simkv.New(simkv.Config{})
	want := filled(t, store, 2000)
	dump := exported(t, store)
	since := make(map[uint64]string) // given out after the copy
	for seed := range uint64(8) {    // in many sequences
		in := openOn(t, store, Config{Workers: 4, Seed: seed + 1})
		for i := range 50 {
			s := fmt.Sprintf("did:web:since%d.%d.com", seed, i)
			since[resolve(t, in, s)[0]] = s
		}
		_ = in.Close()
	}
	for _, skip := range []bool{false, true} {
		restored := simkv.New(simkv.Config{})
		if _, err := importDump(ctx, restored, bytes.NewReader(dump), nil); err != nil {
			t.Fatal(err)
		}
		if skip {
			if n, err := SkipAhead(ctx, restored, 1000); err != nil || n == 0 {
				t.Fatalf("%d counters raised: %v", n, err)
			}
		}
		reused := 0
		for seed := range uint64(8) {
			in := openOn(t, restored, Config{Workers: 4, Seed: seed + 1}) // the same sequences
			for i := range 50 {
				if s := fmt.Sprintf("did:web:other%d.%d.com", seed, i); since[resolve(t, in, s)[0]] != "" {
					reused++
				}
			}
			_ = in.Close()
		}
		if skip && reused > 0 || !skip && reused == 0 {
			t.Errorf("skip ahead %v: %d UIDs were given out again", skip, reused)
		}
		checkStore(t, restored, want)
	}
	var h header
	err := kv.Run(ctx, store, func(txn kv.Txn) (err error) {
		h, err = loadHeader(ctx, txn)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint64{0, h.maxN()/4 + 1, 1 << 60} {
		if _, err := SkipAhead(ctx, store, n); err == nil {
			t.Errorf("skipping %d is accepted", n)
		}
	}
	if _, err := SkipAhead(ctx, simkv.New(simkv.Config{}), 10); !errors.Is(err, ErrEmpty) {
		t.Errorf("empty store: %v", err)
	}
}

// TestSkipRestored restores one copy twice: what the first server gave out since, the second one
// does not.
func TestSkipRestored(t *testing.T) {
	for _, bits := range []int{1, DefaultPrefixBits, 24} {
		store := simkv.New(simkv.Config{})
		_ = openOn(t, store, Config{PrefixBits: bits}).Close()
		dump := exported(t, store)
		given := make(map[uint64]time.Duration)
		for _, age := range []time.Duration{time.Second, 2 * time.Second, 8 * 365 * 24 * time.Hour} {
			restored := simkv.New(simkv.Config{})
			if _, err := importDump(ctx, restored, bytes.NewReader(dump), nil); err != nil {
				t.Fatal(err)
			}
			if _, _, err := SkipRestored(ctx, restored, age); err != nil {
				t.Fatalf("%d prefix bits, %v: %v", bits, age, err)
			}
			in := openOn(t, restored, Config{Seed: 1})
			for i := range 500 {
				uid := resolve(t, in, fmt.Sprintf("did:web:%d.%d.com", age, i))[0]
				if was, ok := given[uid]; ok {
					t.Fatalf("%d prefix bits: UID %d is given out after %v and after %v", bits, uid, was, age)
				}
				given[uid] = age
			}
			_ = in.Close()
		}
	}
}

// TestSkipCopy is that of a copy whose age is unknown: the time of the restore tells two apart.
func TestSkipCopy(t *testing.T) {
	for _, bits := range []int{1, DefaultPrefixBits, 24, 30, maxPrefixBits} {
		store := simkv.New(simkv.Config{})
		_ = openOn(t, store, Config{PrefixBits: bits}).Close()
		dump := exported(t, store)
		base, perDay := uint64(DefaultSkip), uint64(1<<20)
		if bits > 24 { // a sequence is short
			base, perDay = 1<<29-1, 1<<12
		}
		var last uint64
		for _, day := range []int{-400, 0, 1, 2, 30_000} {
			restored := simkv.New(simkv.Config{})
			if _, err := importDump(ctx, restored, bytes.NewReader(dump), nil); err != nil {
				t.Fatal(err)
			}
			n, _, err := SkipCopy(ctx, restored, time.Unix(copyEpoch, 0).AddDate(0, 0, day))
			if least := last + perDay; err != nil || day > 0 && n < least || n < base {
				t.Errorf("%d prefix bits, day %d: %d are skipped, want %d at least: %v", bits, day, n, least, err)
			}
			last = n
		}
	}
}

func TestSkipOf(t *testing.T) {
	const limit = 1<<48 - 1 // of DefaultPrefixBits
	for age, want := range map[time.Duration]uint64{
		-time.Hour: DefaultSkip, 0: DefaultSkip, time.Second: DefaultSkip + 1<<20, time.Hour: DefaultSkip + 3600<<20,
	} {
		if got := skipOf(0, age, limit); got != want {
			t.Errorf("skipOf(%v) = %d, want %d", age, got, want)
		}
	}
}

// TestVerifyFinds breaks a store in each way that Verify promises to find.
func TestVerifyFinds(t *testing.T) {
	did := appendDIDKey(nil, []byte("did:web:1.com"))
	for name, damage := range map[string]func(kv.Txn, codec, uint64){
		"counter too low": func(txn kv.Txn, c codec, uid uint64) {
			s, _ := c.split(uid)
			txn.Set(appendSequenceKey(nil, s), appendNumber(1))
		},
		"counter gone":       func(txn kv.Txn, c codec, uid uint64) { s, _ := c.split(uid); txn.Clear(appendSequenceKey(nil, s)) },
		"key gone":           func(txn kv.Txn, c codec, uid uint64) { txn.Clear(did) },
		"key with other UID": func(txn kv.Txn, c codec, uid uint64) { txn.Set(did, c.appendUID(nil, uid+1)) },
		"key too many": func(txn kv.Txn, c codec, uid uint64) {
			txn.Set(appendDIDKey(nil, []byte("did:web:2.com")), c.appendUID(nil, uid))
		},
		"garbage key": func(txn kv.Txn, c codec, uid uint64) { txn.Set([]byte{tagNames, 1, 2}, c.appendUID(nil, uid)) },
		"chunk gone":  func(txn kv.Txn, c codec, uid uint64) { txn.Clear(appendUIDKey(nil, uid)) },
		"chunk twice": func(txn kv.Txn, c codec, uid uint64) {
			var w chunkWriter
			w.add(c, 1, &entry{form: formDID, text: []byte("web:1.com")})
			txn.Set(appendUIDKey(nil, uid+1), w.appendTo(nil))
		},
		"collection gone":    func(txn kv.Txn, c codec, uid uint64) { txn.Clear(appendCollNumberKey(nil, 1)) },
		"collection renamed": func(txn kv.Txn, c codec, uid uint64) { txn.Set(appendCollNumberKey(nil, 1), []byte("x.y.z")) },
		"collection counter": func(txn kv.Txn, c codec, uid uint64) { txn.Clear([]byte(keyCollections)) },
		"authority not a DID": func(txn kv.Txn, c codec, uid uint64) {
			var w chunkWriter
			w.add(c, 1, &entry{form: formHandle, text: []byte("jo.hn")})
			txn.Set(appendUIDKey(nil, uid), w.appendTo(nil))
		},
	} {
		store := simkv.New(simkv.Config{})
		in := openOn(t, store, Config{Workers: 1})
		uid := resolve(t, in, "did:web:1.com")[0]
		resolve(t, in, "at://did:web:1.com/a.b.c/x", "at://did:web:1.com/a.b.c")
		checkStore(t, store, nil)
		if err := kv.Run(ctx, store, func(txn kv.Txn) error { damage(txn, in.codec, uid); return nil }); err != nil {
			t.Fatal(err)
		}
		var seen uint64
		report, err := Verify(ctx, store, func(n uint64) { seen = n })
		if err != nil || report.Sound() || len(report.Examples) == 0 || seen > 0 {
			t.Errorf("%s: %+v, %v", name, report, err)
		}
		if found := strings.Contains(strings.Join(report.Examples, "; "), "is not a DID"); found != (name == "authority not a DID" || name == "chunk gone") {
			t.Errorf("%s: %+v", name, report)
		}
	}
}

// TestSkipAheadStopsAtTheEnd: a counter that would pass the end of its sequence stops there.
func TestSkipAheadStopsAtTheEnd(t *testing.T) {
	store := simkv.New(simkv.Config{})
	filled(t, store, 10)
	h := codec{}
	lasts := []uint64{0, 0, 0, 0}
	err := kv.Run(ctx, store, func(txn kv.Txn) error {
		header, err := loadHeader(ctx, txn)
		h = header.codec
		lasts = []uint64{h.maxN() - 2000, h.maxN() - 1000, h.maxN() - 5, h.maxN()}
		for s, last := range lasts {
			txn.Set(appendSequenceKey(nil, uint32(s)), appendNumber(last))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := SkipAhead(ctx, store, 1000); err != nil {
		t.Fatal(err)
	}
	err = kv.Run(ctx, store, func(txn kv.Txn) error {
		value := make([][]byte, 1)
		for s, last := range lasts {
			if err := txn.Get(ctx, [][]byte{appendSequenceKey(nil, uint32(s))}, value); err != nil {
				return err
			}
			if got, err := number(value[0]); err != nil || got != min(last+1000, h.maxN()) {
				t.Errorf("a counter at %d becomes %d (%v); the last is %d", last, got, err, h.maxN())
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
