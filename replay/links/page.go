package links

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"millrace/replay/internal/postings"
)

// lister gives links a few at a time, in order; nil at the end. They are good until the next call.
type lister interface {
	next() ([]Link, error)
}

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
		return w, head.Records, nil
	}
	picks := slices.Sorted(slices.Values(accounts))
	all, err := v.small(set)
	if err != nil {
		return nil, 0, err
	}
	if !forward {
		slices.Reverse(all)
	}
	picked := slices.DeleteFunc(all, func(l Link) bool {
		_, found := slices.BinarySearch(picks, l.Account)
		return accounts != nil && !found
	})
	total = uint64(len(picked))
	return &collected{slices.DeleteFunc(picked, func(l Link) bool { return !w.wanted(l.Arrival) })}, total, nil
}

// collected is a lister of links that are in memory.
type collected struct{ links []Link }

func (c *collected) next() (links []Link, _ error) {
	links, c.links = c.links, nil
	return links, nil
}

// picker looks up the links of some accounts in a large set.
type picker struct {
	view    *view
	set     Set
	account []Link // without their records
	link    [1]Link
}

func (v *view) pick(set Set, accounts []uint64, after uint64, forward bool) (l lister, total uint64, err error) {
	p := &picker{view: v, set: set}
	w := v.walk(set, after, forward)
	for _, account := range slices.Compact(slices.Sorted(slices.Values(accounts))) {
		arrivals, err := v.arrivals(set, account)
		if err != nil {
			return nil, 0, err
		}
		total += uint64(len(arrivals))
		for _, a := range arrivals {
			if w.wanted(a) {
				p.account = append(p.account, Link{Arrival: a, Account: account})
			}
		}
	}
	slices.SortFunc(p.account, func(a, b Link) int {
		if !forward {
			a, b = b, a
		}
		return cmp.Compare(a.Arrival, b.Arrival)
	})
	return p, total, nil
}

func (p *picker) next() ([]Link, error) {
	if len(p.account) == 0 {
		return nil, nil
	}
	want := p.account[0]
	p.account = p.account[1:]
	links, err := p.view.walk(p.set, want.Arrival-1, true).next()
	if err != nil {
		return nil, err
	}
	if len(links) == 0 || links[0].Arrival != want.Arrival || links[0].Account != want.Account {
		return nil, p.view.Damaged(postings.AppendAccount(nil, p.view.Codec, p.set, want.Account), errMember)
	}
	p.link[0] = links[0]
	return p.link[:], nil
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
		links, err := l.next()
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
	l, total, err := v.list(set, page.Accounts, page.Cursor, page.Reverse)
	if err == nil {
		r.Total = total
		var next uint64
		next, err = v.each(ctx, l, max(page.Limit, maxPageLinks), func(l *Link) (bool, error) {
			if len(r.Links) == page.Limit {
				r.Next = r.Links[page.Limit-1].Arrival
				return false, nil
			}
			r.Links = append(r.Links, *l)
			return true, nil
		})
		r.Next = max(r.Next, next)
	}
	if err != nil {
		return Records{}, fmt.Errorf("list links: %w", err)
	}
	return r, nil
}

// Accounts implements View.
func (v *view) Accounts(ctx context.Context, set Set, page Page) (a Accounts, err error) {
	c, err := v.count(set)
	if err != nil {
		return a, fmt.Errorf("list accounts of links: %w", err)
	}
	a.Total = c.Accounts
	var last uint64
	first := v.firsts(set)
	next, err := v.each(ctx, v.walk(set, page.Cursor, page.Reverse), max(page.Limit, maxPageLinks), func(l *Link) (bool, error) {
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
	if err != nil {
		return Accounts{}, fmt.Errorf("list accounts of links: %w", err)
	}
	a.Next = max(a.Next, next)
	return a, nil
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
