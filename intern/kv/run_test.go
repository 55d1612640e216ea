package kv_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"millrace/intern/kv"
	"millrace/intern/kv/simkv"
)

func TestRetryable(t *testing.T) {
	for err, want := range map[error]bool{
		kv.ErrConflict: true, kv.ErrUnknownOutcome: true, kv.ErrTooOld: true, kv.ErrUnavailable: true, context.DeadlineExceeded: true,
		kv.ErrTooLarge: false, kv.ErrClosed: false, context.Canceled: false, errors.New("x"): false,
	} {
		if got := kv.Retryable(fmt.Errorf("wrapped: %w", err)); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

func TestPause(t *testing.T) {
	for attempts := range 200 {
		long, short := kv.Pause(attempts, kv.ErrUnavailable), kv.Pause(attempts, kv.ErrConflict)
		if long <= 0 || long > time.Second || short <= 0 || short > 16*time.Millisecond {
			t.Errorf("after %d attempts: %v, after conflicts %v", attempts, long, short)
		}
		if attempts > 12 && long < time.Second/2 {
			t.Errorf("after %d attempts only %v", attempts, long)
		}
	}
}

func TestRun(t *testing.T) {
	ctx := context.Background()
	store := simkv.New(simkv.Config{})
	calls := 0
	err := kv.Run(ctx, store, func(txn kv.Txn) error {
		if calls++; calls < 4 {
			return kv.ErrConflict
		}
		txn.Set([]byte("k"), []byte("v"))
		return nil
	})
	if err != nil || calls != 4 || store.Stats().Committed != 1 {
		t.Errorf("%v after %d calls, %+v", err, calls, store.Stats())
	}
	final := errors.New("final")
	calls = 0
	if err := kv.Run(ctx, store, func(kv.Txn) error { calls++; return final }); !errors.Is(err, final) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
	ctx, end := context.WithCancelCause(ctx)
	err = kv.Retry(ctx, func() error { end(final); return kv.ErrUnavailable })
	if !errors.Is(err, kv.ErrUnavailable) || !errors.Is(err, final) || strings.Contains(err.Error(), "\n") {
		t.Errorf("the context has ended: %v", err)
	}
}

// TestScanAllThroughFaults scans a store that fails now and then: every key is seen once, in order.
func TestScanAllThroughFaults(t *testing.T) {
	ctx := context.Background()
	store := simkv.New(simkv.Config{Seed: 3})
	err := kv.Run(ctx, store, func(txn kv.Txn) error {
		for i := range 2000 {
			txn.Set(fmt.Appendf(nil, "k%04d", i), []byte("v"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	store.SetFaults(simkv.Faults{Unavailable: 0.2})
	next := 0
	err = kv.ScanAll(ctx, store, kv.Range{Begin: []byte("k"), End: []byte("l")}, 100, func(p kv.Pair) error {
		if want := fmt.Sprintf("k%04d", next); string(p.Key) != want {
			t.Fatalf("%s comes when %s should", p.Key, want)
		}
		next++
		return nil
	})
	if err != nil || next != 2000 {
		t.Errorf("%v after %d keys", err, next)
	}
}
