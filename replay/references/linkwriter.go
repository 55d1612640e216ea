package references

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"millrace/intern/kv/pebbleguard"
	"millrace/replay/internal/postings"
)

// linkWriter adds the edges of sets to a batch. It reads what was committed before: all edges of a
// set come in one call of write.
type linkWriter struct {
	store  *Store
	batch  *pebble.Batch
	starts *pebbleguard.Iterator // opened when needed

	key, value []byte
	links      []byte // of entries
}

// errNotTable means that a link to add is there already, or that one to remove is not.
var errNotTable = errors.New("the links differ from the table")

func (w *linkWriter) write(set postings.Set, edges []edge) error {
	w.key = postings.AppendSet(w.key[:0], w.store.codec, postings.RangeHead, set)
	if !w.store.commits.heads.has(w.key) {
		return w.writeSmall(set, edges)
	}
	head, err := w.store.lookUp(w.key)
	if err != nil {
		return err
	}
	if head == nil {
		return w.writeSmall(set, edges)
	}
	l := largeSet{linkWriter: w, set: set, chunks: make(map[uint64][]edge), accounts: make(map[uint64][]uint64)}
	if l.head, err = postings.DecodeHead(head); err != nil {
		return damaged(postings.AppendSet(nil, w.store.codec, postings.RangeHead, set), err)
	}
	return l.write(edges)
}

// writeSmall adds edges to the one chunk of a small set, unread, and makes the set large if one of
// them finds it so.
func (w *linkWriter) writeSmall(set postings.Set, edges []edge) error {
	members, err := w.merge(set, 0, edges)
	if err != nil || len(members) <= w.store.cfg.hooks.chunkLinks {
		return err
	}
	l := largeSet{linkWriter: w, set: set, accounts: make(map[uint64][]uint64)}
	for i := range members {
		account, _, err := postings.DecodeLink(w.store.codec, members[i].Link)
		if err != nil {
			return damaged(postings.AppendChunk(nil, w.store.codec, set, 0), err)
		}
		l.accounts[account] = append(l.accounts[account], members[i].Arrival)
	}
	l.head = postings.Head{Records: uint64(len(members)), Accounts: uint64(len(l.accounts))}
	if err := l.split(0, members); err != nil {
		return err
	}
	return l.finish()
}

// merge adds edges to a chunk. If one of them is there to look how large it is, members is what the
// chunk then has.
func (w *linkWriter) merge(set postings.Set, start uint64, edges []edge) (members []postings.Entry, err error) {
	entries := make([]postings.Entry, 0, len(edges))
	looks := false
	w.links = w.links[:0]
	for i := range edges {
		e := &edges[i]
		entry := postings.Entry{Arrival: e.arrival}
		if !e.removed {
			looks = looks || e.arrival%w.store.cfg.hooks.checkLinks == 0
			from := len(w.links)
			w.links = postings.AppendLink(w.links, w.store.codec, e.account, e.record)
			entry.Link = w.links[from:len(w.links):len(w.links)]
		}
		entries = append(entries, entry)
	}
	if entries, err = postings.Fold(entries, false); err != nil || len(entries) == 0 {
		return nil, err
	}
	w.key = postings.AppendChunk(w.key[:0], w.store.codec, set, start)
	if err := w.mergeEntries(entries); err != nil || !looks {
		return nil, err
	}
	value, err := w.store.lookUp(w.key)
	if err != nil {
		return nil, err
	}
	if members, err = postings.DecodeEntries(nil, value); err != nil {
		return nil, damaged(w.key, err)
	}
	return postings.Fold(append(members, entries...), true)
}

// mergeEntries adds entries to the value of w.key.
func (w *linkWriter) mergeEntries(entries []postings.Entry) error {
	w.value = postings.AppendEntries(w.value[:0], entries)
	return w.batch.Merge(w.key, w.value, nil)
}

// chunkOf returns where the chunk of an arrival number starts: the last one that is not after it.
func (w *linkWriter) chunkOf(set postings.Set, arrival uint64) (start uint64, err error) {
	if w.starts == nil {
		if w.starts, err = w.store.rangeIter(keyRange(postings.RangeStart)); err != nil {
			return 0, err
		}
	}
	w.key = postings.AppendStart(w.key[:0], w.store.codec, set, arrival+1)
	if !w.starts.SeekLT(w.key) {
		return 0, w.starts.Error()
	}
	prefix := postings.AppendSet(nil, w.store.codec, postings.RangeStart, set)
	rest, ok := bytes.CutPrefix(w.starts.Key(), prefix)
	if !ok {
		return 0, nil
	}
	if start, err = postings.ParseStart(rest); err != nil {
		return 0, damaged(w.starts.Key(), err)
	}
	return start, nil
}

