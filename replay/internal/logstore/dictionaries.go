package logstore

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"millrace/dict"
	"millrace/replay/internal/format"
	"millrace/replay/internal/pebblestore"
)

// Dictionaries reads the dictionaries in the store, by ID.
func Dictionaries(st *pebblestore.Store) (map[uint32]*dict.Dictionary, error) {
	it, err := st.NewIter(&pebble.IterOptions{
		LowerBound: format.RangeDictionary.Start(), UpperBound: format.RangeDictionary.End()})
	if err != nil {
		return nil, fmt.Errorf("read the dictionaries: %w", err)
	}
	defer it.Close()
	files := make(map[uint32]*dict.Dictionary)
	for it.First(); it.Valid(); it.Next() {
		if len(it.Key()) != 5 {
			return nil, Corrupt(format.RangeDictionary, 0, fmt.Errorf("malformed key of %d bytes", len(it.Key())))
		}
		id := binary.BigEndian.Uint32(it.Key()[1:])
		raw, err := format.OpenTrailer(it.Value(), format.RangeDictionary, int64(id))
		if err != nil {
			return nil, Corrupt(format.RangeDictionary, int64(id), err)
		}
		// The dictionary keeps the bytes, the iterator reuses them.
		if files[id], err = dict.Parse(slices.Clone(raw)); err != nil {
			return nil, Corrupt(format.RangeDictionary, int64(id), err)
		}
	}
	if err := it.Error(); err != nil {
		return nil, fmt.Errorf("read the dictionaries: %w", err)
	}
	return files, nil
}

// PutUses adds to the batch what makes the store's dictionaries, which are those of old, those of
// next.
func PutUses(batch *pebble.Batch, old, next []format.Use) error {
	for _, u := range old {
		if format.FindUse(next, u.ID) < 0 {
			if err := batch.Delete(format.DictionaryKey(u.ID), nil); err != nil {
				return err
			}
		}
	}
	return PutMeta(batch, format.MetaDictionaries, format.AppendUses(nil, next))
}
