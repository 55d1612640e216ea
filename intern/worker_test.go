package intern

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"millrace/intern/kv"
	"millrace/intern/kv/simkv"
)

// TestTransactionBytes: the strings of one transaction stay within their bytes, however many are
// asked for at once.
func TestTransactionBytes(t *testing.T) {
	store := &smallStore{Store: simkv.New(simkv.Config{}), writes: 1 << 30}
	in := openOn(t, store, Config{Workers: 1, hooks: testHooks{batchStrings: 4096}})
	var long []string
	for i := range 2 * maxItemBytes / 2000 {
		long = append(long, fmt.Sprintf("did:web:%s%d", strings.Repeat("a", 2000), i))
	}
	resolve(t, in, long...)
	if most := store.most.Load(); most < maxItemBytes || most > 5*maxItemBytes/2 {
		t.Errorf("a transaction has written %d bytes", most)
	}
}

// TestAbandoned: a batch is given up only when no call waits for it.
func TestAbandoned(t *testing.T) {
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	left, waits := task{call: &call{ctx: ctx}}, task{call: &call{ctx: context.Background()}}
	for name, tc := range map[string]struct {
		batch []task
		want  error
	}{
		"the first waits": {[]task{waits, left}, nil},
		"the last waits":  {[]task{left, waits}, nil},
		"nobody waits":    {[]task{left, left}, gone},
	} {
		if err := (&worker{batch: tc.batch}).abandoned(); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSequencesAreGivenBack: a sequence that another instance turns out to use is left, and may be
// taken again.
func TestSequencesAreGivenBack(t *testing.T) {
	store := simkv.New(simkv.Config{})
	in := openOn(t, store, Config{Workers: 1, PrefixBits: 4, Seed: 1})
	left := make(map[uint32]bool)
	for i := range 30 {
		resolve(t, in, fmt.Sprintf("did:web:%d.example.com", i))
		taken := in.sequences.inUse()
		if len(taken) != 1 {
			t.Fatalf("one worker has taken the sequences %v", taken)
		}
		left[taken[0]] = true
		err := kv.Run(ctx, store, func(txn kv.Txn) error {
			txn.Set(appendSequenceKey(nil, taken[0]), appendNumber(uint64(1000*(i+1))))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(left) < 4 {
		t.Errorf("only the sequences %v were used", left)
	}
}

// TestTransactionKeepsNothing: a worker's buffers do not grow with the transactions that it makes.
func TestTransactionKeepsNothing(t *testing.T) {
	in := openOn(t, simkv.New(simkv.Config{}), Config{Alone: true, Workers: 1})
	for i := range 1000 {
		resolve(t, in, fmt.Sprintf("at://did:web:a.com/a.b.c/%d", i))
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if n := cap(in.workers[0].txn.buffer); n == 0 || n > 512 {
		t.Errorf("after transactions of one string the buffer has %d bytes", n)
	}
}
