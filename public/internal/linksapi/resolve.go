package linksapi

import (
	"context"
	"errors"
	"slices"
	"strings"

	"millrace/intern"
	"millrace/public/internal/viewapi"
	"millrace/replay/links"
)

// target is a query in the log's numbers. A filter is nil if there is none, and empty if nothing
// that it names is known.
type target struct {
	set    links.Set // its subject is 0 if no record names it, its path if no record has it
	other  uint32    // path
	dids   []uint64
	others []uint64
}

// resolve looks up all that q names, the strings in one batch.
func (a *API) resolve(ctx context.Context, q *query) (*target, error) {
	if q.anySubject {
		return new(target), nil
	}
	names := append([]string{q.subject}, q.dids...)
	names = append(names, q.others...)
	uids := make([]uint64, len(names))
	if err := a.cfg.UIDs.LookupStrings(ctx, names, uids); err != nil {
		return nil, a.lookupFailure(q, err)
	}
	for _, did := range q.dids {
		if !strings.HasPrefix(did, "did:") {
			return nil, noDID(did)
		}
	}
	t := &target{
		set:    links.Set{Subject: uids[0]},
		dids:   known(uids[1 : 1+len(q.dids)]),
		others: known(uids[1+len(q.dids):]),
	}
	t.set.Path, _ = a.cfg.Log.FindSource(q.source)
	t.other, _ = a.cfg.Log.FindSource(q.other)
	return t, nil
}

// known returns a filter: the UIDs that are not 0, each once.
func known(uids []uint64) []uint64 {
	if len(uids) == 0 {
		return nil
	}
	slices.Sort(uids)
	uids = slices.Compact(uids)
	if uids[0] == 0 {
		uids = uids[1:]
	}
	return uids
}

func noDID(s string) error { return viewapi.Invalid("a filter by DIDs has %.200q, which is no DID", s) }

// lookupFailure says which string has no UID and never will, or that the store does not answer.
func (a *API) lookupFailure(q *query, err error) error {
	invalid, ok := errors.AsType[*intern.InvalidError](err)
	if !ok {
		return a.StoreFailure(err)
	}
	switch i := invalid.Index - 1; {
	case i < 0:
		return unsupported("the subject", q.subject)
	case i < len(q.dids):
		return noDID(q.dids[i])
	default:
		return unsupported("a filter by other subjects", q.others[i-len(q.dids)])
	}
}
