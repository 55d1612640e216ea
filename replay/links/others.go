package links

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"millrace/replay/references"
)

var (
	errMember = errors.New("the account has a link that is in no chunk")
	errRow    = errors.New("a link has a record that the table does not have")
)

// maxGrouped is how many records OtherCounts looks at.
const maxGrouped = 1 << 20

// ErrTooLarge means: OtherCounts would have to look at more than a million records, or Linked to
// read more than it may.
var ErrTooLarge = errors.New("too many records to read them")

// Others implements View.
func (v *view) Others(ctx context.Context, q OthersQuery) (o Others, err error) {
	defer wrap("list other references", &err)
	var last OthersCursor
	stopped, err := v.eachOther(ctx, q, q.Cursor, max(q.Limit, maxPageLinks), func(l *Link, index int, r references.Reference) (bool, error) {
		at := OthersCursor{l.Arrival, uint32(index)}
		if at.compare(q.Cursor) <= 0 {
			return true, nil
		}
		if len(o.Items) == q.Limit {
			o.Next = last
			return false, nil
		}
		o.Items, last = append(o.Items, Other{*l, r.Subject, r.Subject == r.Authority}), at
		return true, nil
	})
	if stopped != 0 {
		o.Next = OthersCursor{stopped, math.MaxUint32}
	}
	return o, err
}

func (c OthersCursor) compare(d OthersCursor) int {
	return cmp.Or(cmp.Compare(c.Arrival, d.Arrival), cmp.Compare(c.Index, d.Index))
}

// eachOther calls fn with each other reference that q wants, from the record of a cursor on, until
// fn returns false. It looks at most at so many records, as each does.
func (v *view) eachOther(ctx context.Context, q OthersQuery, from OthersCursor, most int,
	fn func(l *Link, index int, r references.Reference) (more bool, err error)) (stopped uint64, err error) {
	l, _, err := v.list(q.Set, q.Accounts, max(from.Arrival, 1)-1, true)
	if err != nil {
		return 0, err
	}
	var others map[uint64]bool // nil: all
	if q.Others != nil {
		others = make(map[uint64]bool)
		for _, subject := range q.Others {
			others[subject] = true
		}
	}
	var row references.Row
	return v.each(ctx, l, most, func(l *Link) (more bool, err error) {
		ok, err := v.Row(&row, l.Account, l.Record)
		if err != nil {
			return false, err
		}
		if !ok {
			return false, fmt.Errorf("record %x of account %x: %w", l.Record, l.Account, errRow)
		}
		for i, r := range row.References {
			if r.Path != q.OtherPath || others != nil && !others[r.Subject] {
				continue
			}
			if more, err := fn(l, i, r); err != nil || !more {
				return false, err
			}
		}
		return true, nil
	})
}

// grouped is a record in the group of its first other subject.
type grouped struct{ subject, account, arrival uint64 }

// OtherCounts implements View.
func (v *view) OtherCounts(ctx context.Context, q OthersQuery) (o OtherCounts, err error) {
	defer wrap("count other references", &err)
	var all []grouped
	stopped, err := v.eachOther(ctx, q, OthersCursor{}, maxGrouped, func(l *Link, _ int, r references.Reference) (bool, error) {
		if n := len(all); n > 0 && all[n-1].arrival == l.Arrival {
			return true, nil // not the first other subject of the record
		}
		all = append(all, grouped{r.Subject, l.Account, l.Arrival})
		return true, nil
	})
	if stopped != 0 {
		err = ErrTooLarge
	}
	if err != nil {
		return o, err
	}
	return pageOfGroups(groupsOf(all), q.Cursor.Arrival, q.Limit), nil
}

// group is an other subject.
type group struct {
	OtherCount
	first uint64 // arrival number of its oldest record
}

// groupsOf counts records, which it sorts, by subject; the oldest groups come first.
func groupsOf(all []grouped) (groups []group) {
	slices.SortFunc(all, func(a, b grouped) int {
		return cmp.Or(cmp.Compare(a.subject, b.subject), cmp.Compare(a.account, b.account), cmp.Compare(a.arrival, b.arrival))
	})
	for i, r := range all {
		begins := i == 0 || all[i-1].subject != r.subject
		if begins {
			groups = append(groups, group{OtherCount{Subject: r.subject}, r.arrival})
		}
		g := &groups[len(groups)-1]
		g.Records++
		if begins || all[i-1].account != r.account {
			g.Counts.Accounts++
		}
		g.first = min(g.first, r.arrival)
	}
	slices.SortFunc(groups, func(a, b group) int { return cmp.Compare(a.first, b.first) })
	return groups
}

func pageOfGroups(groups []group, after uint64, limit int) (o OtherCounts) {
	for i, g := range groups {
		if g.first <= after {
			continue
		}
		if len(o.Counts) == limit {
			o.Next.Arrival = groups[i-1].first
			break
		}
		o.Counts = append(o.Counts, g.OtherCount)
	}
	return o
}
