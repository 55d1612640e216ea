package identity

// cache is what is known of accounts: in memory, and behind that on disk. Each has two generations
// of a bounded size. What is put or found is in the younger one; when that is full, the older one
// is dropped. So what was not asked for since a generation ago goes.
type cache struct {
	store      *store
	young, old map[uint64]*entry
	half       int // entries of a generation in memory
}

func newCache(s *store, entries int) cache {
	return cache{store: s, young: make(map[uint64]*entry), half: max(1, entries/2)}
}

// get returns what is known of an account, nil if nothing is. What is there under its UID of
// another DID is not its own.
func (c *cache) get(uid, check uint64) *entry {
	e := c.young[uid]
	if e == nil {
		if e = c.old[uid]; e == nil {
			if e = c.store.get(uid); e == nil {
				return nil
			}
		}
		c.keep(uid, e)
	}
	if e.check != check {
		return nil
	}
	return e
}

// keep puts an entry into memory only.
func (c *cache) keep(uid uint64, e *entry) {
	if _, there := c.young[uid]; !there && len(c.young) >= c.half {
		c.young, c.old = make(map[uint64]*entry), c.young
	}
	c.young[uid] = e
	delete(c.old, uid)
}

// put puts an entry into memory and on disk.
func (c *cache) put(uid uint64, e *entry) {
	c.keep(uid, e)
	c.store.put(uid, e)
}

// purge forgets what is known of an account, on disk too.
func (c *cache) purge(uid uint64) {
	delete(c.young, uid)
	delete(c.old, uid)
	c.store.delete(uid)
}
