package identity

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/consume/relaysim"
)

// model is what a cache may give: of each account what was put last, or nothing. After a crash it
// may be what was so at some moment since the last sync.
type model struct {
	t       *testing.T
	cfg     Config
	cache   cache
	allowed map[uint64][]int64 // stamps that get may give; 0 stands for nothing
}

const modelAccounts, modelEntries = 40, 16

func (m *model) open(fs vfs.FS) {
	m.t.Helper()
	m.cfg = Config{Dir: "ids", FS: fs, hooks: testHooks{entries: modelEntries}}.withDefaults()
	s, err := openStore(&m.cfg, "test")
	if err == nil {
		err = s.setSource("test")
	}
	if err != nil {
		m.t.Fatal(err)
	}
	m.cache = newCache(s, 6)
}

func (m *model) close() {
	m.t.Helper()
	if err := m.cache.store.db.Close(); err != nil {
		m.t.Fatal(err)
	}
}

// now makes stamp the only one that get may give for an account; 0: nothing is kept of it. Eviction
// is always allowed.
func (m *model) now(uid uint64, stamp int64) { m.allowed[uid] = []int64{stamp} }

// check looks at what the store holds.
func (m *model) check() {
	m.t.Helper()
	s := m.cache.store
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: []byte{prefixEntry}, UpperBound: []byte{prefixEntry + 1}})
	if err != nil {
		m.t.Fatal(err)
	}
	defer it.Close()
	n := make(map[string]int)
	for ok := it.First(); ok; ok = it.Next() {
		n[string(it.Key()[1:5])]++
	}
	young := n[string(s.entryKey(s.generation, 0)[1:5])]
	old := n[string(s.entryKey(s.generation-1, 0)[1:5])]
	if young != s.count || old > s.older || young+old > modelEntries || len(n) > 2 {
		m.t.Fatalf("%v on disk; noted %d and %d", n, s.count, s.older)
	}
	if len(m.cache.young)+len(m.cache.old) > 6 {
		m.t.Fatalf("%d and %d in memory", len(m.cache.young), len(m.cache.old))
	}
}

// TestModel: random puts, gets, purges, restarts and crashes against what may be there.
func TestModel(t *testing.T) {
	keys := make([]*entry, 4)
	for i := range keys {
		keys[i] = &entry{key: keyOf(t, didOf(i))}
	}
	keys[0].key = nil
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			fs := vfs.NewCrashableMem()
			m := &model{t: t, allowed: make(map[uint64][]int64)}
			m.open(fs)
			synced := make(map[uint64][]int64) // at the last sync, and since
			found := 0
			for step := range int64(600) {
				uid := uint64(rng.IntN(modelAccounts))
				switch n := rng.IntN(100); {
				case n < 40:
					e := &entry{check: uid, key: keys[rng.IntN(len(keys))].key, fetched: (step + 1) * 1e9}
					m.cache.put(uid, e)
					m.now(uid, e.fetched)
				case n < 85:
					var got int64
					if e := m.cache.get(uid, uid); e != nil {
						got = e.fetched
						found++
					}
					if got != 0 && !slices.Contains(m.allowed[uid], got) {
						t.Fatalf("step %d: account %d has %d, not of %v", step, uid, got, m.allowed[uid])
					}
					if e := m.cache.get(uid, uid+1); e != nil {
						t.Fatal("of another DID")
					}
				case n < 94:
					m.cache.purge(uid)
					m.now(uid, 0)
				case n < 96:
					if err := m.cache.store.sync(); err != nil {
						t.Fatal(err)
					}
					clear(synced)
				case n < 98:
					m.close()
					m.open(fs)
					clear(synced)
				default:
					clone := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
					m.close()
					fs = clone
					m.open(fs)
					for uid, stamps := range synced {
						m.allowed[uid] = slices.Clone(stamps)
					}
					clear(synced)
				}
				m.check()
				for uid, stamps := range m.allowed { // those since the last sync are possible after a crash
					for _, stamp := range stamps {
						if !slices.Contains(synced[uid], stamp) {
							synced[uid] = append(synced[uid], stamp)
						}
					}
				}
			}
			m.close()
			if found < 50 {
				t.Errorf("only %d found", found)
			}
		})
	}
}

// TestEviction: an account stays on disk until as many others were put or asked for as a
// generation has.
func TestEviction(t *testing.T) {
	m := &model{t: t}
	m.open(vfs.NewMem())
	defer m.close()
	s := m.cache.store
	key := keyOf(t, didOf(1))
	for uid := range uint64(200) {
		s.put(uid, &entry{check: uid, key: key, fetched: 1e9})
		for before := uid - min(uid, modelEntries/2-2); before < uid; before++ {
			if s.get(before) == nil {
				t.Fatalf("%d is not there after %d", before, uid)
			}
		}
		if s.get(0) == nil {
			t.Fatalf("what is always asked for is not there after %d", uid)
		}
		m.check()
	}
	if s.get(20) != nil {
		t.Error("it never goes")
	}
}

// TestEntryBytes: an entry in memory takes no more than the bound on memory assumes.
func TestEntryBytes(t *testing.T) {
	const n = 20_000
	values := make([][]byte, 2)
	for i := range values {
		e := entry{key: keyOf(t, didOf(i))}
		values[i] = e.appendValue(nil)
	}
	if values[0][12] == values[1][12] {
		t.Fatal("both keys are of one curve")
	}
	for i, value := range values {
		m := &model{t: t}
		m.open(vfs.NewMem())
		c := newCache(m.cache.store, n)
		before := heap()
		for uid := range uint64(n) {
			e, err := decodeValue(value)
			if err != nil {
				t.Fatal(err)
			}
			c.keep(uid, e)
		}
		got := (heap() - before) / n
		if t.Logf("curve %d: %d bytes", value[12], got); got > entryBytes {
			t.Errorf("curve %d: %d bytes", i, got)
		}
		m.close()
		runtime.KeepAlive(c)
	}
}

