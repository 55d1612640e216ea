package links

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"

	"millrace/replay/internal/postings"
	"millrace/replay/references"
)

// Bounds of Verify.
const (
	verifyBuckets = 1 << 16 // of subjects, whose links are compared by their sums
	verifyStep    = 4096    // keys between two looks at the context
)

// Report is what Verify found.
type Report struct {
	references.Findings
	Links uint64
	Sets  uint64 // keys of sets, of which some may be empty
	Large uint64 // sets with counts of their own
}

// Verify reads all links of a store and its whole table, at one position, beside the running
// service. The links must be those of the table's rows, and the counts and accounts of large sets
// those of their links. progress, if not nil, gets the number of keys seen so far. Errors:
// ErrBuilding, too.
func Verify(ctx context.Context, store *references.Store, progress func(seen uint64)) (*Report, error) {
	v, err := New(store).View()
	if err != nil {
		return nil, err
	}
	defer v.Close() // it is only read
	c := &verifier{view: v.(*view), ctx: ctx, progress: progress, seed: maphash.MakeSeed()}
	for _, check := range []func() error{c.rows, c.chunks, c.compare, c.heads, c.accounts} {
		if err := check(); err != nil {
			return nil, fmt.Errorf("verify links: %w", err)
		}
	}
	return &c.report, nil
}

// verifier holds the sums of the hashes of links: of what rows say, less what chunks say. So they
// are 0 in the end, whatever the order is in which both are read.
type verifier struct {
	view     *view
	ctx      context.Context
	progress func(seen uint64)
	report   Report
	seen     uint64

	seed   maphash.Seed
	sums   [verifyBuckets]uint64
	starts uint64 // of the keys of chunks with a start, less those of starts
	sets   uint64 // chunks without a start that were read
}

// named is a link of a set.
type named struct {
	set  Set
	link Link
}

func (c *verifier) bucket(subject uint64) uint64 {
	return maphash.Comparable(c.seed, subject) % verifyBuckets
}

// scan calls fn with each key from begin to end; fn must not move the iterator.
func (c *verifier) scan(begin, end []byte, fn func(key, value []byte) error) error {
	it := c.view.Iterator()
	for ok := it.SeekGE(begin); ok && bytes.Compare(it.Key(), end) < 0; ok = it.Next() {
		if err := fn(it.Key(), it.Value()); err != nil {
			return err
		}
		if c.seen++; c.seen%verifyStep == 0 {
			if c.progress != nil {
				c.progress(c.seen)
			}
			if err := context.Cause(c.ctx); err != nil {
				return err
			}
		}
	}
	return it.Error()
}

// eachRow calls fn with each link that follows from the table's rows.
func (c *verifier) eachRow(fn func(named)) error {
	start, end := references.RowBounds()
	var row references.Row
	return c.scan(start, end, func(key, value []byte) error {
		if err := c.view.DecodeRow(&row, key, value); err != nil {
			return err
		}
		for i, r := range row.References {
			set := Set{Path: r.Path, Subject: r.Subject}
			same := func(r references.Reference) bool { return Set{Path: r.Path, Subject: r.Subject} == set }
			if !slices.ContainsFunc(row.References[:i], same) { // it counts once
				fn(named{set, Link{row.Arrival, row.Account, row.Record}})
			}
		}
		return nil
	})
}

// eachLink calls fn with each link of a range of chunks, and where its chunk starts.
func (c *verifier) eachLink(begin, end []byte, fn func(l named, start uint64)) error {
	var entries []postings.Entry
	return c.scan(begin, end, func(key, value []byte) error {
		set, rest, err := postings.ParseSet(c.view.Codec, key)
		var start uint64
		if err == nil {
			start, err = postings.ParseStart(rest)
		}
		if err == nil {
			entries, err = postings.DecodeEntries(entries[:0], value)
		}
		for i := range entries {
			if err != nil {
				break
			}
			l := named{set: set, link: Link{Arrival: entries[i].Arrival}}
			if l.link.Account, l.link.Record, err = postings.DecodeLink(c.view.Codec, entries[i].Link); err == nil {
				fn(l, start)
			}
		}
		if err != nil {
			c.report.Problem("key %x: %v", key, err)
		}
		if start == 0 {
			c.sets++
		} else {
			c.starts += maphash.Bytes(c.seed, key[1:])
		}
		return nil
	})
}

func bounds(r postings.Range) (start, end []byte) { return []byte{byte(r)}, []byte{byte(r) + 1} }

func (c *verifier) rows() error {
	return c.eachRow(func(l named) { c.sums[c.bucket(l.set.Subject)] += maphash.Comparable(c.seed, l) })
}

