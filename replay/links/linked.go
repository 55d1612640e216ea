package links

import (
	"bytes"
	"context"

	"millrace/replay/references"
)

// Linked implements View.
func (v *view) Linked(ctx context.Context, account uint64, path uint32, most int) (subjects []uint64, err error) {
	defer wrap("read what an account links to", &err)
	floor, inactive, err := v.Account(account)
	if err != nil || inactive {
		return nil, err
	}
	var row references.Row
	prefix := v.AccountRows(account)
	it, rows := v.Iterator(), 0
	for more := it.SeekGE(prefix); more && bytes.HasPrefix(it.Key(), prefix); more = it.Next() {
		if rows++; rows > most {
			return nil, ErrTooLarge
		}
		value, err := it.ValueAndErr()
		if err == nil {
			err = v.DecodeRow(&row, it.Key(), value)
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		for _, r := range row.References {
			if r.Path == path && r.Subject != r.Authority && row.Arrival >= floor {
				subjects = append(subjects, r.Subject)
			}
		}
	}
	return subjects, it.Error()
}
