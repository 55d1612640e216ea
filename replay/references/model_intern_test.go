package references

import (
	"maps"
	"slices"
)

// interns says how far a step of the relay's is in getting its UIDs.
type interns struct {
	since uint64            // Batch.Since
	new   map[recordID]bool // that got theirs with it
	done  bool
}

// intern draws for each step in flight whether its interning begins, or ends if it has begun. Those
// that end get the UIDs of their records in one transaction.
func (w *modelWorld) intern() {
	all := w.rng.IntN(2) == 0
	var together []*step
	for i := w.hydrated; i < len(w.log); i++ {
		s := &w.log[i]
		switch {
		case !s.relays() || w.rng.IntN(2) == 0:
		case s.interns == nil:
			s.interns = &interns{since: w.store.Hydrated()}
		case !s.interns.done && (all || len(together) == 0):
			together = append(together, s)
		}
	}
	w.give(together)
}

// give gives the records of some steps UIDs, in one transaction.
func (w *modelWorld) give(together []*step) {
	given := make(map[recordID]bool)
	for _, s := range together {
		for i := range s.changes {
			if id := (recordID{s.changes[i].Account, s.changes[i].Record}); !w.known[id] {
				given[id] = true
			}
		}
		s.interns.new, s.interns.done = given, true
	}
	maps.Copy(w.known, given)
}

// batch makes the batch of a step.
func (w *modelWorld) batch(s *step) *Batch {
	if s.interns == nil {
		s.interns = &interns{since: w.store.Hydrated()}
	}
	if !s.interns.done {
		w.give([]*step{s})
	}
	b := &Batch{Position: s.at, Changes: slices.Clone(s.changes), Since: s.interns.since}
	for i := range b.Changes {
		c := &b.Changes[i]
		c.References = slices.Clone(c.References)
		c.New = s.relays() && s.interns.new[recordID{c.Account, c.Record}]
	}
	return b
}
