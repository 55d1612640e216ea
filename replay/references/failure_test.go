package references

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"golang.org/x/sync/errgroup"

	"millrace/intern/kv/pebbleguard"
)

var errDisk = errors.New("the disk said no")

// TestFailedDisk: a write or a sync that fails, and a table that cannot be made, end the store: it
// says why, takes nothing more, and closes. What was flushed is there after a restart.
func TestFailedDisk(t *testing.T) {
	for name, fails := range map[string]func(op errorfs.Op) bool{
		"write": func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileWrite },
		"sync":  func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData },
		"table": func(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".sst") && op.Kind == errorfs.OpCreate },
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			var armed atomic.Bool
			s := openTest(t, Config{FS: errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
				if armed.Load() && fails(op) {
					return errDisk
				}
				return nil
			}))})
			do(t, s, 1, Change{Operation: Import, Account: 1, Rev: 1}, like(1, 10, 1, 100))
			if _, err := s.Flush(); err != nil {
				t.Fatal(err)
			}
			do(t, s, 5, Change{Operation: Purge, Account: 2, Rev: 1}, like(1, 11, 2, 100))
			armed.Store(true)
			if at, err := s.Flush(); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), errDisk.Error()) || at != (Position{}) {
				t.Errorf("flush: %v, %v", at, err)
			}
			select {
			case <-s.Failed():
			case <-time.After(patience):
				t.Fatal("nothing is reported")
			}
			if err := s.Err(); !strings.Contains(err.Error(), errDisk.Error()) || !strings.Contains(err.Error(), "check the disk") {
				t.Errorf("failure: %v", err)
			}
			crashed := fs.CrashClone(vfs.CrashCloneCfg{})
			armed.Store(false)
			if err := s.Hydrate(t.Context(), &Batch{Position: Position{Epoch: 1, Seq: 99}}); !errors.Is(err, ErrFailed) {
				t.Errorf("hydrate after it: %v", err)
			}
			if err := s.Run(t.Context()); !errors.Is(err, ErrFailed) {
				t.Errorf("run after it: %v", err)
			}
			if err := s.Close(); !errors.Is(err, ErrFailed) {
				t.Errorf("close: %v", err)
			}
			again := openTest(t, Config{FS: crashed})
			if got := rows(t, again); !slices.Equal(got, []uint64{10}) {
				t.Errorf("rows %v", got)
			}
		})
	}
}

