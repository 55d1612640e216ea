package pebblekv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/consume/relaysim/testwait"
	"millrace/intern/kv"
	"millrace/intern/kv/kvtest"
)

func open(t *testing.T, fs vfs.FS) *Store {
	t.Helper()
	s, err := Open(Config{Dir: "uids", FS: fs, MemTableBytes: 8 << 20, CacheBytes: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestStore(t *testing.T) {
	kvtest.Run(t, func(t *testing.T) kv.Store {
		s := open(t, vfs.NewMem())
		return s
	})
}

func TestOneProcess(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Dir: dir}); err == nil {
		t.Error("a second Open of one directory succeeded")
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Errorf("close twice: %v", err)
	}
	if _, err := s.Begin(context.Background()); !errors.Is(err, kv.ErrClosed) {
		t.Errorf("begin after close: %v", err)
	}
}

func TestConfig(t *testing.T) {
	for field, cfg := range map[string]Config{
		"Dir": {}, "CacheBytes": {Dir: "d", CacheBytes: -1}, "MemTableBytes": {Dir: "d", MemTableBytes: -1}, "MaxOpenFiles": {Dir: "d", MaxOpenFiles: -1},
	} {
		cfg.FS = vfs.NewMem()
		if _, err := Open(cfg); err == nil || !strings.HasPrefix(err.Error(), "pebblekv: field "+field+": ") {
			t.Errorf("field %s: %v", field, err)
		}
	}
	want := Config{CacheBytes: 1, MaxOpenFiles: 2, MemTableBytes: 3}
	if got := want.withDefaults(); got != want {
		t.Errorf("what was set became %+v", got)
	}
}

// TestCrash lets workers raise counters and kills the machine at a random moment. What was reported
// committed is there, and what one transaction wrote is there whole.
func TestCrash(t *testing.T) {
	for round := range 8 {
		seed := rand.Uint64()
		fs := vfs.NewCrashableMem()
		s, err := Open(Config{Dir: "uids", FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		const workers = 4
		committed := make([]uint64, workers) // the number that each worker's last commit wrote
		var mu sync.Mutex
		var wg sync.WaitGroup
		crash := make(chan struct{})
		for w := range workers {
			wg.Go(func() {
				a, b := fmt.Appendf(nil, "a%d", w), fmt.Appendf(nil, "b%d", w)
				for n := uint64(1); ; n++ {
					select {
					case <-crash:
						return
					default:
					}
					err := kv.Once(context.Background(), s, func(txn kv.Txn) error {
						txn.Set(a, fmt.Appendf(nil, "%d", n))
						txn.Set(b, fmt.Appendf(nil, "%d", n))
						return nil
					})
					if err != nil {
						t.Errorf("seed %d: %v", seed, err)
						return
					}
					mu.Lock()
					committed[w] = n
					mu.Unlock()
				}
			})
		}
		// Wait for a random amount of work, then clone while the workers go on.
		target := uint64(rand.N(200))
		testwait.Eventually(t, time.Minute, "enough work", func() bool { mu.Lock(); defer mu.Unlock(); return committed[0] >= target })
		mu.Lock()
		least := append([]uint64(nil), committed...)
		mu.Unlock()
		clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 25 * (round % 4), RNG: rand.New(rand.NewPCG(seed, 1))})
		close(crash)
		wg.Wait()
		_ = s.Close()

		after := open(t, clone)
		err = kv.Once(context.Background(), after, func(txn kv.Txn) error {
			for w := range workers {
				values := make([][]byte, 2)
				if err := txn.Get(context.Background(), [][]byte{fmt.Appendf(nil, "a%d", w), fmt.Appendf(nil, "b%d", w)}, values); err != nil {
					return err
				}
				var n uint64
				_, _ = fmt.Sscan(string(values[0]), &n)
				if string(values[0]) != string(values[1]) || n < least[w] {
					t.Errorf("seed %d: worker %d has %q and %q, and reported %d", seed, w, values[0], values[1], least[w])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadsAreDurable reads what others write and crashes: whatever a committed transaction has
// read is there, also when it wrote nothing itself.
func TestReadsAreDurable(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s, err := Open(Config{Dir: "uids", FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("n")
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := kv.Once(context.Background(), s, func(txn kv.Txn) error { txn.Set(key, fmt.Appendf(nil, "%d", n)); return nil }); err != nil {
				t.Error(err)
				return
			}
		}
	})
	read := func(s *Store) (n int) {
		err := kv.Once(context.Background(), s, func(txn kv.Txn) error {
			value := make([][]byte, 1)
			err := txn.Get(context.Background(), [][]byte{key}, value)
			_, _ = fmt.Sscan(string(value[0]), &n)
			return err
		})
		if err != nil {
			t.Error(err)
		}
		return n
	}
	for range 30 {
		seen := read(s)
		clone := fs.CrashClone(vfs.CrashCloneCfg{})
		after, err := Open(Config{Dir: "uids", FS: clone})
		if err != nil {
			t.Fatal(err)
		}
		if n := read(after); n < seen {
			t.Errorf("read %d, but after a crash there is %d", seen, n)
		}
		_ = after.Close()
	}
	close(stop)
	wg.Wait()
	_ = s.Close()
}

// TestReadsOfLostWrites reads while a write is visible and not durable, and its sync fails: the
// transaction may not end well.
func TestReadsOfLostWrites(t *testing.T) {
	s, err := Open(Config{Dir: "uids", FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	txn, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	version, _, err := s.tracker.admit(0, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.tracker.shown(version)
	if err := txn.Get(t.Context(), [][]byte{[]byte("n")}, make([][]byte, 1)); err != nil {
		t.Fatal(err)
	}
	lost := errors.New("the sync failed")
	s.tracker.fail(lost)
	if err := txn.Commit(t.Context()); !errors.Is(err, lost) {
		t.Errorf("a transaction that read a lost write ends with %v", err)
	}
	txn.Close()
	_ = s.Close()
}

// TestTracker checks the conflicts that it may not miss, over more keys than it remembers.
func TestTracker(t *testing.T) {
	tr := newTracker()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	written := make(map[uint64]uint64) // key -> version
	var admitted, refused, needless int
	for range 3000 {
		began := tr.visible - min(tr.visible, uint64(rng.IntN(40)))
		reads, writes := make([]uint64, 20), make([]uint64, 200)
		conflict := false
		for i := range reads {
			reads[i] = rng.Uint64N(300_000)
			conflict = conflict || written[reads[i]] > began
		}
		for i := range writes {
			writes[i] = rng.Uint64N(300_000)
		}
		version, ok, err := tr.admit(began, reads, writes)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case ok && conflict:
			t.Fatalf("seed %d: a conflict was missed", seed)
		case ok:
			admitted++
			for _, k := range writes {
				written[k] = version
			}
			tr.shown(version)
			tr.synced(version)
		default:
			refused++
			if !conflict {
				needless++
			}
		}
	}
	if admitted < 500 || refused == 0 || needless > 0 {
		t.Errorf("seed %d: %d admitted, %d refused, %d of them needlessly", seed, admitted, refused, needless)
	}
	if n := len(tr.young) + len(tr.old); n > 2*rememberedKeys {
		t.Errorf("%d keys are remembered", n)
	}
	if _, ok, _ := tr.admit(0, []uint64{1}, []uint64{2}); ok {
		t.Error("a transaction from before the tracker's memory was admitted")
	}
}

// TestTrackerWaitsForSlow keeps a transaction open while others write more keys than are
// remembered: it is refused only for what it has read.
func TestTrackerWaitsForSlow(t *testing.T) {
	tr := newTracker()
	for _, hits := range []bool{false, true} {
		began := tr.begin()
		for i := range 3 * rememberedKeys / 500 {
			writes := make([]uint64, 500)
			for j := range writes {
				writes[j] = uint64(1e9 + i*500 + j)
			}
			version, ok, err := tr.admit(began, nil, writes)
			if !ok || err != nil {
				t.Fatal(ok, err)
			}
			tr.shown(version)
		}
		read := uint64(1)
		if hits {
			read = 1e9
		}
		if _, ok, _ := tr.admit(began, []uint64{read}, []uint64{2}); ok == hits {
			t.Errorf("a slow transaction was admitted: %v", ok)
		}
		tr.end(began)
	}
	if len(tr.active) != 0 {
		t.Errorf("%d transactions are active", len(tr.active))
	}
}

func TestTrackerBroken(t *testing.T) {
	tr := newTracker()
	disk := errors.New("disk")
	if _, ok, err := tr.admit(0, nil, []uint64{1}); !ok || err != nil {
		t.Fatal(ok, err)
	}
	tr.fail(disk)
	if _, _, err := tr.admit(0, nil, []uint64{1}); !errors.Is(err, disk) {
		t.Errorf("admit after a failure: %v", err)
	}
	if err := tr.wait(1); !errors.Is(err, disk) {
		t.Errorf("wait after a failure: %v", err)
	}
}

// TestTrackerSyncs: a sync that is done is also that of what was admitted before, whichever is
// reported first.
func TestTrackerSyncs(t *testing.T) {
	tr := newTracker()
	for range 2 {
		if version, _, err := tr.admit(0, nil, nil); err != nil {
			t.Fatal(err)
		} else {
			tr.shown(version)
		}
	}
	tr.synced(2)
	tr.synced(1)
	if tr.durable != 2 {
		t.Errorf("durable up to %d, want 2", tr.durable)
	}
}

// TestApplyInOrder: a commit is admitted when the one before it is visible. So what begins at a
// version sees all versions up to it.
func TestApplyInOrder(t *testing.T) {
	s := open(t, vfs.NewMem())
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for range 200 {
				if err := set(t, s, fmt.Sprint("key", i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for {
		s.tracker.mu.Lock()
		last, visible := s.tracker.last, s.tracker.visible
		s.tracker.mu.Unlock()
		if last > visible+1 {
			t.Errorf("%d is admitted, and %d visible", last, visible)
			break
		}
		select {
		case <-done:
			return
		default:
		}
	}
	<-done
}
