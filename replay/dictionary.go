package replay

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"millrace/dict"
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

// replaceStored makes id the stored dictionary of a log whose newest stamp is timeUS. It may
// reorder uses.
func replaceStored(uses []format.Use, id uint32, nowUS, timeUS int64) []format.Use {
	if n := len(uses); n > 0 {
		last := &uses[n-1]
		if last.ID == id {
			return uses
		}
		if timeUS > last.FromUS {
			last.ThroughUS = timeUS
		}
	}
	u := format.Use{ID: id, SinceUS: nowUS}
	if i := format.FindUse(uses, id); i >= 0 {
		u = uses[i]
		uses = slices.Delete(uses, i, i+1)
	}
	u.FromUS = timeUS
	return append(uses, u)
}

// neededUses returns the uses that blocks after floorUS may be of, and the stored one.
func neededUses(uses []format.Use, floorUS int64) []format.Use {
	var needed []format.Use
	for i, u := range uses {
		if i == len(uses)-1 || u.ThroughUS > floorUS {
			needed = append(needed, u)
		}
	}
	return needed
}

// putUses adds to the batch what makes the store's dictionaries, which are those of old, those of
// next.
func putUses(batch *pebble.Batch, old, next []format.Use) error {
	for _, u := range old {
		if format.FindUse(next, u.ID) < 0 {
			if err := batch.Delete(format.DictionaryKey(u.ID), nil); err != nil {
				return err
			}
		}
	}
	return logstore.PutMeta(batch, format.MetaDictionaries, format.AppendUses(nil, next))
}

// dictionaries makes those known that blocks in the log may be compressed with, keeps the one in
// use, and drops those that no block needs. So a dictionary may be replaced without the
// old file at hand. It runs after state.
func (o *opener) dictionaries() error {
	files, err := o.dictionaryFiles()
	if err != nil {
		return err
	}
	v, _, err := logstore.Meta(o.store, format.MetaDictionaries)
	if err != nil {
		return err
	}
	recorded, err := format.DecodeUses(v)
	if err != nil {
		return logstore.Corrupt(format.RangeMeta, 0, fmt.Errorf("%s: %w", format.MetaDictionaries, err))
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
		uses = replaceStored(slices.Clone(had), stored.ID(), o.cfg.Now().UnixMicro(), o.snap.TimeUS)
	}
	uses = neededUses(uses, o.snap.Floor.TimeUS)
	for _, u := range uses {
		if d := files[u.ID]; d == nil {
			continue
		} else if err := o.cfg.Dictionaries.Add(d); err != nil {
			return fmt.Errorf("the log has blocks made with another dictionary of the same ID: %w", err)
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
	return errors.Join(err, putUses(o.batch, had, uses))
}

// dictionaryFiles reads the dictionaries in the store.
func (o *opener) dictionaryFiles() (map[uint32]*dict.Dictionary, error) {
	it, err := o.store.NewIter(&pebble.IterOptions{
		LowerBound: format.RangeDictionary.Start(), UpperBound: format.RangeDictionary.End()})
	if err != nil {
		return nil, fmt.Errorf("read the dictionaries: %w", err)
	}
	defer it.Close()
	files := make(map[uint32]*dict.Dictionary)
	for it.First(); it.Valid(); it.Next() {
		if len(it.Key()) != 5 {
			return nil, logstore.Corrupt(format.RangeDictionary, 0, fmt.Errorf("malformed key of %d bytes", len(it.Key())))
		}
		id := binary.BigEndian.Uint32(it.Key()[1:])
		raw, err := format.OpenTrailer(it.Value(), format.RangeDictionary, int64(id))
		if err != nil {
			return nil, logstore.Corrupt(format.RangeDictionary, int64(id), err)
		}
		// The dictionary keeps the bytes, the iterator reuses them.
		if files[id], err = dict.Parse(slices.Clone(raw)); err != nil {
			return nil, logstore.Corrupt(format.RangeDictionary, int64(id), err)
		}
	}
	if err := it.Error(); err != nil {
		return nil, fmt.Errorf("read the dictionaries: %w", err)
	}
	return files, nil
}
