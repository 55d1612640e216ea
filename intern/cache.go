package intern

import (
	"bytes"
	"sync"
)

// cache maps forward keys to UIDs. It holds only what is known to be committed; since that never
// changes, an entry is never wrong, only evicted. Its memory is taken once and holds no pointers.
// Keys longer than cacheKey are not held.
const (
	cacheKey   = 23 // bytes of a key; DIDs of did:plc have 16, records with TIDs 16 to 19
	cacheWays  = 8  // slots a key may be in
	cacheLocks = 64
)

type cacheSlot struct {
	uid  uint64
	size uint8
	key  [cacheKey]byte
}

// cacheSet is the slots of the keys of one hash. Its tags, in front and together, spare most reads
// of slots. Eviction gives slots that were read since the hand last passed a second chance.
type cacheSet struct {
	tags  [cacheWays]uint8 // of the hash; 0: the slot is empty
	used  uint8            // bit per slot: read since the hand passed
	hand  uint8
	slots [cacheWays]cacheSlot
}

// tagOf takes bits of the hash that do not choose the set.
func tagOf(hash uint64) uint8 { return uint8(hash) | 1 }

type cache struct {
	locks [cacheLocks]sync.Mutex // lock i guards the sets whose number is i modulo cacheLocks
	sets  []cacheSet
}

const cacheSetBytes = cacheWays*32 + 16

// newCache returns a cache of about maxBytes, nil if that is too little for any.
func newCache(maxBytes int64) *cache {
	n := maxBytes / cacheSetBytes
	if n <= 0 {
		return nil
	}
	return &cache{sets: make([]cacheSet, n)}
}

// set returns the number of the set of hash.
func (c *cache) set(hash uint64) uint64 { return (hash >> 32) * uint64(len(c.sets)) >> 32 }

// get returns the UID of key, 0 if the cache does not hold it. hash is hashKey(key).
func (c *cache) get(hash uint64, key []byte) uint64 {
	if c == nil || len(key) > cacheKey {
		return 0
	}
	at := c.set(hash)
	lock := &c.locks[at%cacheLocks]
	lock.Lock()
	defer lock.Unlock()
	s := &c.sets[at]
	if i := s.find(tagOf(hash), key); i >= 0 {
		s.used |= 1 << i
		return s.slots[i].uid
	}
	return 0
}

// put adds a committed mapping.
func (c *cache) put(hash uint64, key []byte, uid uint64) {
	if c == nil || len(key) > cacheKey {
		return
	}
	at := c.set(hash)
	lock := &c.locks[at%cacheLocks]
	lock.Lock()
	defer lock.Unlock()
	s := &c.sets[at]
	if s.find(tagOf(hash), key) >= 0 {
		return
	}
	free := bytes.IndexByte(s.tags[:], 0)
	for free < 0 {
		if bit := uint8(1) << s.hand; s.used&bit != 0 {
			s.used &^= bit
		} else {
			free = int(s.hand)
		}
		s.hand = (s.hand + 1) % cacheWays
	}
	s.tags[free] = tagOf(hash)
	slot := &s.slots[free]
	slot.uid, slot.size = uid, uint8(len(key))
	copy(slot.key[:], key)
}

// find returns the place of a key, -1 if it is not in the set.
func (s *cacheSet) find(tag uint8, key []byte) int {
	for i, t := range s.tags {
		if t == tag && string(s.slots[i].key[:s.slots[i].size]) == string(key) {
			return i
		}
	}
	return -1
}

// maxCollections is how many collections are remembered; some thousand are in use on the network,
// but anyone can make up more.
const maxCollections = 16 << 10

// collections maps collections to their numbers and back, for those committed. Beyond
// maxCollections a random one makes room.
type collections struct {
	mu       sync.RWMutex
	byName   map[string]uint32
	byNumber map[uint32]string
}

func newCollections() *collections {
	return &collections{byName: make(map[string]uint32), byNumber: make(map[uint32]string)}
}

// number returns 0 if the collection is not remembered.
func (c *collections) number(name []byte) uint32 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byName[string(name)]
}

// name returns "" if the collection is not remembered.
func (c *collections) name(number uint32) string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.byNumber[number]
}

func (c *collections) put(name string, number uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byName) >= maxCollections && c.byName[name] == 0 {
		for n, i := range c.byName { // the map's order is random
			delete(c.byName, n)
			delete(c.byNumber, i)
			break
		}
	}
	c.byName[name] = number
	c.byNumber[number] = name
}
