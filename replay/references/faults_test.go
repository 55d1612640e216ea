package references

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/postings"
)

// faultStore leaves a store of several tables: with links in sets of several chunks, an account
// that waits for its sweep, and one that was purged.
func faultStore(t *testing.T) (*vfs.MemFS, Config) {
	t.Helper()
	fs := vfs.NewCrashableMem()
	cfg := Config{FS: fs, Dir: "refs", Links: LinksOn}
	cfg.hooks.chunkLinks, cfg.hooks.checkLinks, cfg.hooks.sweepRows, cfg.hooks.buildRows = 4, 1, 3, 4
	cfg.hooks.cacheBytes = 1 // each read is one of the disk
	for phase := range uint64(4) {
		s := openTest(t, cfg)
		for more := true; more; {
			var err error
			if more, err = s.buildLinks(); err != nil {
				t.Fatal(err)
			}
		}
		var changes []Change
		for i := range uint64(5) {
			rev := 1 + 100*phase + 10*i
			for account := range uint64(3) {
				changes = append(changes, like(1+account, 10+5*phase+i, rev+account, 100+i%2))
			}
		}
		if phase == 3 {
			changes = append(changes, unlike(2, 12, 400), Change{Operation: DeleteAccount, Account: 3, TimeUS: 500}, Change{Operation: Deactivate, Account: 2, TimeUS: 500})
		}
		seq := s.Position().Seq + 1
		do(t, s, seq, changes...)
		if phase == 3 {
			do(t, s, seq+100, Change{Operation: Purge, Account: 5, Rev: 7})
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return fs, cfg
}

// dump returns all keys and values of a store.
func dump(s *Store) (lines []string, err error) {
	it, err := s.db.NewIter(nil)
	if err != nil {
		return nil, err
	}
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		lines = append(lines, fmt.Sprintf("%x %x", it.Key(), v))
	}
	return lines, errors.Join(it.Error(), it.Close())
}

// TestEachFailedRead: a read of the disk that fails is the error of what needs it, also of Open:
// never a missing row, state, link or damage. What writes leaves the store failed then.
func TestEachFailedRead(t *testing.T) {
	fs, cfg := faultStore(t)
	each := func(add *[]string) func(r *Row) error {
		return func(r *Row) error { *add = append(*add, fmt.Sprint(*r)); return nil }
	}
	ctx := t.Context()
	for name, tc := range map[string]struct {
		writes bool
		run    func(s *Store) ([]string, error)
	}{
		"Open": {run: func(*Store) ([]string, error) { return nil, nil }},
		"Rows": {run: func(s *Store) (all []string, err error) { _, err = s.Rows(ctx, each(&all)); return all, err }},
		"RowsOf": {run: func(s *Store) (all []string, err error) {
			_, err = s.RowsOf(ctx, 1, each(&all))
			_, after := s.RowsOf(ctx, 2, each(&all))
			return all, errors.Join(err, after)
		}},
		"EachOf": {run: func(s *Store) (all []string, err error) {
			r, err := s.openRowsLocked(rangeRecord.start(), rangeRecord.end())
			if err != nil {
				return nil, err
			}
			return all, errors.Join(r.EachOf(ctx, 2, each(&all)), r.EachOf(ctx, 3, each(&all)), r.Close())
		}},
		"Row": {run: func(s *Store) (all []string, err error) {
			for record := range uint64(32) {
				row, ok, err := s.Row(2, record)
				if err != nil {
					return nil, err
				}
				all = append(all, fmt.Sprint(row, ok))
			}
			a, ok, err := s.Account(3)
			return append(all, fmt.Sprint(a, ok)), err
		}},
		"View": {run: func(s *Store) (all []string, err error) {
			v, err := s.View()
			if err != nil {
				return nil, err
			}
			defer func() { err = errors.Join(err, v.Close()) }()
			floor, inactive, err := v.Account(3)
			all = append(all, fmt.Sprint(v.Position, v.LinksComplete, floor, inactive))
			for record := uint64(0); record < 32 && err == nil; record++ {
				var row Row
				var ok bool
				ok, err = v.Row(&row, 3, record)
				all = append(all, fmt.Sprint(row.References, ok))
			}
			return all, err
		}},
		"Verify": {run: func(s *Store) ([]string, error) {
			report, err := s.Verify(ctx, nil)
			return []string{fmt.Sprintf("%+v", report)}, err
		}},
		"sweep": {writes: true, run: func(s *Store) ([]string, error) {
			for {
				if more, err := s.sweep(); err != nil || !more {
					return nil, err
				}
			}
		}},
		"build": {writes: true, run: func(s *Store) ([]string, error) {
			s.commits.links.Store(&linkState{on: true, next: rangeRecord.start()})
			b := s.db.Pebble().NewBatch()
			if err := errors.Join(dropLinks(b), s.db.Commit(b, false)); err != nil {
				return nil, err
			}
			for {
				if more, err := s.buildLinks(); err != nil || !more {
					return nil, err
				}
			}
		}},
		"Apply": {writes: true, run: func(s *Store) ([]string, error) {
			b := &Batch{Position: Position{Epoch: 1, Seq: s.Position().Seq + 200}}
			for i := range uint64(4) {
				update := like(1, 10+5*i, 1000+i, 101)
				update.Operation = Update
				b.Changes = append(b.Changes, update, unlike(2, 11+5*i, 1000+i), like(4, 50+i, 1+i, 100), Change{Operation: Activate, Account: 2, TimeUS: int64(600 + i)})
			}
			for i := range b.Changes {
				b.Changes[i].Seq = s.Position().Seq + 1 + int64(i)
			}
			if err := s.Hydrate(ctx, b); err != nil {
				return nil, err
			}
			var had []string
			for i := range b.Changes {
				had = append(had, fmt.Sprint(b.Changes[i].Had))
			}
			return had, s.Apply(b)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			fails := 0
			for n := int64(0); ; n++ { // 0: none
				var calls atomic.Int64
				var failed, armed atomic.Bool
				armed.Store(name == "Open")
				cfg := cfg
				mem := fs.CrashClone(vfs.CrashCloneCfg{})
				cfg.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
					if n == 0 || !armed.Load() || op.Kind != errorfs.OpFileReadAt || calls.Add(1) != n {
						return nil
					}
					failed.Store(true)
					return errDisk
				}))
				s, err := Open(cfg)
				if err == nil {
					armed.Store(true)
					var got []string
					got, err = tc.run(s)
					armed.Store(false)
					if err == nil {
						var all []string
						all, err = dump(s)
						got = append(got, all...)
					}
					if n == 0 {
						want = got
					}
					if diff := cmp.Diff(want, got); err == nil && diff != "" {
						t.Fatalf("read %d fails, and there is no error: -want +got\n%s", n, diff)
					}
					if err != nil && tc.writes && !strings.Contains(fmt.Sprint(s.Err()), errDisk.Error()) {
						t.Errorf("read %d: %v, but the store has not failed: %v", n, err, s.Err())
					}
					if closed := s.Close(); s.Err() == nil && closed != nil {
						t.Errorf("read %d: close: %v", n, closed)
					}
				}
				if err != nil {
					fails++
					if n == 0 || !strings.Contains(err.Error(), errDisk.Error()) || strings.Contains(err.Error(), "damaged") || strings.Contains(err.Error(), "panic in the store") {
						t.Errorf("read %d: %v", n, err)
					}
				}
				if n > 0 && !failed.Load() {
					break
				}
			}
			if fails < 2 {
				t.Errorf("only %d reads fail", fails)
			}
		})
	}
}

