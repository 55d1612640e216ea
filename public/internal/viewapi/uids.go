package viewapi

import (
	"context"
	"errors"
	"fmt"
)

// UIDs is the UID store as the APIs need it; *intern.Interner is one.
type UIDs interface {
	// LookupStrings sets uids[i] to the UID of strings[i], 0 if it has none. What is neither DID
	// nor AT URI is an *intern.InvalidError.
	LookupStrings(ctx context.Context, strings []string, uids []uint64) error
	// LookupUIDs sets strings[i] to what uids[i] stands for, "" if nothing.
	LookupUIDs(ctx context.Context, uids []uint64, strings []string) error
}

// Names returns what UIDs stand for, in one batch.
func (a *API) Names(ctx context.Context, uids []uint64) ([]string, error) {
	names := make([]string, len(uids))
	if len(uids) == 0 {
		return names, nil
	}
	if err := a.cfg.UIDs.LookupUIDs(ctx, uids, names); err != nil {
		return nil, a.StoreFailure(err)
	}
	for i, name := range names {
		if name == "" {
			return nil, fmt.Errorf("UID %d is not in the UID store, which may be damaged or another than the log's", uids[i])
		}
	}
	return names, nil
}

// StoreFailure is the error for one of the UID store, which it logs.
func (a *API) StoreFailure(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	a.failures.Do(func() {
		a.cfg.Logger.Warn("UID look-up failed: the client was asked to try again", "err", err)
	})
	return Unavailable("the UID store does not answer: try again in five seconds")
}