// TestRefusedStores: a directory that is not a sound store of this kind is refused and stays as it
// is.
func TestRefusedStores(t *testing.T) {
	make := func(t *testing.T) *vfs.MemFS {
		fs := vfs.NewMem()
		s := openTest(t, Config{FS: fs, PrefixBits: 13})
		do(t, s, 1, like(1, 10, 1, 100))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return fs
	}
	set := func(t *testing.T, fs vfs.FS, name string, value []byte) {
		cfg := Config{Dir: "refs", FS: fs}.withDefaults()
		db, err := cfg.openGuard()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Pebble().Set(metaKey(name), value, pebble.NoSync), db.Flush(), db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(t *testing.T, fs vfs.FS, prefix, suffix string) {
		names, _ := fs.List("refs")
		for _, name := range names {
			if strings.HasPrefix(name, prefix) && strings.HasSuffix(name, suffix) {
				if err := fs.Remove("refs/" + name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for name, tc := range map[string]struct {
		harm func(t *testing.T, fs vfs.FS)
		cfg  Config
		want string
		is   error
	}{
		"marker":      {harm: func(t *testing.T, fs vfs.FS) { remove(t, fs, "marker.manifest", "") }, want: "copy the directory again"},
		"table":       {harm: func(t *testing.T, fs vfs.FS) { remove(t, fs, "", ".sst") }, want: "missing"},
		"prefix bits": {cfg: Config{PrefixBits: 14}, is: errPrefixBits},
		"version":     {harm: func(t *testing.T, fs vfs.FS) { set(t, fs, metaFormat, []byte{0, 0, 0, version + 1}) }, is: ErrNewerFormat},
		"no version":  {harm: func(t *testing.T, fs vfs.FS) { set(t, fs, metaFormat, []byte{0, 0, 0, 0, 14}) }, want: "the reference store is damaged"},
		"format":      {harm: func(t *testing.T, fs vfs.FS) { set(t, fs, metaFormat, []byte{0, 0, 0, 1}) }, want: "the reference store is damaged"},
		"state":       {harm: func(t *testing.T, fs vfs.FS) { set(t, fs, metaState, []byte{1}) }, want: "the reference store is damaged"},
		"generation":  {harm: func(t *testing.T, fs vfs.FS) { set(t, fs, metaGeneration, []byte{1}) }, want: "the reference store is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			fs := make(t)
			if tc.harm != nil {
				tc.harm(t, fs)
			}
			before, _ := fs.List("refs")
			tc.cfg.Dir, tc.cfg.FS = "refs", fs
			s, err := Open(tc.cfg)
			if err == nil {
				_ = s.Close()
				t.Fatal("it opens")
			}
			if tc.is != nil && !errors.Is(err, tc.is) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error: %v", err)
			}
			if after, _ := fs.List("refs"); name == "marker" && len(after) != len(before) {
				t.Errorf("files %v, then %v", before, after)
			}
		})
	}
	if _, err := Open(Config{Dir: "refs", FS: vfs.NewMem(), ReadOnly: true}); !errors.Is(err, errNoStore) {
		t.Errorf("no store: %v", err)
	}
}

// TestReadOnly: nothing changes, and what would change something is refused.
func TestReadOnly(t *testing.T) {
	fs := vfs.NewMem()
	s := openTest(t, Config{FS: fs})
	do(t, s, 1, like(1, 10, 1, 100))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, _ := fs.List("refs")
	r := openTest(t, Config{FS: fs, ReadOnly: true})
	if got := rows(t, r); !slices.Equal(got, []uint64{10}) {
		t.Errorf("rows %v", got)
	}
	if err := r.Hydrate(t.Context(), &Batch{Position: Position{Epoch: 1, Seq: 9}}); !errors.Is(err, errReadOnly) {
		t.Errorf("hydrate: %v", err)
	}
	if err := r.Begin("", Position{}); !errors.Is(err, errReadOnly) {
		t.Errorf("begin: %v", err)
	}
	if err := r.Run(t.Context()); !errors.Is(err, errReadOnly) {
		t.Errorf("run: %v", err)
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	after, _ := fs.List("refs")
	slices.Sort(before)
	slices.Sort(after)
	if !slices.Equal(before, after) {
		t.Errorf("files %v, then %v", before, after)
	}
}

// fill writes so many rows that the store has tables.
func fill(t *testing.T, s *Store, n int) {
	t.Helper()
	var changes []Change
	for i := range uint64(n) {
		changes = append(changes, like(1+i%7, 10+i, 1+i, i*i*977+100))
	}
	do(t, s, 1, changes...)
}

// TestDamagedTable: a flipped bit in a table ends the store when it is read, and Verify reads on
// after it.
func TestDamagedTable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "refs")
	s := openTest(t, Config{Dir: dir, FS: vfs.Default})
	fill(t, s, 20_000)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatal(tables, err)
	}
	b, err := os.ReadFile(tables[len(tables)-1])
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	if err := os.WriteFile(tables[len(tables)-1], b, 0o644); err != nil {
		t.Fatal(err)
	}
	r := openTest(t, Config{Dir: dir, FS: vfs.Default, ReadOnly: true, KeepGoing: true})
	report, err := r.Verify(t.Context(), nil)
	if err != nil || report.Sound() || !strings.Contains(report.Examples[0], filepath.Base(tables[len(tables)-1])) {
		t.Errorf("verify: %+v, %v", report, err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, Config{Dir: dir, FS: vfs.Default})
	var deletes []Change
	for i := range uint64(20_000) {
		deletes = append(deletes, unlike(1+i%7, 10+i, 100_000+i))
	}
	for i := range deletes {
		deletes[i].Seq = 50_000 + int64(i)
	}
	err = s.Hydrate(t.Context(), &Batch{Position: Position{Epoch: 1, Seq: 90_000}, Changes: deletes})
	var damage *pebbleguard.CorruptionError
	if !errors.Is(err, ErrFailed) || !errors.As(err, &damage) || damage.Store != "reference store" {
		t.Errorf("hydrate: %v", err)
	}
	select {
	case <-s.Failed():
	case <-time.After(patience):
		t.Error("nothing is reported")
	}
}

// TestVerifyFindsProblems: each kind of damage is a problem; a value that cannot be decoded ends a
// store that reads it.
func TestVerifyFindsProblems(t *testing.T) {
	c := UIDCodec{defaultPrefixBits}
	row := func(account, record, arrival uint64) (key, value []byte) {
		return c.recordKey(recordID{account, record}), c.appendRow(nil, account, arrival, nil)
	}
	key1, value1 := row(1, 10, 1)
	orphan, orphanValue := row(3, 10, 1)
	late, lateValue := row(1, 12, 2)
	low, lowValue := row(2, 10, 1)
	for name, tc := range map[string]struct {
		key, value []byte
		want       string
	}{
		"cut row":         {key1, value1[:0], "cut short"},
		"row with more":   {key1, append(value1[:len(value1):len(value1)], 1), "cut short"},
		"cut key":         {key1[:len(key1)-1], value1, "cut short"},
		"no account":      {orphan, orphanValue, errAbsent.Error()},
		"arrival":         {late, lateValue, "is above the last, 1"},
		"below the floor": {low, lowValue, "no sweep is recorded"},
		"account":         {c.accountKey(rangeAccount, 1), []byte{1}, "cut short"},
		"floor":           {c.accountKey(rangeAccount, 1), appendAccount(nil, &accountState{floor: 9}), "floor 9"},
		"sweep":           {c.accountKey(rangeSweep, 1), []byte{1}, "row of another account"},
		"purged":          {c.accountKey(rangePurged, 1), []byte{1}, "cut short"},
		"meta":            {metaKey("what"), nil, "unknown name of a meta value"},
		"range":           {[]byte{0x0f}, nil, "the range, is unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			s := openTest(t, Config{})
			do(t, s, 1, like(1, 10, 1, 100), Change{Operation: DeleteAccount, Account: 2, TimeUS: 1})
			if _, err := s.sweep(); err != nil {
				t.Fatal(err)
			}
			if report, err := s.Verify(t.Context(), nil); err != nil || !report.Sound() {
				t.Fatalf("before: %+v, %v", report, err)
			}
			if err := s.db.Pebble().Set(tc.key, tc.value, pebble.NoSync); err != nil {
				t.Fatal(err)
			}
			report, err := s.Verify(t.Context(), nil)
			if err != nil || report.Problems == 0 || !strings.Contains(strings.Join(report.Examples, " "), tc.want) {
				t.Errorf("verify: %+v, %v", report, err)
			}
		})
	}
	s := openTest(t, Config{})
	do(t, s, 1, like(1, 10, 1, 100))
	if err := s.db.Pebble().Set(key1, []byte{1, 1}, pebble.NoSync); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Rows(t.Context(), func(*Row) error { return nil }); err == nil {
		t.Error("rows are read")
	}
	delete := unlike(1, 10, 2)
	delete.Seq = 9
	err := s.Hydrate(t.Context(), &Batch{Position: Position{Epoch: 1, Seq: 9}, Changes: []Change{delete}})
	if !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), advice) {
		t.Errorf("hydrate: %v", err)
	}
}

