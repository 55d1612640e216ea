package graphapi

import (
	"context"
	"errors"
	"sync"
	"time"

	"millrace/public/internal/setexpr"
	"millrace/public/internal/viewapi"
	"millrace/replay/links"
	"millrace/replay/references"
)

const (
	// maxLinks is how many records are read for a set of links.
	maxLinks = 200_000
	// keepFor is how long a set of links answers.
	keepFor = 5 * time.Second
	// cacheBytes is what the sets of links that are kept take.
	cacheBytes = 8 << 20
)

// linkKey names a set of links.
type linkKey struct {
	name  setexpr.Name
	uid   uint64
	owner uint64 // of a list
}

// linkSet is the members of a set of links at a position. Nothing changes it.
type linkSet struct {
	uids     []uint64
	position references.Position
	read     time.Time
}

func (s *linkSet) bytes() int { return 128 + 8*cap(s.uids) }

// cache keeps the sets of links that were read last.
type cache struct {
	mu    sync.Mutex
	sets  map[linkKey]*linkSet
	bytes int
}

func newCache() cache { return cache{sets: make(map[linkKey]*linkSet)} }

func (c *cache) get(key linkKey) *linkSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sets[key]
}

// put keeps a set, and drops the oldest others as far as there is no room.
func (c *cache) put(key linkKey, s *linkSet) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(key)
	for len(c.sets) > 0 && c.bytes+s.bytes() > cacheBytes {
		var oldest linkKey
		for k, other := range c.sets {
			if first := c.sets[oldest]; first == nil || other.read.Before(first.read) {
				oldest = k
			}
		}
		c.dropLocked(oldest)
	}
	c.sets[key] = s
	c.bytes += s.bytes()
}

func (c *cache) dropLocked(key linkKey) {
	if s := c.sets[key]; s != nil {
		c.bytes -= s.bytes()
		delete(c.sets, key)
	}
}

// linkReader reads the sets of links of a request, from one view.
type linkReader struct {
	api    *API
	ctx    context.Context
	at     *viewapi.At
	view   links.View           // nil: not opened yet
	oldest *references.Position // of the sets; nil: there is none
}

// set returns the members of a set, which stay as they are.
func (l *linkReader) set(key linkKey) ([]uint64, error) {
	s := l.api.cache.get(key)
	if s == nil || time.Since(s.read) > keepFor || l.at.Beyond(s.position) {
		if err := l.openView(); err != nil {
			return nil, err
		}
		uids, err := l.read(key)
		if err != nil {
			return nil, err
		}
		s = &linkSet{uids, l.view.Position(), time.Now()}
		l.api.cache.put(key, s)
	}
	if l.oldest == nil || s.position.Before(*l.oldest) {
		l.oldest = &s.position
	}
	return s.uids, nil
}

func (l *linkReader) openView() (err error) {
	if l.view != nil {
		return nil
	}
	if l.view, err = l.api.cfg.Links.View(); errors.Is(err, links.ErrBuilding) {
		return viewapi.NotBuilt(errLinks, "links are", l.api.cfg.Links.Progress())
	}
	return err
}

func (l *linkReader) close() error {
	if l.view == nil {
		return nil
	}
	return l.view.Close()
}

// read returns the members of a set of links. What the UID store or the log does not know has none.
func (l *linkReader) read(key linkKey) ([]uint64, error) {
	from := sourceOf(key.name)
	source, ok := l.api.cfg.Log.FindSource(from.source)
	if key.uid == 0 || !ok {
		return nil, nil
	}
	return from.read(l, key, source)
}

// count fails if a set has too many links.
func (l *linkReader) count(set links.Set) error {
	records, err := l.view.CountRecords(l.ctx, set)
	if err == nil && records > maxLinks {
		err = tooCostly("a set of links has %d records, %d are allowed", records, maxLinks)
	}
	return err
}

// liked returns the records that an account's records link to.
func (l *linkReader) liked(key linkKey, source uint32) ([]uint64, error) {
	return l.view.Linked(l.ctx, key.uid, source, maxLinks)
}

// accounts returns the accounts whose records link to a subject.
func (l *linkReader) accounts(key linkKey, source uint32) ([]uint64, error) {
	set := links.Set{Path: source, Subject: key.uid}
	if err := l.count(set); err != nil {
		return nil, err
	}
	found, err := l.view.Accounts(l.ctx, set, links.Page{Limit: maxLinks})
	return found.Accounts, err
}

// members returns the accounts that a list's owner has put on it.
func (l *linkReader) members(key linkKey, list uint32) ([]uint64, error) {
	subject, ok := l.api.cfg.Log.FindSource("app.bsky.graph.listitem:subject")
	if !ok || key.owner == 0 {
		return nil, nil
	}
	set := links.Set{Path: list, Subject: key.uid}
	if err := l.count(set); err != nil {
		return nil, err
	}
	found, err := l.view.Others(l.ctx, links.OthersQuery{Set: set, OtherPath: subject, Accounts: []uint64{key.owner}, Limit: maxLinks})
	uids := make([]uint64, 0, len(found.Items))
	for _, item := range found.Items {
		if item.IsDID {
			uids = append(uids, item.Subject)
		}
	}
	return uids, err
}