// TestWait: who waits for a position goes on when the store is there, has failed, or the context
// has ended.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(Config{FS: vfs.NewMem(), Dir: "refs"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Rebase("other"); err == nil {
			t.Error("there is no generation, and its basis is another")
		}
		if err := s.Begin("test", Position{Epoch: 1}); err != nil {
			t.Fatal(err)
		}
		if err := s.Wait(t.Context(), Position{Epoch: 1}); err != nil {
			t.Errorf("at the position: %v", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		errs := make(map[string]error)
		wait := func(name string, ctx context.Context, seq int64) {
			go func() { errs[name] = s.Wait(ctx, Position{Epoch: 1, Seq: seq}) }()
			synctest.Wait()
			if _, ok := errs[name]; ok {
				t.Errorf("%s did not wait", name)
			}
		}
		wait("reached", t.Context(), 4)
		wait("ended", ctx, 5)
		wait("failed", t.Context(), 5)
		do(t, s, 1, like(1, 10, 1, 100)) // up to 2
		synctest.Wait()
		if len(errs) > 0 {
			t.Errorf("too early: %v", errs)
		}
		do(t, s, 3, like(1, 11, 2, 100))
		synctest.Wait()
		if err, ok := errs["reached"]; !ok || err != nil || len(errs) != 1 {
			t.Errorf("reached: %v", errs)
		}
		why := errors.New("why")
		cancel(why)
		synctest.Wait()
		if !errors.Is(errs["ended"], why) || len(errs) != 2 {
			t.Errorf("ended: %v", errs)
		}
		if err := s.Checkpoint("copy"); err != nil {
			t.Error(err)
		}
		s.db.Fail(errDisk)
		synctest.Wait()
		if !errors.Is(errs["failed"], errDisk) || len(errs) != 3 {
			t.Errorf("failed: %v", errs)
		}
		for name, err := range map[string]error{
			"checkpoint": s.Checkpoint("other"), "wait": s.Wait(t.Context(), Position{}), "basis": s.Rebase("x"), "begin": s.Begin("x", Position{Epoch: 2}),
		} {
			if !errors.Is(err, errDisk) {
				t.Errorf("%s after a failure: %v", name, err)
			}
		}
		copied, err := Open(Config{FS: s.cfg.FS, Dir: "copy"})
		if err != nil {
			t.Fatal(err)
		}
		if got := rows(t, copied); len(got) != 2 || copied.Generation().Basis != "test" {
			t.Errorf("the copy has rows %v, %+v", got, copied.Generation())
		}
		if err := copied.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Close(); !errors.Is(err, errDisk) {
			t.Errorf("close after a failure: %v", err)
		}
		_ = s.db.Pebble().Close() // its goroutines
	})
}

