package chain

import (
	"encoding/hex"
	"errors"
	"maps"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"millrace/intern/kv/pebbleguard"
	"millrace/translate/verify"
)

// beginAt opens a store and begins.
func beginAt(fs vfs.FS, at Position, sample uint64) (*Store, error) {
	s, err := Open(Config{Dir: "chains", FS: fs, Sample: sample})
	if err != nil {
		return nil, err
	}
	if err := s.Begin(at); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func openTest(t *testing.T, fs vfs.FS, at Position, sample uint64) *Store {
	t.Helper()
	s, err := beginAt(fs, at, sample)
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
func checkStates(t *testing.T, s *Store, want map[Account]verify.State) {
	t.Helper()
	for n := range byte(20) {
		account := Account{n}
		if got, err := s.Get(account); err != nil || got != want[account] {
			t.Fatalf("account %x is in state %v, want %v; %v", account, got, want[account], err)
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
	at, want, sample := Position{Epoch: 1}, map[Account]verify.State{}, uint64(1)
	lost := 0
	for life := range 60 {
		refused, err := Open(Config{Dir: "chains", FS: fs, Sample: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if err := refused.Close(); err != nil { // before it begins: nothing changes
			t.Fatal(err)
		}
		s := openTest(t, fs, at, sample)
		checkStates(t, s, want)
		newest := maps.Clone(want)
		var waiting []Change
		before, beforeAt := want, at
		for range rng.IntN(6) {
			for range rng.IntN(12) {
				account := Account{byte(rng.IntN(20))}
				last, err := s.Get(account)
				if err != nil || last != newest[account] {
					t.Fatalf("account %x is in state %v, want %v; %v", account, last, newest[account], err)
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
			at, want = Position{Epoch: at.Epoch + 1}, map[Account]verify.State{}
		case 4:
			sample, want = sample+1, map[Account]verify.State{}
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
		c := Change{Account: Account{byte(i % 10)}, Before: verify.State{Rev: i}, After: verify.State{Rev: i + 10}}
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
	if err := errors.Join(b.Set(stateKey(Account{3}), []byte("short"), nil), s.db.Commit(b, true)); err != nil {
		t.Fatal(err)
	}
	var damage *pebbleguard.CorruptionError
	if _, err := s.Get(Account{3}); !errors.As(err, &damage) || !strings.Contains(err.Error(), "5 bytes") {
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
		c.FS = vfs.NewMem()
		if s, err := Open(c); err == nil || !strings.HasPrefix(err.Error(), "chain: field "+field+": ") {
			t.Errorf("%+v: %v, %v", c, s, err)
		}
	}
	if err := (Config{Dir: "x", Sample: 1, PebbleBytes: minPebbleBytes}).validate(); err != nil {
		t.Error(err)
	}
	c := Config{}.withDefaults()
	if c.Logger == nil || c.PebbleBytes != 8<<20 || c.OpenFiles != 1000 {
		t.Errorf("defaults: %+v", c)
	}
	set := Config{PebbleBytes: 1, OpenFiles: 2, Logger: c.Logger}
	if got := set.withDefaults(); got != set {
		t.Errorf("what is set becomes %+v", got)
	}
}

// TestBeginsAnew: a store of another sample or version knows nothing, also where the log is at the
// position before its last Commit. An account whose state is zero has none.
func TestBeginsAnew(t *testing.T) {
	state, first, second := verify.State{Rev: 3}, Position{Epoch: 1, Seq: 1}, Position{Epoch: 1, Seq: 2}
	for _, tc := range []struct {
		name    string
		version uint32
		sample  uint64
		known   bool
	}{{"the same", formatNumber, 1, true}, {"another sample", formatNumber, 2, false}, {"another version", formatNumber + 1, 1, false}} {
		fs := vfs.NewMem()
		s := openTest(t, fs, Position{}, 1)
		err := errors.Join(s.Commit(first, []Change{{Account: Account{3}, After: state}}), s.Commit(second, []Change{{Account: Account{3}, Before: state}}))
		if _, ok, valueErr := s.db.Value(stateKey(Account{3})); ok || errors.Join(err, valueErr) != nil {
			t.Errorf("a zero state is kept: %v, %v", err, valueErr)
		}
		b := s.db.Pebble().NewBatch()
		if err := errors.Join(b.Set(metaKey(), appendMeta(nil, meta{tc.version, 1, second}), nil), s.db.Commit(b, true), s.Close()); err != nil {
			t.Fatal(err)
		}
		s = openTest(t, fs, first, tc.sample)
		if got, err := s.Get(Account{3}); err != nil || (got == state) != tc.known || !tc.known && got != (verify.State{}) {
			t.Errorf("%s: %v, %v", tc.name, got, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		// The Commit before that of the states is no longer known, nor is the log's beginning it.
		s = openTest(t, fs, Position{}, tc.sample)
		if got, err := s.Get(Account{3}); err != nil || got != (verify.State{}) {
			t.Errorf("%s, of a log that was replaced: %v, %v", tc.name, got, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestCloseFails: an error of the database's end is returned each time.
func TestCloseFails(t *testing.T) {
	s := openTest(t, vfs.NewMem(), Position{}, 1)
	s.db.Pebble().NewSnapshot() // leaks
	if err := s.Close(); err == nil || s.Close() == nil {
		t.Errorf("closed: %v", err)
	}
}

// TestFormats: keys and values are what stores have, and what has another length is not taken for
// one.
func TestFormats(t *testing.T) {
	state := verify.State{Rev: 5, Data: verify.Digest{6}}
	at := Position{Epoch: 3, Seq: 4}
	const atHex, stateHex = "030000000400000000000000", "05000000000000000600000000000000000000000000000000000000000000000000000000000000"
	undo := appendUndo(nil, at, []Change{{Account: Account{7}, Before: state}})
	for want, got := range map[string][]byte{
		"01": metaKey(), "02": undoKey(), "0301020000000000000000000000000000": stateKey(Account{1, 2}), stateHex: appendState(nil, state),
		"010000000200000000000000" + atHex: appendMeta(nil, meta{1, 2, at}), atHex + "07000000000000000000000000000000" + stateHex: undo,
	} {
		if hex.EncodeToString(got) != want {
			t.Errorf("%x, want %s", got, want)
		}
	}
	account := AccountOf([]byte("did:plc:ewvi7nxzyoun6zxhrxs64oiz"))
	if got := hex.EncodeToString(account[:]); got != "b5819b10a87068aab869f6ced36f03e5" || account.Number() != 0xb5819b10a87068aa {
		t.Errorf("account %s, number %x", got, account.Number())
	}
	if from, replaced := decodeUndo(undo); from != at || len(replaced) != 1 || replaced[0] != (Change{Account: Account{7}, Before: state}) {
		t.Errorf("%v, %v", from, replaced)
	}
	for n := range len(undo) {
		if from, replaced := decodeUndo(undo[:n]); (from == at) != (n == positionBytes) || len(replaced) > 0 {
			t.Errorf("%d bytes: %v, %v", n, from, replaced)
		}
	}
	m := appendMeta(nil, meta{1, 2, at})
	if got := decodeMeta(append(m, 0)); decodeMeta(m) != (meta{1, 2, at}) || got != (meta{}) || decodeMeta(m[1:]) != (meta{}) {
		t.Errorf("one byte more: %+v", got)
	}
}

// TestEachFailedCall fails each call of the file system in turn. Open and Commit return it, and a
// Get gives no other state. After a crash the store is at one of the two positions. It was one
// Commit ahead.
func TestEachFailedCall(t *testing.T) {
	made, errDisk := vfs.NewCrashableMem(), errors.New("the disk")
	states := map[Account]verify.State{{3}: {Rev: 3}, {4}: {Rev: 4}}
	first := Position{Epoch: 1, Seq: 1}
	s := openTest(t, made, Position{}, 1)
	err := errors.Join(s.Commit(first, []Change{{Account: Account{3}, After: states[Account{3}]}, {Account: Account{4}, After: states[Account{4}]}}),
		s.Commit(Position{Epoch: 1, Seq: 9}, []Change{{Account: Account{3}, Before: states[Account{3}]}, {Account: Account{4}, Before: states[Account{4}], After: verify.State{Rev: 9}}, {Account: Account{5}, After: verify.State{Rev: 5}}}))
	// No write-ahead log is left: where one is replayed, Pebble panics if Open then fails.
	if err := errors.Join(err, s.db.Flush(), s.Close()); err != nil {
		t.Fatal(err)
	}
	fails := 0
	for n := int64(1); ; n++ {
		var calls atomic.Int64
		fs := made.CrashClone(vfs.CrashCloneCfg{})
		failing := errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if calls.Add(1) == n {
				return errDisk
			}
			return nil
		}))
		failed := func() bool { return calls.Load() >= n }
		s, err := beginAt(failing, first, 1)
		if err == nil {
			for id := range byte(6) {
				account := Account{id}
				if got, err := s.Get(account); err == nil && got != states[account] {
					t.Fatalf("call %d: account %x is in state %v", n, account, got)
				}
			}
			err = s.Commit(Position{Epoch: 1, Seq: 2}, []Change{{Account: Account{3}, Before: states[Account{3}]}})
			if err != nil && s.Err() == nil {
				t.Fatalf("call %d: %v, and the store has not failed", n, err)
			}
			_ = s.Close()
		}
		if err != nil {
			fails++
		}
		if !failed() {
			break
		}
		at, want := first, states
		if err == nil {
			at, want = Position{Epoch: 1, Seq: 2}, map[Account]verify.State{{4}: states[Account{4}]}
		}
		s = openTest(t, fs.CrashClone(vfs.CrashCloneCfg{}), at, 1)
		checkStates(t, s, want)
		_ = s.Close()
	}
	if fails < 5 {
		t.Errorf("only %d calls fail", fails)
	}
}
