package public

import (
	"fmt"
	"slices"
	"sync"

	"millrace/replay"
)

// sharedFilters compiles each filter by collection, kind and size once for all subscribers that
// want the same. The waker then matches a block once for all of them.
type sharedFilters struct {
	mu sync.Mutex
	of map[string]*sharedFilter
}

// sharedFilter is a filter and how many subscribers it has; nil: it is not shared.
type sharedFilter struct {
	compiled *replay.Filter

	table *sharedFilters
	key   string
	users int // guarded by table.mu
}

// filterKey has all fields of cfg: filters with the same key pass the same events. It is empty
// if cfg is not for sharing.
func filterKey(cfg *replay.FilterConfig) string {
	if len(cfg.DIDs) > 0 || cfg.Subjects != nil || cfg.SubjectDIDs != nil || cfg.Sources != nil {
		return ""
	}
	sorted := *cfg
	sorted.Collections = slices.Sorted(slices.Values(cfg.Collections))
	return fmt.Sprintf("%#v", sorted)
}

// take returns the filter of cfg, whose key is given. The caller releases it.
func (t *sharedFilters) take(key string, cfg replay.FilterConfig) (*sharedFilter, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.of[key]
	if f == nil {
		compiled, err := replay.NewFilter(cfg)
		if err != nil {
			return nil, err
		}
		f = &sharedFilter{compiled: compiled, table: t, key: key}
		t.of[key] = f
	}
	f.users++
	return f, nil
}

// release forgets the filter once no subscriber has it. No reader of the caller may hold it.
func (f *sharedFilter) release() {
	if f == nil {
		return
	}
	f.table.mu.Lock()
	defer f.table.mu.Unlock()
	if f.users--; f.users == 0 {
		delete(f.table.of, f.key)
	}
}
