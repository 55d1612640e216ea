package references

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"millrace/replay"
	"millrace/translate"
)

// Log is what Follow asks of the event log. *replay.Log implements it.
type Log interface {
	Changes(ctx context.Context, after replay.EpochEnd, f func(*replay.Changes) error) error
}

// Follow rolls the store forward to the end of the log. It must not run beside Hydrate and Apply,
// and nothing may be between them. progress, if not nil, is called with each position reached. The
// errors are those of the log, ctx and the store. With replay.ErrTrimmed the store is behind what
// the log holds, and needs a new generation.
func (s *Store) Follow(ctx context.Context, log Log, progress func(Position)) error {
	var changes []Change
	err := log.Changes(ctx, s.Position(), func(c *replay.Changes) error {
		changes = AppendLogChanges(changes[:0], c)
		b := Batch{Position: c.Through, Changes: changes}
		if err := s.Hydrate(ctx, &b); err != nil {
			return err
		}
		if err := s.Apply(&b); err != nil {
			return err
		}
		if progress != nil {
			progress(b.Position)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("roll the reference store forward: %w", err)
	}
	return nil
}

// Touched calls f with each account whose records of some collections the log may have changed
// after a position, and maybe with others; with some more than once. Errors are f's and the log's.
func Touched(ctx context.Context, log Log, after Position, collections [][]byte, f func(account uint64) error) error {
	return log.Changes(ctx, after, func(c *replay.Changes) error {
		for i := range c.Events {
			e := &c.Events[i]
			named := func(collection []byte) bool { return bytes.Contains(e.Payload, collection) }
			if e.DIDUID == 0 || e.Kind == translate.KindCommit && !slices.ContainsFunc(collections, named) {
				continue
			}
			if err := f(e.DIDUID); err != nil {
				return err
			}
		}
		return nil
	})
}

// AppendLogChanges appends the changes of what the log holds.
func AppendLogChanges(dst []Change, c *replay.Changes) []Change {
	if c.Gap != nil {
		dst = append(dst, GapChange(c.Gap))
	}
	for i := range c.Events {
		e := &c.Events[i]
		change, ok := EventChange(Event{e.Kind, e.Operation, e.Seq, e.DIDUID, e.URIUID}, e.Payload)
		if !ok {
			continue
		}
		if change.Operation == Create || change.Operation == Update {
			for _, r := range e.References {
				change.References = append(change.References, Reference{r.Source, r.Subject, r.Authority})
			}
		}
		dst = append(dst, change)
	}
	return dst
}

// Event is what EventChange must know of an event beside its JSON.
type Event struct {
	Kind      translate.Kind
	Operation translate.Operation
	Seq       int64
	DIDUID    uint64
	URIUID    uint64
}

// EventChange returns the change that an event is, without references. ok is false if it is none.
// Such are an identity event, an account event without a status, and an op without UIDs. So are a
// commit and a #sync with the rev 0, which is above no other.
func EventChange(e Event, payload []byte) (c Change, ok bool) {
	c = Change{Seq: e.Seq, Account: e.DIDUID}
	if c.Account == 0 {
		return c, false
	}
	switch e.Kind {
	case translate.KindAccount:
		status, ok := translate.PayloadStatus(payload)
		c.TimeUS = status.TimeUS
		switch {
		case status.Deleted:
			c.Operation = DeleteAccount
		case status.Active:
			c.Operation = Activate
		default:
			c.Operation = Deactivate
		}
		return c, ok
	case translate.KindCommit:
		c.Operation = Operation(e.Operation)
		c.Record = e.URIUID
		c.Rev, ok = translate.PayloadRev(payload)
		return c, ok && c.Rev != 0 && c.Record != 0
	case translate.KindSync:
		c.Operation = Sync
		c.Rev, c.TimeUS, ok = translate.PayloadSync(payload)
		return c, ok && c.Rev != 0
	}
	return c, false
}

// GapChange returns the change that a gap is.
func GapChange(g *replay.Gap) Change { return Change{Operation: Gap, TimeUS: g.TimeUS} }
