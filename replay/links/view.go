package links

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"millrace/replay/internal/postings"
	"millrace/replay/references"
)

// view implements View.
type view struct {
	*references.View
	recent func() references.Recent
	key    []byte
	// Of accounts that were looked up.
	accounts map[uint64]visibility
}

// visibility says which records of an account are in lists.
type visibility struct {
	floor    uint64 // lowest arrival number
	inactive bool   // none
}

// Position implements View.
func (v *view) Position() references.Position { return v.View.Position }

// Close implements View.
func (v *view) Close() (err error) {
	defer wrap("read links", &err)
	return v.View.Close()
}

// wrap adds to an error what was being done.
func wrap(what string, err *error) {
	if *err != nil {
		*err = fmt.Errorf("%s: %w", what, *err)
	}
}

// Count implements View.
func (v *view) Count(_ context.Context, set Set) (c Counts, err error) {
	defer wrap("count links", &err)
	return v.count(set)
}

func (v *view) count(set Set) (c Counts, err error) {
	head, large, err := v.head(set)
	if err != nil || large {
		return Counts{head.Records, head.Accounts}, err
	}
	members, err := v.small(set)
	return countOf(members), err
}

// CountRecords implements View.
func (v *view) CountRecords(_ context.Context, set Set) (records uint64, err error) {
	defer wrap("count records of links", &err)
	head, large, err := v.head(set)
	if err != nil || large {
		return head.Records, err
	}
	value, err := v.chunk(set)
	for e := (postings.Entry{}); err == nil && len(value) > 0; records++ {
		if e, value, err = postings.NextEntry(value, e.Arrival); err != nil {
			err = v.Damaged(v.key, err)
		}
	}
	return records, err
}

// small returns the links of a small set, the oldest first.
func (v *view) small(set Set) ([]Link, error) {
	value, err := v.chunk(set)
	if err != nil {
		return nil, err
	}
	w := walker{view: v, forward: true}
	err = w.decode(v.key, value)
	return w.links, err
}

// chunk returns the value of the one chunk that a small set has, whose key is v.key then; nil: the
// set has no links.
func (v *view) chunk(set Set) (value []byte, err error) {
	v.key = postings.AppendSet(v.key[:0], v.Codec, postings.RangeMembers, set)
	value, _, err = v.Get(v.key)
	return value, err
}

// head returns what is kept of a large set. large is false of others.
func (v *view) head(set Set) (head postings.Head, large bool, err error) {
	v.key = postings.AppendSet(v.key[:0], v.Codec, postings.RangeHead, set)
	value, large, err := v.Get(v.key)
	if err != nil || !large {
		return head, false, err
	}
	if head, err = postings.DecodeHead(value); err != nil {
		return head, false, v.Damaged(v.key, err)
	}
	return head, true, nil
}

// countOf counts the members of a small set.
func countOf(members []Link) Counts {
	accounts := make([]uint64, len(members))
	for i := range members {
		accounts[i] = members[i].Account
	}
	slices.Sort(accounts)
	return Counts{uint64(len(members)), uint64(len(slices.Compact(accounts)))}
}

// visible says whether lists show a link: its account is active and has not been deleted since.
func (v *view) visible(l *Link) (bool, error) {
	a, ok := v.accounts[l.Account]
	if !ok {
		var err error
		if a.floor, a.inactive, err = v.Account(l.Account); err != nil {
			return false, err
		}
		if v.accounts == nil {
			v.accounts = make(map[uint64]visibility)
		}
		v.accounts[l.Account] = a
	}
	return !a.inactive && l.Arrival >= a.floor, nil
}

// Sources implements View.
func (v *view) Sources(ctx context.Context, subject uint64) (sources []Source, err error) {
	defer wrap("count sources of links", &err)
	prefix := postings.AppendSubject(nil, v.Codec, postings.RangeMembers, subject)
	from := prefix
	for it := v.Iterator(); it.SeekGE(from) && bytes.HasPrefix(it.Key(), prefix); {
		set, _, err := postings.ParseSet(v.Codec, it.Key())
		if err != nil {
			return nil, v.Damaged(it.Key(), err)
		}
		c, err := v.count(Set{Path: set.Path, Subject: subject})
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return nil, err
		}
		if c.Records > 0 {
			sources = append(sources, Source{set.Path, c})
		}
		from = postings.PrefixEnd(postings.AppendSet(nil, v.Codec, postings.RangeMembers, set))
	}
	slices.SortFunc(sources, func(a, b Source) int { return int(a.Path) - int(b.Path) })
	return sources, v.Iterator().Error()
}
