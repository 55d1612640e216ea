package public

import (
	"context"
	"errors"
	"net/netip"

	"millrace/intern"
	"millrace/public/internal/admission"
	"millrace/replay"
)

// largeFilterBytes is what a filter of maxWantedCollections and of maxWantedDIDs, all of them
// did:plc, takes at most.
const largeFilterBytes = 320_000

// filter is a compiled filter and what it counts against the budget.
type filter struct {
	compiled    *replay.Filter // nil: everything passes
	shared      *sharedFilter  // that compiled is of
	byReference bool
	// subjects, and DIDs of subjects, that have no UID yet: compiled grows by them
	subjects, subjectDIDs *intern.Waiting

	quota admission.Quota
	bytes int64 // of quota
}

// release gives back what f holds. No reader may have it.
func (f *filter) release() {
	f.subjects.Close()
	f.subjectDIDs.Close()
	f.shared.release()
	f.quota.Release(f.bytes)
}

var errFilterMemory = errors.New("no memory left for the filter")

// compile makes w and kinds a filter, which counts against client's quota until it is released.
// Errors: errFilterMemory, errUIDStore, or what is wrong with w.
func (s *Server) compile(ctx context.Context, w *wants, kinds replay.KindSet, client netip.Addr) (f filter, err error) {
	cfg := replay.FilterConfig{
		Collections:     w.Collections.members,
		DIDs:            w.DIDs.members,
		Kinds:           kinds,
		MaxPayloadBytes: w.MaxPayload,
		Sources:         w.Sources.members, // nil: none was given
	}
	f.byReference = w.byReference()
	var subjects, dids []string // that have no UID
	if len(w.Subjects.members)+len(w.SubjectDIDs.members) > 0 {
		if cfg.Subjects, subjects, err = s.lookups.uidsOf(ctx, w.Subjects.members); err != nil {
			return filter{}, err
		}
		if cfg.SubjectDIDs, dids, err = s.lookups.uidsOf(ctx, w.SubjectDIDs.members); err != nil {
			return filter{}, err
		}
		cfg.MoreSubjects, cfg.MoreSubjectDIDs = len(subjects), len(dids)
	}
	key := filterKey(&cfg)
	if key == filterKey(&replay.FilterConfig{}) { // all but #sync events pass
		return filter{}, nil
	}
	f.bytes = cfg.Bytes() + waitingBytes(subjects) + waitingBytes(dids) + int64(len(key))
	quota := s.admission.Quota(admission.Filters, client)
	if limit := quota.Limit(); f.bytes > limit { // for good, so that clients do not come back
		return filter{}, invalidOption("the filter takes %d bytes, and a client has %d here: ask for less, or raise the server's --memory", f.bytes, limit)
	}
	if !quota.Reserve(f.bytes) {
		return filter{}, errFilterMemory
	}
	f.quota = quota
	defer func() {
		if err != nil {
			f.release()
			f = filter{}
		}
	}()
	if key != "" {
		if f.shared, err = s.filters.take(key, cfg); err == nil {
			f.compiled = f.shared.compiled
		}
		return f, err
	}
	compiled, err := replay.NewFilter(cfg)
	if err != nil {
		return f, err
	}
	// A UID may still be found when f is released.
	f.compiled = compiled
	if f.subjects, err = s.lookups.await(ctx, subjects, func(uid uint64) { compiled.AddSubject(uid) }); err != nil {
		return f, err
	}
	f.subjectDIDs, err = s.lookups.await(ctx, dids, func(uid uint64) { compiled.AddSubjectDID(uid) })
	return f, err
}

// waitingBytes is what strings take while they wait for their UIDs.
func waitingBytes(strings []string) int64 {
	n := int64(len(strings) * intern.WaitingBytes)
	for _, s := range strings {
		n += int64(len(s))
	}
	return n
}

// uidsOf returns the UIDs of DIDs and AT URIs, never nil, and those that have none.
func (a *lookupAPI) uidsOf(ctx context.Context, strings []string) (known []uint64, unknown []string, err error) {
	uids := make([]uint64, len(strings))
	err = a.inTurn(ctx, func(ctx context.Context) error { return a.uids.LookupStrings(ctx, strings, uids) })
	if invalid, ok := errors.AsType[*intern.InvalidError](err); ok {
		return nil, nil, invalidOption("invalid subject: %.80q: %s", strings[invalid.Index], invalid.Reason)
	}
	if err != nil {
		return nil, nil, err
	}
	known = uids[:0]
	for i, uid := range uids {
		if uid == 0 {
			unknown = append(unknown, strings[i])
		} else {
			known = append(known, uid)
		}
	}
	return known, unknown, nil
}

// await waits for the UIDs of strings; nil: there are none.
func (a *lookupAPI) await(ctx context.Context, strings []string, found func(uid uint64)) (w *intern.Waiting, err error) {
	if len(strings) == 0 {
		return nil, nil
	}
	err = a.inTurn(ctx, func(ctx context.Context) (err error) {
		w, err = a.uids.Await(ctx, strings, found)
		return err
	})
	return w, err
}
