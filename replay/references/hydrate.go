package references

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// maxLookups is how many look-ups of one Hydrate are under way at once.
const maxLookups = 4

// minParallel is how many look-ups are worth a goroutine.
const minParallel = 8

// Hydrate fills in what the changes of b had and whether they are repeated, gives their arrival
// numbers, and enters them into the overlay. It must be called in relay order, by one goroutine at
// a time, and Apply must follow for each batch in the same order. While the overlay is full of
// batches that are not applied, it waits for Apply. So a caller that hydrates several batches
// before the first is applied applies them in another goroutine. An error leaves nothing in the
// overlay, or is the failure of the store.
func (s *Store) Hydrate(ctx context.Context, b *Batch) error {
	if err := s.check(b); err != nil {
		return fmt.Errorf("hydrate references: %w", err)
	}
	bytes := cost(b.Changes)
	if err := s.waitForRoom(ctx, bytes); err != nil {
		return fmt.Errorf("hydrate references: %w", err)
	}
	h := &s.hydration
	h.begin(b)
	s.mu.Lock()
	h.gather(b)
	s.mu.Unlock()
	if err := h.fetch(s); err != nil {
		return s.fail("hydrate references", err)
	}
	if s.cfg.hooks.gathered != nil {
		s.cfg.hooks.gathered()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range b.Changes {
		c := &b.Changes[i]
		found, err := h.change(c, h.entries[i])
		if err != nil {
			return s.fail("hydrate references", err)
		}
		s.metrics.hydrated(c, found)
		bytes += int64(len(c.Had)) * referenceBytes // until the caller is done with it
	}
	bytes += h.pending.bytes
	h.pending.bytes = bytes
	s.overlay.bytes += bytes
	h.hydrated++
	h.reached = h.pending.state
	b.pending, h.pending = h.pending, nil
	return nil
}

// check makes sure that the batch follows those before it.
func (s *Store) check(b *Batch) error {
	last := s.hydration.reached.position
	switch {
	case s.cfg.ReadOnly:
		return errReadOnly
	case b.pending != nil:
		return errors.New("the batch was hydrated before")
	case s.Generation().Number == 0:
		return errors.New("no generation was begun")
	case b.Position.Before(last):
		return fmt.Errorf("its position, %v, is before that of the last batch, %v", b.Position, last)
	}
	before := Position{Epoch: b.Position.Epoch}
	if last.Epoch == b.Position.Epoch {
		before.Seq = last.Seq + 1
	}
	for i := range b.Changes {
		c := &b.Changes[i]
		if err := c.check(); err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
		if c.Seq == 0 {
			continue
		}
		if c.Seq < before.Seq || c.Seq > b.Position.Seq {
			return fmt.Errorf("change %d: seq %d is not %d to %d", i, c.Seq, before.Seq, b.Position.Seq)
		}
		before.Seq = c.Seq
	}
	return nil
}

func (c *Change) check() error {
	switch {
	case c.Operation < Create || c.Operation > Purge:
		return fmt.Errorf("unknown operation %d", c.Operation)
	case c.Operation != Gap && c.Account == 0:
		return errors.New("no account")
	case c.Operation <= Delete && c.Record == 0:
		return errors.New("no record")
	case (c.Operation <= Delete || c.Operation == Import) && c.Rev == 0:
		return errors.New("no rev")
	case c.Seq < 0:
		return fmt.Errorf("seq %d is negative", c.Seq)
	}
	return nil
}

// Hydrated returns the number of batches that Hydrate is through with. Any goroutine may call it.
func (s *Store) Hydrated() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hydration.hydrated
}

// waitForRoom returns when the overlay has room; applied batches make it. A batch that is larger
// than the overlay may be gets it when it is the only one.
func (s *Store) waitForRoom(ctx context.Context, bytes int64) error {
	var begun time.Time
	for {
		s.mu.Lock()
		s.overlay.makeRoom(bytes, s.cfg.OverlayBytes)
		fits := s.overlay.bytes == 0 || s.overlay.bytes+bytes <= s.cfg.OverlayBytes
		s.mu.Unlock()
		if fits {
			if !begun.IsZero() {
				s.metrics.waitSeconds.Add(time.Since(begun).Seconds())
			}
			return s.Err()
		}
		if begun.IsZero() {
			begun = time.Now()
			if s.cfg.hooks.waiting != nil {
				s.cfg.hooks.waiting()
			}
		}
		select {
		case <-s.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.Failed():
			return s.Err()
		}
	}
}

