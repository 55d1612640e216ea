package intern

import "sync"

// nameBytes is about what a string of a nameCache takes beside its bytes.
const nameBytes = 64

// nameCache has the strings of UIDs that were looked up last: since those never change, an entry is
// never wrong. It is two maps: once the young one has half of the bytes, it becomes the old one,
// and what was in that is forgotten.
type nameCache struct {
	maxBytes int64 // 0: nothing is kept

	mu         sync.Mutex
	young, old map[uint64]string
	bytes      int64 // of young
}

// find sets strings[i] to what uids[i] stands for, as far as it is known, and returns the places of
// the others.
func (c *nameCache) find(uids []uint64, strings []string) (missing []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, uid := range uids {
		s, ok := c.young[uid]
		if !ok {
			if s, ok = c.old[uid]; ok {
				c.putLocked(uid, s)
			}
		}
		if strings[i] = s; !ok {
			missing = append(missing, i)
		}
	}
	return missing
}

// put adds what was looked up.
func (c *nameCache) put(uids []uint64, strings []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, s := range strings {
		if s != "" {
			c.putLocked(uids[i], s)
		}
	}
}

func (c *nameCache) putLocked(uid uint64, s string) {
	n := int64(len(s)) + nameBytes
	if c.maxBytes == 0 {
		return
	}
	if c.young == nil || c.bytes+n > c.maxBytes/2 {
		c.young, c.old, c.bytes = make(map[uint64]string), c.young, 0
	}
	if _, ok := c.young[uid]; !ok {
		c.bytes += n
	}
	c.young[uid] = s
}
