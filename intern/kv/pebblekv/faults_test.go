package pebblekv

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/intern/kv"
	"millrace/intern/kv/pebbleguard"
)

// failingCall fails the n-th call that matches, with errDisk.
func failingCall(fs vfs.FS, n int64, matches func(op errorfs.Op) bool) (failing vfs.FS, failed *atomic.Bool) {
	var calls atomic.Int64
	failed = new(atomic.Bool)
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !matches(op) || calls.Add(1) != n {
			return nil
		}
		failed.Store(true)
		return errDisk
	})), failed
}

// TestEachFailedRead: a read of the disk that fails is the error of Get, Last or Scan, also where
// only the value lies there, and never a missing key or value.
func TestEachFailedRead(t *testing.T) {
	fs := vfs.NewMem()
	c := (Config{Dir: "uids", FS: fs}).withDefaults()
	opts := c.options()
	opts.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
		return pebble.ValueSeparationPolicy{Enabled: true, MinimumSize: 100, MaxBlobReferenceDepth: 8}
	}
	db, err := pebbleguard.Open(pebbleguard.Config{Dir: "uids", FS: fs, Options: opts})
	if err != nil {
		t.Fatal(err)
	}
	value := func(key []byte) []byte { return bytes.Repeat(key, 100) }
	var keys [][]byte
	b := db.Pebble().NewBatch()
	for i := range 200 {
		keys = append(keys, fmt.Appendf(nil, "%03d", i))
		if err := b.Set(keys[i], value(keys[i]), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(db.Commit(b, true), db.Pebble().Flush(), db.Close()); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func(txn kv.Txn) ([]kv.Pair, error){
		"get": func(txn kv.Txn) (pairs []kv.Pair, err error) {
			values := make([][]byte, len(keys))
			err = txn.Get(t.Context(), keys, values)
			for i := range values {
				pairs = append(pairs, kv.Pair{Key: keys[i], Value: values[i]})
			}
			return pairs, err
		},
		"last": func(txn kv.Txn) ([]kv.Pair, error) {
			pairs, ranges := make([]kv.Pair, len(keys)), make([]kv.Range, len(keys))
			for i, key := range keys {
				ranges[i] = kv.Range{Begin: key, End: append(key[:3:3], 0)}
			}
			err := txn.Last(t.Context(), ranges, func(i int, p kv.Pair) error {
				pairs[i] = kv.Pair{Key: bytes.Clone(p.Key), Value: bytes.Clone(p.Value)}
				return nil
			})
			return pairs, err
		},
		"scan": func(txn kv.Txn) (pairs []kv.Pair, err error) {
			err = txn.Scan(t.Context(), kv.Range{End: []byte("9")}, func(p kv.Pair) (bool, error) {
				pairs = append(pairs, kv.Pair{Key: bytes.Clone(p.Key), Value: bytes.Clone(p.Value)})
				return true, nil
			})
			return pairs, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var texts []string
			for n := int64(1); ; n++ {
				var armed atomic.Bool
				failing, failed := failingCall(fs, n, func(op errorfs.Op) bool { return armed.Load() && op.Kind == errorfs.OpFileReadAt })
				s, err := Open(Config{Dir: "uids", FS: failing, ReadOnly: true, CacheBytes: 1 << 10})
				if err != nil {
					t.Fatal(err)
				}
				armed.Store(true)
				var pairs []kv.Pair
				err = kv.Once(t.Context(), s, func(txn kv.Txn) (err error) { pairs, err = read(txn); return err })
				if closed := s.Close(); closed != nil {
					t.Errorf("%d: close: %v", n, closed)
				}
				if err != nil && !errors.Is(err, errDisk) {
					t.Fatalf("%d: %v", n, err)
				} else if err != nil {
					texts = append(texts, err.Error())
					continue
				}
				for i := range max(len(pairs), len(keys)) {
					if len(pairs) != len(keys) || !bytes.Equal(pairs[i].Key, keys[i]) || !bytes.Equal(pairs[i].Value, value(keys[i])) {
						t.Fatalf("%d: %d pairs, %q", n, len(pairs), pairs[min(i, len(pairs)-1)])
					}
				}
				if !failed.Load() {
					break
				}
			}
			all := strings.Join(texts, "\n")
			if !strings.Contains(all, "read value: ") || strings.Count(all, "read value: ") == len(texts) {
				t.Errorf("errors of keys and of values: %s", all)
			}
		})
	}
}

