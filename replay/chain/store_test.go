package chain

import (
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"millrace/intern/kv/pebbleguard"
	"millrace/translate/verify"
)

func openTest(t *testing.T, fs vfs.FS, at Position, sample uint64) *Store {
	t.Helper()
	s, err := Open(Config{Dir: "chains", FS: fs, At: at, Sample: sample})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func randomState(rng *rand.Rand) (s verify.State) {
	if rng.IntN(8) == 0 {
		return s // the state after a first commit without a key
	}
	s.Rev = rng.Uint64()
	if rng.IntN(3) > 0 {
		s.Data[rng.IntN(len(s.Data))] = byte(1 + rng.IntN(255))
	}
	return s
}

// checkStates compares the accounts 0 to 19.
func checkStates(t *testing.T, s *Store, want map[uint64]verify.State) {
	t.Helper()
	for account := range uint64(20) {
		if got, err := s.Get(account); err != nil || got != want[account] {
			t.Fatalf("account %d is in state %v, want %v; %v", account, got, want[account], err)
		}
	}
}

// TestModel commits random changes, while others are set already, and crashes. The log's Append
// after the last Commit was lost, or not. The store is then what the log has. If the log is
// anywhere else, or another part of the accounts is sampled, it knows nothing.
func TestModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	fs := vfs.NewCrashableMem()
	at, want, sample := Position{Epoch: 1}, map[uint64]verify.State{}, uint64(1)
	lost := 0
	for life := range 60 {
		s := openTest(t, fs, at, sample)
		checkStates(t, s, want)
		newest := maps.Clone(want)
		var waiting []Change
		before, beforeAt := want, at
		for range rng.IntN(6) {
			for range rng.IntN(12) {
				account := uint64(rng.IntN(20))
				last, err := s.Get(account)
				if err != nil || last != newest[account] {
					t.Fatalf("account %d is in state %v, want %v; %v", account, last, newest[account], err)
				}
				c := Change{Account: account, Before: last, After: randomState(rng)}
				s.Set(c)
				waiting, newest[account] = append(waiting, c), c.After
			}
			n := rng.IntN(len(waiting) + 1)
			before, beforeAt, want = want, at, maps.Clone(want)
			at.Seq += int64(1 + rng.IntN(5))
			if err := s.Commit(at, waiting[:n]); err != nil {
				t.Fatal(err)
			}
			for _, c := range waiting[:n] {
				want[c.Account] = c.After
			}
			waiting = waiting[n:]
			checkStates(t, s, newest)
		}
		switch rng.IntN(10) {
		case 0, 1, 2:
			at, want = beforeAt, before // the log did not get it
			lost++
		case 3:
			at, want = Position{Epoch: at.Epoch + 1}, map[uint64]verify.State{}
		case 4:
			sample, want = sample+1, map[uint64]verify.State{}
		}
		if rng.IntN(3) == 0 {
			if err := errors.Join(s.Close(), s.Close()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		next := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(3) * 50, RNG: rand.New(rand.NewPCG(seed, uint64(life)))})
		_ = s.Close()
		fs = next
	}
	if lost == 0 {
		t.Error("no Append was lost")
	}
}

// TestPendingIsBounded: what is committed is not kept in memory.
func TestPendingIsBounded(t *testing.T) {
	s := openTest(t, vfs.NewMem(), Position{}, 1)
	defer s.Close()
	var changes []Change
	for i := range uint64(100) {
		c := Change{Account: i % 10, Before: verify.State{Rev: i}, After: verify.State{Rev: i + 10}}
		s.Set(c)
		changes = append(changes, c)
	}
	for len(changes) > 0 {
		if err := s.Commit(Position{Seq: int64(len(changes))}, changes[:20]); err != nil {
			t.Fatal(err)
		}
		if changes = changes[20:]; len(changes) > 0 && len(s.pending) != 10 {
			t.Errorf("%d accounts are pending, want 10", len(s.pending))
		}
	}
	if len(s.pending) != 0 {
		t.Errorf("%d accounts are pending after all is committed", len(s.pending))
	}
}

// TestDamagedState: a state of another length is damage, and ends the store.
func TestDamagedState(t *testing.T) {
	s := openTest(t, vfs.NewMem(), Position{}, 1)
	b := s.db.Pebble().NewBatch()
	if err := errors.Join(b.Set(stateKey(3), []byte("short"), nil), s.db.Commit(b, true)); err != nil {
		t.Fatal(err)
	}
	var damage *pebbleguard.CorruptionError
	if _, err := s.Get(3); !errors.As(err, &damage) || !strings.Contains(err.Error(), "5 bytes") {
		t.Errorf("read %v", err)
	}
	<-s.Failed()
	if err := s.Commit(Position{Seq: 1}, nil); !errors.Is(err, pebbleguard.ErrFailed) || s.Err() == nil {
		t.Errorf("committed: %v", err)
	}
}

// TestConfig: fields that cannot be used are named.
func TestConfig(t *testing.T) {
	for field, c := range map[string]Config{
		"Dir":         {Sample: 1},
		"Sample":      {Dir: "x"},
		"PebbleBytes": {Dir: "x", Sample: 1, PebbleBytes: 1},
		"OpenFiles":   {Dir: "x", Sample: 1, OpenFiles: -1},
	} {
		if s, err := Open(c); err == nil || !strings.HasPrefix(err.Error(), "chain: field "+field+": ") {
			t.Errorf("%+v: %v, %v", c, s, err)
		}
	}
}
