package intern

import (
	"context"
	"errors"
	"time"

	"millrace/intern/kv"
)

// queueTasks is how many tasks may wait for a worker before callers wait with theirs.
const queueTasks = 64

// task is the part of a call that falls to one worker.
type task struct {
	call   *call
	items  []*item
	worker int // whose it is
}

// worker interns the strings whose DIDs' hashes fall to it, one transaction at a time. All tasks
// that are waiting when it begins one share it, up to batchStrings.
type worker struct {
	in    *Interner
	queue chan task
	txn   transaction
	batch []task
	items []*item // of batch
}

// run works until the Interner is closed.
func (w *worker) run() {
	for {
		select {
		case t := <-w.queue:
			w.work(t)
		case <-w.in.ctx.Done():
			return
		}
	}
}

// work interns first and what else is waiting.
func (w *worker) work(first task) {
	w.in.working.RLock()
	w.gather(first)
	err := w.intern(w.items)
	w.in.working.RUnlock() // before calls return: the next call may then run without a worker
	for i := range w.batch {
		w.batch[i].call.finish(err)
	}
	clear(w.batch)
	clear(w.items)
}

// gather fills the batch with first and what else is waiting.
func (w *worker) gather(first task) {
	w.batch = append(w.batch[:0], first)
	w.items = append(w.items[:0], first.items...)
	for len(w.items) < w.in.cfg.hooks.batchStrings {
		select {
		case t := <-w.queue:
			w.batch = append(w.batch, t)
			w.items = append(w.items, t.items...)
		default:
			return
		}
	}
}

// maxItemBytes bounds what the strings of one transaction hold together, so that it stays far below
// any store's limit: each string is stored about twice.
const maxItemBytes = 512 << 10

// intern interns items in transactions of at most batchStrings.
func (w *worker) intern(items []*item) error {
	for len(items) > 0 {
		n, size := 0, 0
		for n < len(items) && n < w.in.cfg.hooks.batchStrings && size < maxItemBytes {
			size += len(items[n].did) + len(items[n].coll) + len(items[n].text)
			n++
		}
		if err := w.split(items[:n]); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}

// errSplit says that a transaction is too large or takes too long, and can be made smaller.
var errSplit = errors.New("transaction must be split")

// split interns items in one transaction, or in smaller ones if it must be.
func (w *worker) split(items []*item) error {
	err := w.commit(items)
	if !errors.Is(err, errSplit) {
		return err
	}
	half := len(items) / 2
	if err := w.split(items[:half]); err != nil {
		return err
	}
	return w.split(items[half:])
}

// commit interns items in one transaction. It tries for as long as someone waits for the result.
func (w *worker) commit(items []*item) error {
	begun := time.Now()
	w.txn.collect(items)
	if w.txn.numbers() {
		// All that number collections raise one counter. One at a time they do not conflict, and
		// most that waited find their collections numbered.
		w.in.numbering.Lock()
		if w.txn.collect(items); w.txn.numbers() {
			defer w.in.numbering.Unlock()
		} else {
			w.in.numbering.Unlock()
		}
	}
	tooOld := 0
	for attempts := 1; ; attempts++ {
		err := w.in.attempt(w.in.ctx, w.in.cfg.Timeout, w.txn.run)
		if err == nil {
			w.txn.committed()
			took := time.Since(begun)
			w.in.metrics.transactionSeconds.Observe(took.Seconds())
			if w.in.group != nil {
				w.in.group.Observe(took)
			}
			return nil
		}
		w.txn.failed(!errors.Is(err, kv.ErrConflict))
		if w.in.ctx.Err() != nil {
			return errClosed
		}
		w.countRetry(err)
		if errors.Is(err, kv.ErrTooOld) {
			tooOld++
		}
		if (errors.Is(err, kv.ErrTooLarge) || tooOld > 1) && len(items) > 1 {
			return errSplit
		}
		if !kv.Retryable(err) {
			return err
		}
		if cause := w.abandoned(); cause != nil {
			return cause
		}
		if err := kv.Sleep(w.in.ctx, kv.Pause(attempts, err)); err != nil {
			return errClosed
		}
	}
}

// abandoned returns why no caller waits for the batch, nil if one does.
func (w *worker) abandoned() (cause error) {
	for _, t := range w.batch {
		if cause = context.Cause(t.call.ctx); cause == nil {
			return nil
		}
	}
	return cause
}

func (w *worker) countRetry(err error) {
	reason := "unavailable"
	switch {
	case errors.Is(err, kv.ErrConflict):
		reason = "conflict"
	case errors.Is(err, kv.ErrUnknownOutcome):
		reason = "unknown_outcome"
	case errors.Is(err, kv.ErrTooOld):
		reason = "too_old"
	case errors.Is(err, kv.ErrTooLarge):
		reason = "too_large"
	}
	w.in.metrics.retries.WithLabelValues(reason).Inc()
}
