package references

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"millrace/replay/internal/postings"
)

// Bounds of what is kept of recent links.
const (
	recentSpan   = time.Hour
	recentPeriod = 5 * time.Minute
	recentSets   = 8192 // sets that the current period counts
	recentTop    = 256  // sets that are kept of a period that is over
	// RecentBytes is what recent links take at most.
	RecentBytes = 1 << 20
)

// recentLinks finds the sets that got most links of late, in bounded memory. It counts by period.
// A period that counts too many sets subtracts the same number from all, and drops those that have
// no more. That is the algorithm of Misra and Gries, with many decrements at once as in Anderson
// et al., "A High-Performance Algorithm for Identifying Frequent Items in Data Streams", IMC 2017.
type recentLinks struct {
	mu      sync.Mutex
	periods []linkPeriod // the oldest first
}

type linkPeriod struct {
	begun  time.Time
	from   uint64 // first arrival number
	counts map[postings.Set]uint64
	missed uint64 // every set had at most that many links more than counts says
}

// add counts the additions of a batch. Batches come in the order of their arrival numbers.
func (r *recentLinks) add(now time.Time, edges []edge) {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := uint64(math.MaxUint64)
	for i := range edges {
		if !edges[i].removed {
			from = min(from, edges[i].arrival)
		}
	}
	if from == math.MaxUint64 {
		return
	}
	p := r.periodLocked(now, from)
	for i := range edges {
		if e := &edges[i]; !e.removed {
			p.counts[e.set]++
		}
		if len(p.counts) > recentSets {
			p.cut(recentSets / 2)
		}
	}
}

// periodLocked returns the period that lasts, which begins now if the last one is over.
func (r *recentLinks) periodLocked(now time.Time, from uint64) *linkPeriod {
	last := len(r.periods) - 1
	if last >= 0 && now.Sub(r.periods[last].begun) < recentPeriod {
		return &r.periods[last]
	}
	r.expireLocked(now)
	next := linkPeriod{begun: now, from: from}
	if last = len(r.periods) - 1; last >= 0 {
		p := &r.periods[last]
		p.cut(recentTop)
		small := make(map[postings.Set]uint64, len(p.counts))
		maps.Copy(small, p.counts)
		next.counts, p.counts = p.counts, small
		clear(next.counts)
	} else {
		next.counts = make(map[postings.Set]uint64)
	}
	r.periods = append(r.periods, next)
	return &r.periods[len(r.periods)-1]
}

// expireLocked forgets periods that began longer ago than recentSpan.
func (r *recentLinks) expireLocked(now time.Time) {
	r.periods = slices.DeleteFunc(r.periods, func(p linkPeriod) bool { return now.Sub(p.begun) > recentSpan })
}

// cut leaves at most so many sets.
func (p *linkPeriod) cut(sets int) {
	if len(p.counts) <= sets {
		return
	}
	sorted := slices.Sorted(maps.Values(p.counts))
	by := sorted[len(sorted)-1-sets]
	p.missed += by
	for set, n := range p.counts {
		if n <= by {
			delete(p.counts, set)
		} else {
			p.counts[set] = n - by
		}
	}
}

// Recent is the sets that got most links of late.
type Recent struct {
	Since time.Time // an hour ago, or a little less; zero: nothing was linked since
	From  uint64    // first arrival number since then
	Sets  []RecentSet
	// Others is how many links any other set got at most.
	Others uint64
}

// RecentSet is a set of links; the one that may have got most comes first.
type RecentSet struct {
	postings.Set
	AtMost uint64 // links that it got since Recent.Since, those that are gone again included
}

// Recent returns the sets that got most links in the last hour since the store was opened and its
// links were complete. Rows that a View has and whose arrival number is not below From are counted
// if the view was opened before.
func (s *Store) Recent() Recent { return s.commits.recent.report(time.Now()) }

func (r *recentLinks) report(now time.Time) (recent Recent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireLocked(now)
	if len(r.periods) == 0 {
		return recent
	}
	recent.Since, recent.From = r.periods[0].begun, r.periods[0].from
	sums := make(map[postings.Set]uint64)
	for i := range r.periods {
		recent.Others += r.periods[i].missed
		for set, n := range r.periods[i].counts {
			sums[set] += n
		}
	}
	for set, n := range sums {
		recent.Sets = append(recent.Sets, RecentSet{set, n + recent.Others})
	}
	slices.SortFunc(recent.Sets, func(a, b RecentSet) int {
		return cmp.Or(cmp.Compare(b.AtMost, a.AtMost), a.Set.Compare(b.Set))
	})
	return recent
}
