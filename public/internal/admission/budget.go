package admission

import (
	"net/netip"
	"time"
)

// Budget is one of two budgets, of Config.Bytes/2 each. Neither gives to the other.
type Budget int

// The budgets.
const (
	Filters Budget = iota
	Unsent         // what slow clients have yet to take
	budgets
)

// Quota is what one client may take from one budget.
type Quota struct {
	controller *Controller
	budget     Budget
	client     netip.Addr
}

// Quota returns client's quota. It holds nothing yet.
func (c *Controller) Quota(budget Budget, client netip.Addr) Quota {
	return Quota{controller: c, budget: budget, client: client}
}

// Reserve takes n bytes and reports whether they were there. It never waits: a client that asks for
// more than is left, or than one address may have, is refused.
func (q Quota) Reserve(n int64) bool {
	c := q.controller
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bytes[q.budget]+n > c.cfg.Bytes/2 {
		return false
	}
	if !q.client.IsLoopback() && n > 0 {
		key := keyOf(q.client)
		e := c.addressLocked(key, time.Now())
		if e.bytes+n > c.cfg.BytesPerAddress {
			c.dropLocked(key, e)
			return false
		}
		e.bytes += n
	}
	c.bytes[q.budget] += n
	return true
}

// Limit returns the most that the client can have, if no other has anything.
func (q Quota) Limit() int64 {
	cfg := &q.controller.cfg
	if q.client.IsLoopback() {
		return cfg.Bytes / 2
	}
	return min(cfg.Bytes/2, cfg.BytesPerAddress)
}

// Release gives n bytes back.
func (q Quota) Release(n int64) {
	if n == 0 {
		return
	}
	c := q.controller
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes[q.budget] -= n
	if q.client.IsLoopback() {
		return
	}
	key := keyOf(q.client)
	e := c.addresses[key]
	e.bytes -= n
	c.dropLocked(key, e)
}

// BytesOf returns how many bytes client's address holds, 0 for loopback.
func (c *Controller) BytesOf(client netip.Addr) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.addresses[keyOf(client)]; e != nil {
		return e.bytes
	}
	return 0
}