// chunks takes what chunks say away from the sums, and checks their order and the list of their
// starts.
func (c *verifier) chunks() error {
	var last named
	var several []Set // that must be large
	begin, end := bounds(postings.RangeMembers)
	err := c.eachLink(begin, end, func(l named, start uint64) {
		c.sums[c.bucket(l.set.Subject)] -= maphash.Comparable(c.seed, l)
		c.report.Links++
		if l.set == last.set && l.link.Arrival <= last.link.Arrival || l.link.Arrival < start {
			c.report.Problem("links to %x from %d: arrival number %d is out of order, or in the wrong chunk", l.set.Subject, l.set.Path, l.link.Arrival)
		}
		if start > 0 && (len(several) == 0 || several[len(several)-1] != l.set) {
			several = append(several, l.set)
		}
		last = l
	})
	c.report.Sets = c.sets
	begin, end = bounds(postings.RangeStart)
	err = errors.Join(err, c.scan(begin, end, func(key, value []byte) error {
		c.starts -= maphash.Bytes(c.seed, key[1:])
		if len(value) > 0 {
			c.report.Problem("key %x: it has a value", key)
		}
		return nil
	}))
	if c.starts != 0 {
		c.report.Problem("the starts that are listed are not those of the chunks")
	}
	return errors.Join(err, c.haveHeads(several, "several chunks"))
}

// haveHeads checks that sets which have what only large ones have are large.
func (c *verifier) haveHeads(sets []Set, what string) error {
	for _, set := range sets {
		if _, large, err := c.view.head(set); err != nil {
			return err
		} else if !large {
			c.report.Problem("links to %x from %d: they have %s, but no counts", set.Subject, set.Path, what)
		}
	}
	return nil
}

// compare spells out what differs, if that is anything.
func (c *verifier) compare() error {
	differ := make(map[named]bool) // true: rows have it; false: chunks have it
	differs := func(l named) bool { return c.sums[c.bucket(l.set.Subject)] != 0 }
	clean := true
	for _, sum := range c.sums {
		clean = clean && sum == 0
	}
	if clean {
		return nil
	}
	err := c.eachRow(func(l named) {
		if differs(l) {
			differ[l] = true
		}
	})
	begin, end := bounds(postings.RangeMembers)
	err = errors.Join(err, c.eachLink(begin, end, func(l named, _ uint64) {
		if !differs(l) {
			return
		}
		if differ[l] {
			delete(differ, l)
		} else {
			differ[l] = false
		}
	}))
	for l, row := range differ {
		what := "is in the table, but in no chunk"
		if !row {
			what = "is in a chunk, but not in the table"
		}
		c.report.Problem("the link to %x from %d of record %x, arrival number %d, %s", l.set.Subject, l.set.Path, l.link.Record, l.link.Arrival, what)
	}
	return err
}

// tally is what a large set has: how many links and accounts, and the sum of their hashes.
type tally struct{ links, accounts, sum uint64 }

func (c *verifier) hash(account, arrival uint64) uint64 {
	return maphash.Comparable(c.seed, [2]uint64{account, arrival})
}

// heads compares the counts of each large set with its links, and these with its accounts.
func (c *verifier) heads() error {
	begin, end := bounds(postings.RangeHead)
	it := c.view.Iterator()
	for it.SeekGE(begin) && bytes.Compare(it.Key(), end) < 0 {
		key := bytes.Clone(it.Key())
		begin = append(key, 0)
		set, _, err := postings.ParseSet(c.view.Codec, key)
		var head postings.Head
		if err == nil {
			head, err = postings.DecodeHead(it.Value())
		}
		if err != nil {
			c.report.Problem("key %x: %v", key, err)
			continue
		}
		c.report.Large++
		if err := c.head(set, head); err != nil {
			return err
		}
	}
	return it.Error()
}

func (c *verifier) head(set Set, head postings.Head) error {
	var links, accounts tally
	var tail uint64
	prefix := postings.AppendSet(nil, c.view.Codec, postings.RangeMembers, set)
	err := c.eachLink(prefix, postings.PrefixEnd(prefix), func(l named, start uint64) {
		links.links++
		links.sum += c.hash(l.link.Account, l.link.Arrival)
		tail = start
	})
	if err != nil {
		return err
	}
	var arrivals []uint64
	prefix = postings.AppendSet(nil, c.view.Codec, postings.RangeAccount, set)
	err = c.scan(prefix, postings.PrefixEnd(prefix), func(key, value []byte) error {
		account, _, err := c.view.Codec.Next(key[len(prefix):])
		if err == nil {
			arrivals, err = postings.DecodeArrivals(arrivals[:0], value)
		}
		if err == nil && len(arrivals) == 0 {
			err = errors.New("the account has no links")
		}
		if err != nil {
			c.report.Problem("key %x: %v", key, err)
			return nil
		}
		accounts.accounts++
		accounts.links += uint64(len(arrivals))
		for _, a := range arrivals {
			accounts.sum += c.hash(account, a)
		}
		return nil
	})
	links.accounts = accounts.accounts
	if links != accounts || head.Records != links.links || head.Accounts != accounts.accounts || tail > head.Tail {
		c.report.Problem("links to %x from %d: they differ: counts %+v, accounts %+v, chunks %+v", set.Subject, set.Path, head, accounts, links)
	}
	return err
}

// accounts checks that only large sets, which have a head, have accounts.
func (c *verifier) accounts() error {
	begin, end := bounds(postings.RangeAccount)
	var sets []Set
	err := c.scan(begin, end, func(key, _ []byte) error {
		set, _, err := postings.ParseSet(c.view.Codec, key)
		if err != nil {
			c.report.Problem("key %x: %v", key, err)
		} else if len(sets) == 0 || sets[len(sets)-1] != set {
			sets = append(sets, set)
		}
		return nil
	})
	return errors.Join(err, c.haveHeads(sets, "accounts"))
}