// TestCompleteLinksAreLogged: the log says once that links are complete, when all rows are built.
func TestCompleteLinksAreLogged(t *testing.T) {
	fs := vfs.NewMem()
	s := openTest(t, Config{FS: fs})
	do(t, s, 1, like(1, 10, 1, 100), like(1, 11, 2, 100), like(1, 12, 3, 100))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cfg := Config{FS: fs, Links: LinksOn, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	cfg.hooks.buildRows = 1
	s = openTest(t, cfg)
	for more := true; more; {
		if strings.Contains(log.String(), "complete") {
			t.Errorf("too early: %s", log.String())
		}
		var err error
		if more, err = s.buildLinks(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.buildLinks(); err != nil || strings.Count(log.String(), `msg="links are complete"`) != 1 {
		t.Errorf("%v: %s", err, log.String())
	}
}

// TestDamagedLinksOfApply: links that are not as they were written are damage to what writes links,
// by their key, and fail the store.
func TestDamagedLinksOfApply(t *testing.T) {
	fs, cfg := faultStore(t)
	set := postings.Set{Subject: 100, Path: 1}
	for name, harm := range map[string]func(c UIDCodec) (key, value []byte){
		"counts": func(c UIDCodec) ([]byte, []byte) {
			return postings.AppendSet(nil, c, postings.RangeHead, set), []byte{0}
		},
		"account": func(c UIDCodec) ([]byte, []byte) { return postings.AppendAccount(nil, c, set, 1), []byte{0xff} },
		"absent link": func(c UIDCodec) ([]byte, []byte) {
			return postings.AppendAccount(nil, c, set, 1), postings.AppendArrivals(nil, nil)
		},
		"start of a chunk": func(c UIDCodec) ([]byte, []byte) {
			return append(postings.AppendStart(nil, c, set, 1), 0xff), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := cfg
			cfg.FS = fs.CrashClone(vfs.CrashCloneCfg{})
			s := openTest(t, cfg)
			key, value := harm(s.codec)
			Harm(t, s, func(b *pebble.Batch) error { return b.Set(key, value, nil) })
			err := s.Apply(hydrate(t, s, s.Position().Seq+1, unlike(1, 10, 900), unlike(1, 12, 901)))
			var damage *pebbleguard.CorruptionError
			if !errors.As(err, &damage) || damage.Store != "reference store" || !strings.Contains(err.Error(), fmt.Sprintf("%x", key)) || !errors.Is(s.Err(), ErrFailed) {
				t.Errorf("error %v, failure %v", err, s.Err())
			}
		})
	}
}

// TestSweptBetweenHydrateAndApply: links of a row that was applied and swept after a later change
// of the record was hydrated go once.
func TestSweptBetweenHydrateAndApply(t *testing.T) {
	cfg := Config{FS: vfs.NewMem(), Links: LinksOn}
	cfg.hooks.chunkLinks, cfg.hooks.checkLinks = 2, 1
	s := openTest(t, cfg)
	var others []Change
	for i := range uint64(4) {
		others = append(others, like(2+i, 20+i, 1, 100))
	}
	do(t, s, 1, others...)
	first := hydrate(t, s, 11, like(1, 10, 1, 100))
	gone := hydrate(t, s, 21, Change{Operation: DeleteAccount, Account: 1, TimeUS: 2})
	again := hydrate(t, s, 31, like(1, 10, 2, 100))
	apply(t, s, first, gone)
	Sweep(t, s)
	apply(t, s, again)
	if got := rows(t, s); len(got) != 5 || s.Err() != nil {
		t.Errorf("rows %v, %v", got, s.Err())
	}
}