func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestChangedIsNeverUndone: once Changed has returned, no key from before is given, however fetches
// and look-ups fall.
func TestChangedIsNeverUndone(t *testing.T) {
	plc := &relaysim.PLC{}
	server := httptest.NewServer(plc)
	defer server.Close()
	var clock atomic.Int64 // seconds
	d, err := Open(Config{FS: vfs.NewMem(), Dir: "ids", PLC: server.URL, hooks: testHooks{entries: 8, concurrency: 4},
		Now: func() time.Time { return time.Unix(1e9+clock.Add(1), 0) }})
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for account := range 6 {
		group.Go(func() {
			uid, did := uint64(account), didOf(account)
			for version := range 60 {
				signer := didOf(1000 + account*100 + version)
				want := keyOf(t, signer)
				plc.SetKeyOf(did, signer)
				d.Changed(uid, did)
				for looks := 1 + version%7*20; looks > 0; looks-- {
					key, _ := d.Key(uid, did)
					if key != nil && !key.Equal(want) {
						t.Errorf("account %d, version %d: a key from before", account, version)
						return
					}
					if key == nil && version%3 == 0 {
						looks++ // wait for it
					}
					if version%5 == 0 {
						d.Refresh(uid, did)
					}
					runtime.Gosched()
				}
			}
		})
	}
	group.Wait()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestPurgeOfOlder: what is purged is gone from the older generation, too.
func TestPurgeOfOlder(t *testing.T) {
	m := &model{t: t}
	m.open(vfs.NewMem())
	defer m.close()
	c := newCache(m.cache.store, 2)
	for uid := range uint64(2) {
		c.put(uid, &entry{check: 7, fetched: 1_767_225_600e9})
	}
	if c.purge(0); c.get(0, 7) != nil || c.get(1, 7) == nil || c.get(1, 8) != nil {
		t.Errorf("%v, %v", c.get(0, 7), c.get(1, 7))
	}
}

// TestStoreVersion: a cache of another version is refused.
func TestStoreVersion(t *testing.T) {
	m, fs := &model{t: t}, vfs.NewMem()
	m.open(fs)
	db := m.cache.store.db
	b := db.Pebble().NewBatch()
	if err := errors.Join(b.Set([]byte(metaFormat), []byte{storeVersion + 1}, nil), db.Commit(b, true)); err != nil {
		t.Fatal(err)
	}
	m.close()
	if _, err := openStore(&m.cfg, "test"); err == nil || !strings.Contains(err.Error(), "another version than 1") {
		t.Errorf("%v", err)
	}
}

// TestLargeStore: a cache may have more memory than Pebble takes for its memtables.
func TestLargeStore(t *testing.T) {
	cfg := Config{FS: vfs.NewMem(), Dir: "ids"}.withDefaults()
	cfg.Bytes = 64 << 30
	s, err := openStore(&cfg, "test")
	if err == nil {
		err = s.db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestEachFailedStoreCall fails each call of the file system in turn. It is the error of opening,
// or the failure of the cache. If there is neither, the cache has what was put, and nothing else.
func TestEachFailedStoreCall(t *testing.T) {
	made, errDisk := vfs.NewCrashableMem(), errors.New("the disk")
	open := func(fs vfs.FS) (*store, error) {
		cfg := Config{Dir: "ids", FS: fs, Bytes: minBytes}.withDefaults()
		return openStore(&cfg, "test")
	}
	at := func(uid uint64) *entry { return &entry{check: uid, fetched: 1_767_225_600e9} }
	s, err := open(made)
	if err != nil {
		t.Fatal(err)
	}
	s.put(1, at(1))
	s.put(2, at(2))
	// No write-ahead log is left: where one is replayed, Pebble panics if opening then fails.
	if err := errors.Join(s.setSource("test"), s.sync(), s.db.Flush(), s.db.Close()); err != nil {
		t.Fatal(err)
	}
	fails := 0
	for n := int64(1); ; n++ {
		var calls atomic.Int64
		fs := made.CrashClone(vfs.CrashCloneCfg{})
		s, err := open(errorfs.Wrap(fs, errorfs.InjectorFunc(func(errorfs.Op) error {
			if calls.Add(1) == n {
				return errDisk
			}
			return nil
		})))
		if err == nil {
			has := [3]bool{s.get(1) != nil, s.get(2) != nil, s.get(3) != nil}
			sourced, sourceErr := s.hasSource()
			s.put(3, at(3))
			s.delete(2)
			synced := s.sync()
			err = errors.Join(sourceErr, s.db.Err())
			if synced != nil && s.db.Err() == nil {
				t.Errorf("call %d: %v, and the cache has not failed", n, synced)
			}
			if err == nil && (has != [3]bool{true, true, false} || !sourced) {
				t.Errorf("call %d: entries %v, a source %t", n, has, sourced)
			}
			_ = s.db.Close()
		}
		if err != nil {
			fails++
		} else if s, err = open(fs.CrashClone(vfs.CrashCloneCfg{})); err != nil {
			t.Fatal(err)
		} else {
			if has := [3]bool{s.get(1) != nil, s.get(2) != nil, s.get(3) != nil}; has != [3]bool{true, false, true} || s.count != 2 {
				t.Errorf("call %d: later there are the entries %v, counted as %d", n, has, s.count)
			}
			_ = s.db.Close()
		}
		if calls.Load() < n {
			break
		}
	}
	if fails < 5 {
		t.Errorf("only %d calls fail", fails)
	}
}
