package references

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/consume/relaysim/testwait"
	"millrace/replay"
	"millrace/translate"
)

// fakeLog gives what it has after a frame.
type fakeLog struct {
	steps []replay.Changes
	err   error
}

func (l fakeLog) Changes(_ context.Context, after replay.EpochEnd, f func(*replay.Changes) error) error {
	for i := range l.steps {
		if s := l.steps[i]; after.Before(s.Through) {
			if err := f(&s); err != nil {
				return err
			}
		}
	}
	return l.err
}

// TestFollow: the store takes over what the log has above it, and leaves out what is no change.
func TestFollow(t *testing.T) {
	s := openTest(t, Config{})
	op := func(seq int64, operation translate.Operation, record, rev uint64, refs ...replay.Reference) replay.Change {
		return replay.Change{Seq: seq, Kind: translate.KindCommit, Operation: operation, DIDUID: 1, URIUID: record, References: refs,
			Payload: fmt.Appendf(nil, `{"did":"did:web:a","time_us":1,"kind":"commit","commit":{"rev":"22222222222%s"}}`, []string{"22", "23", "24", "25"}[rev])}
	}
	ref := replay.Reference{Source: 3, Subject: 100, Authority: 9}
	account := replay.Change{Seq: 9, Kind: translate.KindAccount, DIDUID: 2,
		Payload: []byte(`{"did":"did:web:b","time_us":7,"kind":"account","account":{"active":false,"did":"did:web:b","seq":9,"status":"deactivated"}}`)}
	log := fakeLog{steps: []replay.Changes{
		{Through: replay.EpochEnd{Epoch: 1, Seq: 5}, Events: []replay.Change{
			op(4, translate.OpCreate, 10, 1, ref), op(5, translate.OpCreate, 11, 2), op(5, translate.OpCreate, 0, 2), op(5, translate.OpCreate, 12, 0),
		}},
		{Through: replay.EpochEnd{Epoch: 1, Seq: 6}, Gap: &replay.Gap{TimeUS: 77}},
		{Through: replay.EpochEnd{Epoch: 1, Seq: 9}, Events: []replay.Change{
			op(8, translate.OpDelete, 11, 3), {Seq: 8, Kind: translate.KindIdentity, DIDUID: 1}, account,
		}},
		{Through: replay.EpochEnd{Epoch: 2, Seq: 3}},
	}}
	var reached []Position
	for range 2 { // the second time there is nothing
		if err := s.Follow(t.Context(), log, func(p Position) { reached = append(reached, p) }); err != nil {
			t.Fatal(err)
		}
	}
	if want := []Position{{Epoch: 1, Seq: 5}, {Epoch: 1, Seq: 6}, {Epoch: 1, Seq: 9}, {Epoch: 2, Seq: 3}}; !slices.Equal(reached, want) || s.Position() != want[3] {
		t.Errorf("it came to %v, want %v", reached, want)
	}
	row, ok, err := s.Row(1, 10)
	if err != nil || !ok || !slices.Equal(row.References, []Reference{{3, 100, 9}}) || !slices.Equal(rows(t, s), []uint64{10}) {
		t.Errorf("rows %v, the first %+v, %t, %v", rows(t, s), row, ok, err)
	}
	if s.InexactSince() != 77 {
		t.Errorf("inexact since %d", s.InexactSince())
	}
	if err := s.Follow(t.Context(), fakeLog{err: replay.ErrTrimmed}, nil); !errors.Is(err, replay.ErrTrimmed) {
		t.Errorf("of a log that was trimmed: %v", err)
	}
}

// TestRebase: another basis keeps the rows and the generation, over a restart.
func TestRebase(t *testing.T) {
	fs := vfs.NewMem()
	s := openTest(t, Config{FS: fs})
	do(t, s, 1, like(1, 10, 1, 100))
	was := s.Generation()
	if err := s.Rebase("restored"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, Config{FS: fs})
	was.Basis = "restored"
	if g := s.Generation(); g != was || !slices.Equal(rows(t, s), []uint64{10}) {
		t.Errorf("generation %+v, rows %v; want %+v", g, rows(t, s), was)
	}
}

// TestFlushInterval: Run makes durable what is applied, so that a crash does not take it back.
func TestFlushInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewCrashableMem()
		s := openTest(t, Config{FS: fs})
		do(t, s, 1, like(1, 10, 1, 100))
		do(t, s, 5, like(1, 11, 2, 100))
		crashed := func() []uint64 {
			again := openTest(t, Config{FS: fs.CrashClone(vfs.CrashCloneCfg{})})
			defer again.Close()
			return rows(t, again)
		}
		if got := crashed(); len(got) > 0 {
			t.Fatalf("it is durable at once: rows %v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- s.Run(ctx) }()
		testwait.Elapse(flushInterval + time.Second)
		if got := crashed(); !slices.Equal(got, []uint64{10, 11}) {
			t.Errorf("rows after a crash: %v", got)
		}
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		_ = s.Close()
	})
}

// TestFlushWhileSweeping: Run also flushes between the steps of a long sweep.
func TestFlushWhileSweeping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewCrashableMem()
		var s *Store
		var kept []Position // after a crash, by step
		s = openTest(t, Config{FS: fs, hooks: testHooks{sweepRows: 1, sweeping: func() {
			testwait.Elapse(flushInterval + time.Second)
			again := openTest(t, Config{FS: fs.CrashClone(vfs.CrashCloneCfg{})})
			kept = append(kept, again.Position())
			_ = again.Close()
		}}})
		do(t, s, 1, like(1, 10, 1, 100), like(1, 11, 2, 100), like(1, 12, 3, 100))
		do(t, s, 9, Change{Operation: DeleteAccount, Account: 1, TimeUS: 500})
		ctx, cancel := context.WithCancel(t.Context())
		s.cfg.hooks.idle = cancel
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
		if len(kept) < 3 || kept[0] == s.Position() || kept[2] != s.Position() {
			t.Errorf("after crashes at %v, want %v from the third on", kept, s.Position())
		}
		_ = s.Close()
	})
}