// largeSet is a set that has a head with its counts, several chunks, and a list of each account's
// arrival numbers.
type largeSet struct {
	*linkWriter
	set      postings.Set
	head     postings.Head
	chunks   map[uint64][]edge   // by their start
	accounts map[uint64][]uint64 // of the accounts in edges, the arrival numbers of their links
}

func (l *largeSet) write(edges []edge) error {
	for i := range edges {
		e := &edges[i]
		if err := l.count(e); err != nil {
			return err
		}
		start := l.head.Tail
		if e.arrival < start {
			var err error
			if start, err = l.chunkOf(l.set, e.arrival); err != nil {
				return err
			}
		}
		l.chunks[start] = append(l.chunks[start], *e)
	}
	for _, start := range slices.Sorted(maps.Keys(l.chunks)) {
		members, err := l.merge(l.set, start, l.chunks[start])
		if err == nil && len(members) > l.store.cfg.hooks.chunkLinks {
			err = l.split(start, members)
		}
		if err != nil {
			return err
		}
	}
	return l.finish()
}

// count adds an edge to the counts and to what its account has.
func (l *largeSet) count(e *edge) error {
	arrivals, ok := l.accounts[e.account]
	if !ok {
		key := postings.AppendAccount(nil, l.store.codec, l.set, e.account)
		value, err := l.store.lookUp(key)
		if err != nil {
			return err
		}
		if arrivals, err = postings.DecodeArrivals(nil, value); err != nil {
			return damaged(key, err)
		}
	}
	at, found := slices.BinarySearch(arrivals, e.arrival)
	switch {
	case found != e.removed:
		key := postings.AppendAccount(nil, l.store.codec, l.set, e.account)
		return damaged(key, fmt.Errorf("arrival number %d: %w", e.arrival, errNotTable))
	case found:
		arrivals = slices.Delete(arrivals, at, at+1)
		l.head.Records--
		if len(arrivals) == 0 {
			l.head.Accounts--
		}
	default:
		if len(arrivals) == 0 {
			l.head.Accounts++
		}
		arrivals = slices.Insert(arrivals, at, e.arrival)
		l.head.Records++
	}
	l.accounts[e.account] = arrivals
	return nil
}

// split moves the later half of a chunk to a new one.
func (l *largeSet) split(start uint64, members []postings.Entry) error {
	moved := members[len(members)/2:]
	begins := moved[0].Arrival
	l.key = postings.AppendChunk(l.key[:0], l.store.codec, l.set, begins)
	if err := l.mergeEntries(moved); err != nil {
		return err
	}
	l.key = postings.AppendStart(l.key[:0], l.store.codec, l.set, begins)
	if err := l.batch.Set(l.key, nil, nil); err != nil {
		return err
	}
	removed := make([]postings.Entry, len(moved))
	for i := range moved {
		removed[i].Arrival = moved[i].Arrival
	}
	l.head.Tail = max(l.head.Tail, begins)
	l.key = postings.AppendChunk(l.key[:0], l.store.codec, l.set, start)
	return l.mergeEntries(removed)
}

// finish writes the counts and the accounts.
func (l *largeSet) finish() (err error) {
	for account, arrivals := range l.accounts {
		l.key = postings.AppendAccount(l.key[:0], l.store.codec, l.set, account)
		if len(arrivals) == 0 {
			err = l.batch.Delete(l.key, nil)
		} else {
			l.value = postings.AppendArrivals(l.value[:0], arrivals)
			err = l.batch.Set(l.key, l.value, nil)
		}
		if err != nil {
			return err
		}
	}
	l.key = postings.AppendSet(l.key[:0], l.store.codec, postings.RangeHead, l.set)
	l.store.commits.heads.add(l.key)
	// A set stays large when it becomes empty, as its chunks stay.
	return l.batch.Set(l.key, l.head.Append(l.value[:0]), nil)
}
