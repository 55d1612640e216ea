package admission

import (
	"errors"
	"net"
	"net/netip"
	"time"
)

// ErrNoSlot reports that a Claim waited in vain.
var ErrNoSlot = errors.New("no room for the message")

// slots bound how many larger messages, or headers, are in memory at once over all connections. As
// a message grows it takes one of each channel in turn. They are given in the order in which claims
// ask for them.
type slots []chan struct{}

// Kinds of slots. One claim of an address and of a kind at a time uses or waits for them. So an
// address that sends many messages, or only half of each, delays others by one of them at most.
const (
	messageSlot = iota
	headerSlot
	slotKinds
)

// Claim is one message on its way through the slots.
type Claim struct {
	controller *Controller
	next       slots    // that Take has yet to take
	address    *address // nil: it may have several messages at once
	key        netip.Prefix
	done       <-chan struct{}
	deadline   time.Time
	held       slots
}

// ClaimMessage waits until no other message of client has a claim. It waits until done is closed,
// and at most for patience, in which the waits for slots count too. The caller must Release the
// claim. Loopback does not wait here.
func (c *Controller) ClaimMessage(client netip.Addr, done <-chan struct{}, patience time.Duration) (*Claim, error) {
	return c.claim(messageSlot, client, done, patience)
}

func (c *Controller) claim(kind int, client netip.Addr, done <-chan struct{}, patience time.Duration) (*Claim, error) {
	claim := &Claim{
		controller: c, next: c.slots[kind], key: keyOf(client), done: done, deadline: time.Now().Add(patience),
	}
	if client.IsLoopback() {
		return claim, nil
	}
	c.mu.Lock()
	e := c.addressLocked(claim.key, time.Now())
	if e.claims++; e.claims == 1 {
		e.slots = &[slotKinds]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
	}
	claim.address = e
	slot := e.slots[kind]
	c.mu.Unlock()
	if err := claim.take(slot); err != nil {
		claim.Release()
		return nil, err
	}
	return claim, nil
}

// Take waits for the slot of a medium message, and, called again, for that of a large one. Its
// error is ErrNoSlot, or net.ErrClosed once done is closed.
func (c *Claim) Take() error {
	slot := c.next[0]
	c.next = c.next[1:]
	return c.take(slot)
}

func (c *Claim) take(slot chan struct{}) error {
	select {
	case slot <- struct{}{}:
		c.held = append(c.held, slot)
		return nil
	case <-c.done:
		return net.ErrClosed
	case <-time.After(time.Until(c.deadline)):
		return ErrNoSlot
	}
}

// Release gives back what the claim holds.
func (c *Claim) Release() {
	for _, slot := range c.held {
		<-slot
	}
	e := c.address
	if e == nil {
		return
	}
	c.controller.mu.Lock()
	defer c.controller.mu.Unlock()
	if e.claims--; e.claims == 0 {
		e.slots = nil
		c.controller.dropLocked(c.key, e)
	}
}