// hydration is what one Hydrate works with; its maps are used again by the next. One goroutine at a
// time uses it.
type hydration struct {
	codec    UIDCodec
	overlay  *overlay
	hydrated uint64 // number of the last hydrated batch
	reached  state  // the state after that batch

	pending *pending
	values  []byte // of pending

	rows     map[recordID][]byte // of the database; nil: absent
	accounts accountCache
	entries  []*accountEntry // by change; of a gap nil

	// Those that have to be read from the database.
	missingRows     []recordID
	missingAccounts []missingAccount

	commit lastCommit
}

type missingAccount struct {
	account uint64
	entry   *accountEntry
}

// lastCommit is the commit that the last change was in.
type lastCommit struct {
	seq      int64
	account  uint64
	rev      uint64
	accepted bool
}

func newHydration(codec UIDCodec, o *overlay, reached state, accountBytes int64) hydration {
	return hydration{
		codec: codec, overlay: o, reached: reached,
		rows:     make(map[recordID][]byte),
		accounts: newAccountCache(accountBytes),
	}
}

func (h *hydration) begin(b *Batch) {
	h.pending = &pending{number: h.hydrated + 1, state: h.reached}
	h.pending.state.position = b.Position
	h.values, h.commit = make([]byte, 0, rowBytes(b.Changes)), lastCommit{}
	clear(h.rows)
	clear(h.entries) // a failed Hydrate may have left more
	h.entries = h.entries[:0]
	h.missingRows, h.missingAccounts = h.missingRows[:0], h.missingAccounts[:0]
}

// gather notes what the changes need and the overlay does not have. No batch leaves that before
// they are entered.
func (h *hydration) gather(b *Batch) {
	o := h.overlay
	// Batches after Since may have records that are new to this one: their UIDs were given
	// together, or to this one first. The overlay shows them unless one has left it.
	overlaid := o.left <= b.Since
	for i := range b.Changes {
		c := &b.Changes[i]
		if c.Operation == Gap {
			h.entries = append(h.entries, nil)
			continue
		}
		e, known := h.accounts.use(c.Account, h.pending.number, o.lastApplied())
		h.entries = append(h.entries, e)
		if !known {
			h.missingAccounts = append(h.missingAccounts, missingAccount{c.Account, e})
		}
		if c.Operation > Delete {
			continue
		}
		id := recordID{c.Account, c.Record}
		if _, ok := o.records[id]; !ok && !(c.New && overlaid) {
			h.missingRows = append(h.missingRows, id)
		}
	}
}

