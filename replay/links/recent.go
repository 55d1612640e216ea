package links

import (
	"cmp"
	"context"
	"slices"
)

// maxRecentSets is how many sets are counted for MostLinked.
const maxRecentSets = 1000

// MostLinked implements View. The store says which sets may have most. They are counted in that
// order, until no other set can have more than those that were found: Fagin's threshold algorithm.
func (v *view) MostLinked(ctx context.Context, limit int) (m MostLinked, err error) {
	defer wrap("count recent links", &err)
	recent := v.recent()
	m.Since, m.Others = recent.Since, recent.Others
	for i, set := range recent.Sets {
		full := len(m.Sets) == limit
		if full && m.Sets[limit-1].Records >= set.AtMost || i == maxRecentSets {
			m.Others = max(m.Others, set.AtMost)
			break
		}
		c := RecentCount{Set: set.Set}
		if c.Records, err = v.countFrom(ctx, c.Set, recent.From); err != nil {
			return MostLinked{}, err
		}
		if c.Records > 0 {
			m.add(c, limit)
		}
	}
	return m, nil
}

// add keeps c if it is among the first ones.
func (m *MostLinked) add(c RecentCount, limit int) {
	at, _ := slices.BinarySearchFunc(m.Sets, c, func(a, b RecentCount) int {
		return cmp.Or(cmp.Compare(b.Records, a.Records), a.Set.Compare(b.Set))
	})
	m.Sets = slices.Insert(m.Sets, at, c)
	if len(m.Sets) > limit {
		m.Others = max(m.Others, m.Sets[limit].Records)
		m.Sets = m.Sets[:limit]
	}
}

// countFrom counts the links of a set from an arrival number on.
func (v *view) countFrom(ctx context.Context, set Set, from uint64) (n uint64, err error) {
	for w := v.walk(set, from-1, true); ; {
		links, err := w.next()
		if err != nil || len(links) == 0 {
			return n, err
		}
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
		n += uint64(len(links))
	}
}