// TestCrashDuringFlush: whenever a crash comes, the store is where it was after a batch, and not
// before what was flushed.
func TestCrashDuringFlush(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 5))
	for range 30 {
		fs := vfs.NewCrashableMem()
		s := openTest(t, Config{FS: fs, PebbleBytes: minPebbleBytes})
		fill(t, s, 100)
		before, flushed := s.Position(), rng.IntN(2) == 0
		if flushed {
			if _, err := s.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		b := hydrate(t, s, 500, unlike(1, 10, 1000), like(2, 500, 1000, 4), like(3, 500, 1000, 4), Change{Operation: Purge, Account: 3, Rev: 1})
		pictures := make(chan *vfs.MemFS, 1)
		yields := rng.IntN(300)
		cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rand.New(rand.NewPCG(rng.Uint64(), 6))}
		go func() {
			for range yields {
				runtime.Gosched()
			}
			pictures <- fs.CrashClone(cfg)
		}()
		apply(t, s, b)
		if _, err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		again := openTest(t, Config{FS: <-pictures})
		n, at := len(rows(t, again)), again.Position()
		switch {
		case at == b.Position && n == len(rows(t, s)):
		case at == before && n == 100:
		case at == (Position{Epoch: 1}) && n == 0 && !flushed:
		default:
			t.Fatalf("after a crash: %d rows at %v", n, at)
		}
		if report, err := again.Verify(t.Context(), nil); err != nil || !report.Sound() {
			t.Fatalf("verify: %+v, %v", report, err)
		}
	}
}

