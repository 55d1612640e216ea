package intern

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"millrace/intern/kv"
	"millrace/intern/kv/simkv"
)

// TestHealth has one transaction run out of time among others that do not. That is no outage. When
// none has been answered for a while it is, and so is a store that says that it cannot be reached.
func TestHealth(t *testing.T) { synctest.Test(t, healthOf) }

func healthOf(t *testing.T) {
	m, err := newMetrics(nil, &registry{})
	if err != nil {
		t.Fatal(err)
	}
	late := fmt.Errorf("%w: %w", kv.ErrUnavailable, context.DeadlineExceeded)
	h := newHealth(slog.New(slog.DiscardHandler), m)
	h.note(nil)
	h.note(late)
	if !h.status().Reachable {
		t.Error("one late answer made the store unreachable")
	}
	h.heard = time.Now().Add(-2 * recently)
	h.note(late)
	if s := h.status(); s.Reachable || s.Err == nil {
		t.Error("no answer for long, and the store is reachable")
	}
	h.note(kv.ErrConflict)
	if !h.status().Reachable {
		t.Error("a conflict is an answer")
	}
	h.heard = time.Now().Add(-2 * recently)
	h.note(fmt.Errorf("commit: %w", context.DeadlineExceeded))
	if h.status().Reachable {
		t.Error("no transaction ends in time for long, and the store is reachable")
	}
	h.note(nil)
	h.note(fmt.Errorf("commit: %w", context.Canceled))
	if !h.status().Reachable {
		t.Error("a caller gave up, and the store is unreachable")
	}
	h.note(kv.ErrUnavailable)
	if h.status().Reachable {
		t.Error("the store says that it is unavailable, and is reachable")
	}
}

// TestWhoseTime: a transaction that its caller ends says nothing about the store. One that takes
// the configured time does.
func TestWhoseTime(t *testing.T) {
	in := openOn(t, simkv.New(simkv.Config{}), Config{})
	in.health.mu.Lock()
	in.health.heard = time.Time{}
	in.health.mu.Unlock()
	wait := func(ctx context.Context, _ kv.Txn) error { <-ctx.Done(); return context.Cause(ctx) }
	short, cancel := context.WithDeadline(ctx, time.Time{})
	defer cancel()
	if err := in.attempt(short, in.cfg.Timeout, wait); err == nil || !in.Status().Reachable {
		t.Errorf("of a caller without time: %v, %+v", err, in.Status())
	}
	if err := in.attempt(ctx, 0, wait); err == nil || in.Status().Reachable {
		t.Errorf("of a store without time: %v, %+v", err, in.Status())
	}
}
