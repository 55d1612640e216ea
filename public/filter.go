package public

import (
	"millrace/public/internal/admission"
	"millrace/replay"
)

// largeFilterBytes is what a filter of maxWantedCollections and of maxWantedDIDs, all of them
// did:plc, takes at most.
const largeFilterBytes = 320_000

// filter is a compiled filter and what it counts against the budget.
type filter struct {
	compiled *replay.Filter // nil: everything passes
	bytes    int64
}

// compile makes w and kinds a filter. The caller owns what the result takes of quota and releases
// it. ok is false if nothing was left of it.
func compile(w *wants, kinds replay.KindSet, quota admission.Quota) (f filter, ok bool, err error) {
	entries := len(w.collections.members) + len(w.dids.members)
	if entries == 0 && w.maxPayload == 0 && kinds == 0 {
		return filter{}, true, nil
	}
	cfg := replay.FilterConfig{
		Collections:     w.collections.members,
		DIDs:            w.dids.members,
		Kinds:           kinds,
		MaxPayloadBytes: w.maxPayload,
	}
	f.bytes = cfg.Bytes()
	if !quota.Reserve(f.bytes) {
		return filter{}, false, nil
	}
	f.compiled, err = replay.NewFilter(cfg)
	if err != nil {
		quota.Release(f.bytes)
		return filter{}, true, err
	}
	return f, true, nil
}