// TestFlushedIsDurable: a crash takes back neither a generation that was begun, nor what was
// flushed, if that is only a delete, which has no arrival number.
func TestFlushedIsDurable(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := openTest(t, Config{FS: fs})
	crashed := func(at Position) {
		t.Helper()
		again, err := Open(Config{Dir: "refs", FS: fs.CrashClone(vfs.CrashCloneCfg{})})
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		if number, is := again.Generation().Number, again.Position(); number != 1 || is != at {
			t.Errorf("generation %d at %v, want the first at %v", number, is, at)
		}
	}
	crashed(Position{Epoch: 1})
	for i, change := range []Change{like(1, 10, 5, 100), unlike(1, 10, 6)} {
		do(t, s, int64(1+2*i), change)
		if _, err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		crashed(s.Position())
	}
}

// TestCheckpoint: a copy has what was applied before, whatever else a crash takes back.
func TestCheckpoint(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s := openTest(t, Config{FS: fs})
	do(t, s, 1, like(1, 10, 1, 100))
	if err := s.Checkpoint("copy"); err != nil {
		t.Fatal(err)
	}
	do(t, s, 5, like(1, 11, 2, 100))
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	for _, dir := range []string{"refs", "copy"} {
		if got := rows(t, openTest(t, Config{Dir: dir, FS: crashed})); !slices.Equal(got, []uint64{10}) {
			t.Errorf("%s has rows %v", dir, got)
		}
	}
}

// TestWriteAheadLog: what an older version left in its write-ahead log, which this one does not
// write, is in the store, and durable once the store was opened.
func TestWriteAheadLog(t *testing.T) {
	fs := vfs.NewCrashableMem()
	cfg := Config{Dir: "refs", FS: fs}
	s := openTest(t, cfg)
	fill(t, s, 100)
	b := hydrate(t, s, 500, like(2, 500, 1000, 4))
	batch := s.db.Pebble().NewBatch()
	if err := errors.Join(s.stage(batch, b.pending), s.Close()); err != nil {
		t.Fatal(err)
	}
	o := cfg.withDefaults()
	options := o.options()
	options.FS, options.DisableWAL = fs, false
	old, err := pebble.Open(cfg.Dir, options)
	if err != nil {
		t.Fatal(err)
	}
	again := old.NewBatch()
	if err := errors.Join(again.SetRepr(slices.Clone(batch.Repr())), old.Apply(again, pebble.Sync)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		cfg.FS = fs.CrashClone(vfs.CrashCloneCfg{})
		s := openTest(t, cfg)
		if n, at := len(rows(t, s)), s.Position(); n != 101 || at != b.Position {
			t.Errorf("%d rows at %v", n, at)
		}
		fs = cfg.FS.(*vfs.MemFS)
	}
	if err := old.Close(); err != nil {
		t.Error(err)
	}
}

