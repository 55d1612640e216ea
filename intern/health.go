package intern

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"millrace/intern/kv"
)

// Status says whether the store answers.
type Status struct {
	Reachable bool
	Since     time.Time // of the present state
	Err       error     // why it is not reachable
}

// health follows whether the store answers, and logs once when that changes.
type health struct {
	log     *slog.Logger
	metrics *metrics

	mu    sync.Mutex
	state Status
	heard time.Time // when the store last answered
}

func newHealth(log *slog.Logger, m *metrics) *health {
	return &health{log: log, metrics: m, state: Status{Reachable: true, Since: time.Now()}}
}

// outage says whether err means that the store does not answer, as opposed to refusing one
// transaction.
func outage(err error) bool {
	return errors.Is(err, kv.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// recently: a transaction that runs out of time is no outage if the store answered within it.
const recently = time.Second

// note takes the outcome of an attempt. Errors that say nothing about the store's health leave it
// as it was.
func (h *health) note(err error) {
	up := err == nil || errors.Is(err, kv.ErrConflict)
	if !up && !outage(err) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if up {
		h.heard = now
	} else if errors.Is(err, context.DeadlineExceeded) && now.Sub(h.heard) < recently {
		return // one slow transaction among others that are not
	}
	if up == h.state.Reachable {
		return
	}
	before := h.state
	h.state = Status{Reachable: up, Since: time.Now(), Err: err}
	if up {
		h.state.Err = nil
		h.metrics.up.Set(1)
		h.log.Info("UID store answers again", "outage_seconds", time.Since(before.Since).Seconds())
		return
	}
	h.metrics.up.Set(0)
	h.metrics.outages.Inc()
	h.log.Error("UID store does not answer; reading pauses until it does", "err", err)
}

func (h *health) status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}
