package replay

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"millrace/replay/internal/format"
	"millrace/replay/internal/logstore"
)

// DictionaryUse is a dictionary that the log keeps, because blocks in it may be compressed with it.
type DictionaryUse struct {
	ID     uint32
	Since  time.Time // when it first became the stored one; zero: before that was recorded
	Stored bool      // new blocks are compressed with it
}

// Dictionaries returns the dictionaries that the log keeps, the stored one last. One that was
// replaced goes with the last block that may be compressed with it.
func (l *Log) Dictionaries() []DictionaryUse {
	uses := l.snap.Load().uses
	out := make([]DictionaryUse, len(uses))
	for i, u := range uses {
		out[i] = DictionaryUse{ID: u.ID, Stored: i == len(uses)-1}
		if u.SinceUS != 0 {
			out[i].Since = time.UnixMicro(u.SinceUS).UTC()
		}
	}
	return out
}

// dictionaries makes those known that blocks in the log may be compressed with, keeps the one in
// use, and drops those that no block needs. So a dictionary may be replaced without the
// old file at hand. It runs after state.
func (o *opener) dictionaries() error {
	files, err := logstore.Dictionaries(o.store)
	if err != nil {
		return err
	}
	recorded, _, err := logstore.Meta(o.store, format.MetaDictionaries, format.DecodeUses)
	if err != nil {
		return err
	}
	// Versions that did not record uses stored the file alone: it may be of any block there is.
	had := make([]format.Use, 0, len(files)+1)
	for id := range files {
		if format.FindUse(recorded, id) < 0 {
			had = append(had, format.Use{ID: id, ThroughUS: o.snap.TimeUS})
		}
	}
	slices.SortFunc(had, func(a, b format.Use) int { return cmp.Compare(a.ID, b.ID) })
	had = append(had, recorded...)
	for _, u := range recorded {
		if files[u.ID] == nil {
			return logstore.Corrupt(format.RangeDictionary, int64(u.ID), format.ErrMissing)
		}
	}
	stored := o.cfg.Dictionaries.Stored()
	uses := had
	if !o.cfg.ReadOnly {
		uses = format.ReplaceStored(slices.Clone(had), stored.ID(), o.cfg.Now().UnixMicro(), o.snap.TimeUS)
	}
	uses = format.NeededUses(uses, o.snap.Floor.TimeUS)
	for _, u := range uses {
		if d := files[u.ID]; d == nil {
			continue
		} else if err := o.cfg.Dictionaries.Add(d); err != nil {
			return fmt.Errorf("add the dictionaries of its blocks: %w", err)
		}
	}
	o.snap.uses = uses
	if slices.Equal(uses, recorded) {
		return nil
	}
	if files[stored.ID()] == nil {
		err = o.batch.Set(format.DictionaryKey(stored.ID()),
			format.AppendTrailer(slices.Clone(stored.Bytes()), format.RangeDictionary, int64(stored.ID())), nil)
	}
	return errors.Join(err, logstore.PutUses(o.batch, had, uses))
}