// TestConcurrent hydrates, applies, sweeps and reads at once; what is filled in is the model's.
func TestConcurrent(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := &modelWorld{t: t, rng: rand.New(rand.NewPCG(seed, 7)), m: newModel(), at: Position{Epoch: 1}, clock: 1, paths: 40, subjects: 100_000_000,
		known: make(map[recordID]bool)}
	w.cfg = Config{PrefixBits: 14, PebbleBytes: minPebbleBytes, OverlayBytes: 4000, AccountBytes: 10_000}
	w.cfg.hooks.sweepRows = 3
	idle := make(chan struct{}, 1)
	w.cfg.hooks.idle = func() { signal(idle) }
	w.store = openTest(t, w.cfg)
	w.oneGeneration = true
	for range 600 {
		w.more()
	}
	hydrated := make(chan *Batch, len(w.log))
	var g, background errgroup.Group
	g.Go(func() error {
		defer close(hydrated)
		for i := range w.log {
			w.batches = nil
			w.hydrated = i
			w.hydrate()
			hydrated <- w.batches[0]
		}
		return nil
	})
	g.Go(func() error {
		for b := range hydrated {
			if err := w.store.Apply(b); err != nil {
				return err
			}
		}
		return nil
	})
	stop := make(chan struct{})
	background.Go(func() error {
		for {
			select {
			case <-stop:
				return nil
			default:
			}
			before := w.store.Position()
			at, err := w.store.Rows(t.Context(), func(*Row) error { return nil })
			if err != nil || at.Before(before) {
				return fmt.Errorf("rows at %v, after %v: %w", at, before, err)
			}
		}
	})
	background.Go(func() error {
		for {
			more, err := w.store.sweep()
			if err != nil {
				return err
			}
			select {
			case <-stop:
				if !more {
					return nil
				}
			default:
			}
		}
	})
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	close(stop)
	if err := background.Wait(); err != nil {
		t.Error(err)
	}
	w.m.generation = 1
	w.end()
}

// TestCheckpointClosed: a closed store makes no copy, and Close waits for one that is under way.
func TestCheckpointClosed(t *testing.T) {
	var s *Store
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if strings.HasPrefix(op.Path, "copy/") && s.using.TryLock() {
			t.Error("Close does not wait for a copy")
			s.using.Unlock()
		}
		return nil
	}))
	s = openTest(t, Config{Dir: "refs", FS: fs})
	if err := s.Checkpoint("copy"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Checkpoint("late"); !errors.Is(err, errClosed) {
		t.Errorf("a copy of a closed store: %v", err)
	}
}

// TestViewClosed: Close waits for views. A closed store gives none, and a question does no harm.
func TestViewClosed(t *testing.T) {
	s := openTest(t, Config{Links: LinksOn})
	v, err := s.View()
	if err != nil {
		t.Fatal(err)
	}
	if s.using.TryLock() {
		t.Error("Close does not wait for a view")
		s.using.Unlock()
	}
	if err := errors.Join(v.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	_, viewErr := s.View()
	if _, err := s.FractionBefore(1); !errors.Is(err, errClosed) || !errors.Is(viewErr, errClosed) {
		t.Errorf("after Close: %v, %v", viewErr, err)
	}
	if n := s.diskBytes(); n != 0 || s.Err() != nil {
		t.Errorf("after Close it has %v bytes, and has failed: %v", n, s.Err())
	}
}