// TestEachFailedCall: wherever one call of the disk fails, there is no error but the disk's, and
// what was committed is there when the store is opened again.
func TestEachFailedCall(t *testing.T) {
	base := vfs.NewCrashableMem()
	s := open(t, base)
	if err := errors.Join(set(t, s, "a"), s.Close()); err != nil {
		t.Fatal(err)
	}
	for n := int64(1); ; n++ {
		fs := base.CrashClone(vfs.CrashCloneCfg{})
		failing, failed := failingCall(fs, n, func(errorfs.Op) bool { return true })
		s, err := Open(Config{Dir: "uids", FS: failing})
		committed := false
		if err == nil {
			err = set(t, s, "b")
			committed = err == nil
			if err == nil {
				err = s.RaiseMark()
			}
			if err == nil {
				err = s.Compact(t.Context())
			}
			err = errors.Join(err, s.Close())
		}
		if err != nil && !errors.Is(err, errDisk) && !strings.Contains(err.Error(), errDisk.Error()) {
			t.Errorf("%d: %v", n, err)
		}
		again := open(t, fs.CrashClone(vfs.CrashCloneCfg{}))
		if a, b := get(t, again, "a"), get(t, again, "b"); a != "value" || committed && b != "value" {
			t.Errorf("%d: after that %q and %q", n, a, b)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
		if !failed.Load() {
			return
		}
	}
}

// TestCompact: what was overwritten and deleted goes, what is in the store stays.
func TestCompact(t *testing.T) {
	s := open(t, vfs.NewMem())
	for i := range 4 {
		err := kv.Run(t.Context(), s, func(txn kv.Txn) error {
			for k := range 64 {
				if key := fmt.Appendf(nil, "%02d", k); i == 3 && k > 0 {
					txn.Clear(key)
				} else {
					txn.Set(key, bytes.Repeat(key, 100))
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Compact(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m := s.Metrics(); m.MemTable.Count != 1 || m.Total().TablesCount != 1 || m.Total().TablesSize > 2000 {
		t.Errorf("%d tables of %d bytes, %d memtables", m.Total().TablesCount, m.Total().TablesSize, m.MemTable.Count)
	}
	if got := get(t, s, "00"); got != strings.Repeat("00", 100) {
		t.Errorf("got %q", got)
	}
	s.db.Fail(errDisk)
	if err := s.Compact(t.Context()); !errors.Is(err, errDisk) {
		t.Errorf("after a failure: %v", err)
	}
}

// TestCommitOnce: a transaction commits once, and only what is within the limits, to the byte.
func TestCommitOnce(t *testing.T) {
	s := open(t, vfs.NewMem())
	txn, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	txn.Set([]byte("a"), []byte("value"))
	if err := txn.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := txn.Commit(t.Context()); err == nil || err.Error() != "transaction is over" {
		t.Errorf("twice: %v", err)
	}
	txn.Close()
	txn.Close()
	for name, write := range map[string]func(txn kv.Txn){
		"key":   func(txn kv.Txn) { txn.Set(make([]byte, maxKey+1), nil) },
		"value": func(txn kv.Txn) { txn.Set([]byte("k"), make([]byte, maxValue+1)) },
		"bytes": func(txn kv.Txn) {
			for i := range maxBytes/maxValue + 1 {
				txn.Set([]byte{byte(i)}, make([]byte, maxValue-1))
			}
		},
		"fits": func(txn kv.Txn) {
			for i := range maxBytes / maxValue {
				txn.Set([]byte{byte(i)}, make([]byte, maxValue-1))
			}
		},
	} {
		fits := name == "fits"
		err := kv.Once(t.Context(), s, func(txn kv.Txn) error { write(txn); return nil })
		if (err == nil) != fits || !fits && !errors.Is(err, kv.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMark: the mark says how far the store had come, and when.
func TestMark(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	b := appendMark([]byte("x"), 7, at)
	if string(b) != "x\x07\x00\x00\x00\x00\x00\x00\x00\x29\x0c\xf8\x69\x00\x00\x00\x00" {
		t.Errorf("encoded %q", b)
	}
	if n, when := parseMark(b[1:]); n != 7 || !when.Equal(at) {
		t.Errorf("decoded %d of %v", n, when)
	}
	if n, when := parseMark(b); n != 0 || !when.IsZero() {
		t.Errorf("of another size: %d of %v", n, when)
	}
	s := open(t, vfs.NewMem())
	s.mark.held = true // commits write none
	for _, tc := range []struct {
		has, had uint64
		since    string
	}{{has: 0, had: 1, since: "its beginning and 2026-05-04T03:02:02Z"}, {has: 4, had: 5, since: "2026-05-04T03:02:01Z and 2026-05-04T03:02:02Z"}, {has: 5, had: 5}, {has: math.MaxUint64, had: 5}} {
		if tc.has > 0 {
			err := kv.Run(t.Context(), s, func(txn kv.Txn) error { txn.Set([]byte(markKey), appendMark(nil, tc.has, at)); return nil })
			if err != nil {
				t.Fatal(err)
			}
		}
		err := checkMark(s.db, appendMark(nil, tc.had, at.Add(time.Second)))
		if (err != nil) != (tc.since != "") || err != nil && (!errors.Is(err, pebbleguard.ErrLost) || !strings.Contains(err.Error(), "between "+tc.since+":")) {
			t.Errorf("%d of %d: %v", tc.has, tc.had, err)
		}
	}
	s.db.Fail(errDisk)
	if err := checkMark(s.db, appendMark(nil, 1, at)); !errors.Is(err, errDisk) || errors.Is(err, pebbleguard.ErrLost) {
		t.Errorf("a mark that cannot be compared: %v", err)
	}
}
