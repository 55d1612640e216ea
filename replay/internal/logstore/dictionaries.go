package logstore

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"millrace/dict"
	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/format"
	"millrace/replay/internal/pebblestore"
)

// Dictionaries reads the dictionaries in the store, by ID.
func Dictionaries(st *pebblestore.Store) (map[uint32]*dict.Dictionary, error) {
	files := make(map[uint32]*dict.Dictionary)
	err := each(st, "dictionaries", format.RangeDictionary, format.RangeDictionary.Start(), func(it *pebbleguard.Iterator) error {
		if len(it.Key()) != 5 {
			return Corrupt(format.RangeDictionary, 0, fmt.Errorf("malformed key of %d bytes", len(it.Key())))
		}
		id := binary.BigEndian.Uint32(it.Key()[1:])
		raw, err := format.OpenTrailer(it.Value(), format.RangeDictionary, int64(id))
		if err == nil {
			files[id], err = dict.Parse(raw)
		}
		if err != nil {
			return Corrupt(format.RangeDictionary, int64(id), err)
		}
		return nil
	})
	if err != nil {
		return nil, err
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