// fetch reads from the database what gather has noted.
func (h *hydration) fetch(s *Store) error {
	slices.SortFunc(h.missingAccounts, func(a, b missingAccount) int { return cmp.Compare(a.account, b.account) })
	slices.SortFunc(h.missingRows, recordID.compare)
	h.missingRows = slices.Compact(h.missingRows)
	accounts := h.missingAccounts
	rows := make([][]byte, len(h.missingRows))
	n := len(accounts) + len(rows)
	read := func(from, to int) error {
		for i := from; i < to; i++ {
			var err error
			if i < len(accounts) {
				accounts[i].entry.state, _, err = s.firstState(accounts[i].account)
			} else {
				rows[i-len(accounts)], err = s.lookUp(s.codec.recordKey(h.missingRows[i-len(accounts)]))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	var g errgroup.Group
	part := max(minParallel, (n+maxLookups-1)/maxLookups)
	for from := 0; from < n; from += part {
		g.Go(func() error { return read(from, min(from+part, n)) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, id := range h.missingRows {
		h.rows[id] = rows[i]
	}
	return nil
}

// change fills in one change and enters it. found says that its record was there before. Store.mu
// is held.
func (h *hydration) change(c *Change, e *accountEntry) (found bool, err error) {
	c.Had, c.Repeated, c.Arrival = nil, false, 0
	p := h.pending
	if c.Operation == Gap {
		p.state.inexactUS = cmp.Or(p.state.inexactUS, c.TimeUS)
		return false, nil
	}
	state := e.state
	switch c.Operation {
	case Create, Update, Delete:
		if c.Repeated = !h.accepts(c, &state); !c.Repeated {
			found, err = h.record(c, state.floor)
		}
	case DeleteAccount:
		if c.Repeated = c.TimeUS <= state.deletedUS; !c.Repeated {
			state.forget(p.state.arrival)
			state.deletedUS = c.TimeUS
			state.setInactive(true, c.TimeUS)
		}
	case Deactivate, Activate:
		state.setInactive(c.Operation == Deactivate, c.TimeUS)
	case Sync:
		if c.Repeated = c.Rev <= state.rev; !c.Repeated && (state.rev != 0 || state.imported != 0) {
			state.inexactUS = cmp.Or(state.inexactUS, c.TimeUS)
		}
	case Import:
		if c.Repeated = c.Rev <= state.purged; !c.Repeated {
			p.state.arrival++ // for the high-water mark
			state.forget(p.state.arrival)
			state.rev, state.imported = c.Last, c.Rev
		}
	case Purge:
		state.rev = max(state.rev, state.imported, c.Rev)
		state.purged = state.rev
		p.state.arrival++ // for the high-water mark
		state.forget(p.state.arrival)
	}
	if state != e.state {
		p.state.syncs.changed(e.state.inexactUS, state.inexactUS)
		h.setAccount(c.Account, state, e)
	}
	return found, err
}

// forget raises the floor above the last arrival number: the account has no records.
func (s *accountState) forget(arrival uint64) {
	s.imported, s.inexactUS, s.floor = 0, 0, arrival+1
}

// setInactive takes what an #account says, unless the account has said something later. Of one that
// was always active it keeps nothing.
func (s *accountState) setInactive(inactive bool, timeUS int64) {
	if timeUS > 0 && timeUS >= s.statusUS && (inactive || s.statusUS != 0) {
		s.inactive, s.statusUS = inactive, timeUS
	}
}

// accepts says whether a record's change is new, and raises the account's rev. All changes of a
// commit are, or none is. Those of an import all have its rev.
func (h *hydration) accepts(c *Change, state *accountState) bool {
	if c.Seq == 0 && c.Rev == state.imported {
		return true
	}
	if l := h.commit; l.seq == c.Seq && l.account == c.Account && l.rev == c.Rev {
		return l.accepted
	}
	h.commit = lastCommit{c.Seq, c.Account, c.Rev, c.Rev > state.rev}
	state.rev = max(state.rev, c.Rev)
	return h.commit.accepted
}

// record enters a change of a record that is not repeated.
func (h *hydration) record(c *Change, floor uint64) (found bool, err error) {
	w := recordWrite{id: recordID{c.Account, c.Record}}
	old := h.rows[w.id]
	entry, ok := h.overlay.records[w.id]
	if ok {
		old = entry.value
	}
	w.old = old
	if old != nil {
		arrival, refs, err := rowArrival(old)
		if err == nil && arrival < floor {
			w.below = !ok || entry.batch != h.pending.number
		} else if err == nil {
			found = true
			c.Had, err = h.codec.appendReferences(nil, c.Account, refs)
		}
		if err != nil {
			return false, damaged(h.codec.recordKey(w.id), err)
		}
	}
	if c.Operation == Delete {
		if found {
			h.setRecord(w)
		}
		return found, nil
	}
	h.pending.state.arrival++
	c.Arrival = h.pending.state.arrival
	from := len(h.values)
	h.values = h.codec.appendRow(h.values, c.Account, c.Arrival, c.References)
	w.value = h.values[from:len(h.values):len(h.values)]
	h.setRecord(w)
	return found, nil
}

func (h *hydration) setRecord(w recordWrite) {
	p := h.pending
	h.overlay.records[w.id] = recordEntry{batch: p.number, value: w.value}
	p.records = append(p.records, w)
	p.bytes += int64(len(w.old))
}

func (h *hydration) setAccount(account uint64, state accountState, e *accountEntry) {
	p := h.pending
	if e.index < 0 {
		e.index = len(p.accounts)
		p.accounts = append(p.accounts, accountWrite{account: account})
	}
	w := &p.accounts[e.index]
	w.swept = w.swept || state.floor != e.state.floor
	w.purged = w.purged || state.purged != e.state.purged
	p.sweeps = p.sweeps || w.swept
	w.state, e.state = state, state
}
