package links

import (
	"cmp"
	"context"
	"slices"

	"millrace/replay/internal/postings"
)

// lister returns the next few links of a list, nil at its end. They are good until the next call.
type lister func() ([]Link, error)

// list returns the links of a set past after, of some accounts or, if that is nil, of all. It
// also returns how many there are without after.
func (v *view) list(set Set, accounts []uint64, after uint64, forward bool) (l lister, total uint64, err error) {
	head, large, err := v.head(set)
	if err != nil {
		return nil, 0, err
	}
	if accounts != nil && large {
		return v.pick(set, accounts, after, forward)
	}
	w := v.walk(set, after, forward)
	if large {
		return w.next, head.Records, nil
	}
	picks := slices.Sorted(slices.Values(accounts))
	all, err := v.small(set)
	if err != nil {
		return nil, 0, err
	}
	if !forward {
		slices.Reverse(all)
	}
	all = slices.DeleteFunc(all, func(l Link) bool {
		_, found := slices.BinarySearch(picks, l.Account)
		return accounts != nil && !found
	})
	total = uint64(len(all))
	all = slices.DeleteFunc(all, func(l Link) bool { return !w.wanted(l.Arrival) })
	return func() (links []Link, _ error) {
		links, all = all, nil
		return links, nil
	}, total, nil
}

// pick is list of some accounts in a large set, where it looks up each link, a chunk at a time.
func (v *view) pick(set Set, accounts []uint64, after uint64, forward bool) (l lister, total uint64, err error) {
	var picked []Link // without their records
	w := v.walk(set, after, forward)
	for _, account := range slices.Compact(slices.Sorted(slices.Values(accounts))) {
		arrivals, err := v.arrivals(set, account)
		if err != nil {
			return nil, 0, err
		}
		total += uint64(len(arrivals))
		for _, a := range arrivals {
			if w.wanted(a) {
				picked = append(picked, Link{Arrival: a, Account: account})
			}
		}
	}
	slices.SortFunc(picked, func(a, b Link) int {
		if !forward {
			a, b = b, a
		}
		return cmp.Compare(a.Arrival, b.Arrival)
	})
	var links []Link // those of a chunk from the last one on
	return func() (_ []Link, err error) {
		if len(picked) == 0 {
			return nil, nil
		}
		want := picked[0]
		picked = picked[1:]
		is := func(l Link) bool { return l.Arrival == want.Arrival }
		if !slices.ContainsFunc(links, is) {
			past := want.Arrival - 1
			if !forward {
				past = want.Arrival + 1
			}
			if links, err = v.walk(set, past, forward).next(); err != nil {
				return nil, err
			}
		}
		at := slices.IndexFunc(links, is)
		if at < 0 || links[at].Account != want.Account {
			return nil, v.Damaged(postings.AppendAccount(nil, v.Codec, set, want.Account), errMember)
		}
		links = links[at:]
		return links[:1], nil
	}, total, nil
}

// arrivals returns the arrival numbers of an account's links in a large set.
func (v *view) arrivals(set Set, account uint64) ([]uint64, error) {
	v.key = postings.AppendAccount(v.key[:0], v.Codec, set, account)
	value, ok, err := v.Get(v.key)
	if err != nil || !ok {
		return nil, err
	}
	arrivals, err := postings.DecodeArrivals(nil, value)
	if err != nil {
		return nil, v.Damaged(v.key, err)
	}
	return arrivals, nil
}

// maxPageLinks is how many links a page looks at, unless its limit is higher. Few may be listed.
const maxPageLinks = 10_000

// each calls fn with the links of l that are visible, until it returns false. If there are more
// links than most, it returns the arrival number of the last one that it has looked at.
func (v *view) each(ctx context.Context, l lister, most int, fn func(*Link) (more bool, err error)) (stopped uint64, err error) {
	for looked := 0; ; {
		links, err := l()
		if err != nil || len(links) == 0 {
			return 0, err
		}
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
		for i := range links {
			if looked == most {
				return stopped, nil
			}
			looked, stopped = looked+1, links[i].Arrival
			ok, err := v.visible(&links[i])
			if err != nil {
				return 0, err
			}
			if !ok {
				continue
			}
			if more, err := fn(&links[i]); err != nil || !more {
				return 0, err
			}
		}
	}
}

// Records implements View.
func (v *view) Records(ctx context.Context, set Set, page Page) (r Records, err error) {
	defer wrap("list links", &err)
	l, total, err := v.list(set, page.Accounts, page.Cursor, page.Reverse)
	if err != nil {
		return r, err
	}
	r.Total = total
	next, err := v.each(ctx, l, max(page.Limit, maxPageLinks), func(l *Link) (bool, error) {
		if len(r.Links) == page.Limit {
			r.Next = r.Links[page.Limit-1].Arrival
			return false, nil
		}
		r.Links = append(r.Links, *l)
		return true, nil
	})
	r.Next = max(r.Next, next)
	return r, err
}

// Accounts implements View.
func (v *view) Accounts(ctx context.Context, set Set, page Page) (a Accounts, err error) {
	defer wrap("list accounts of links", &err)
	c, err := v.count(set)
	if err != nil {
		return a, err
	}
	a.Total = c.Accounts
	var last uint64
	first := v.firsts(set)
	next, err := v.each(ctx, v.walk(set, page.Cursor, page.Reverse).next, max(page.Limit, maxPageLinks), func(l *Link) (bool, error) {
		is, err := first(l)
		if err != nil || !is {
			return err == nil, err
		}
		if len(a.Accounts) == page.Limit {
			a.Next = last
			return false, nil
		}
		a.Accounts, last = append(a.Accounts, l.Account), l.Arrival
		return true, nil
	})
	a.Next = max(a.Next, next)
	return a, err
}

// firsts returns a function that says whether a visible link is its account's first visible one of
// the set.
func (v *view) firsts(set Set) func(*Link) (bool, error) {
	firsts := make(map[uint64]uint64) // arrival numbers by account
	small := false                    // all accounts of the set are in firsts
	return func(l *Link) (bool, error) {
		if first, ok := firsts[l.Account]; ok || small {
			return first == l.Arrival, nil
		}
		arrivals, err := v.arrivals(set, l.Account)
		if err != nil {
			return false, err
		}
		if len(arrivals) > 0 { // a large set
			at, _ := slices.BinarySearch(arrivals, v.accounts[l.Account].floor)
			if at < len(arrivals) {
				firsts[l.Account] = arrivals[at]
			}
			return firsts[l.Account] == l.Arrival, nil
		}
		small = true
		members, err := v.small(set)
		slices.Reverse(members) // the newest first
		for i := range members {
			if ok, err := v.visible(&members[i]); err != nil {
				return false, err
			} else if ok {
				firsts[members[i].Account] = members[i].Arrival
			}
		}
		return firsts[l.Account] == l.Arrival, err
	}
}
