package public

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// gatePatience is how many times as long as a message may take to arrive one waits for room for it: some
// addresses that send half a message each may be first.
const gatePatience = 4

var errGateClosed = errors.New("no room for the message")

// gate bounds how many larger messages are in memory at once, over all connections: some of up to
// mediumMessageBytes, and one of more. Who waits gets in by the order of coming; but an address has one
// message at a time in the gate or waiting before it, so that one that sends many, or only half of each,
// keeps others waiting for one of them at most. Loopback, where a proxy may be, is not held to that.
type gate struct {
	medium chan struct{}
	large  chan struct{}

	mu    sync.Mutex
	turns map[netip.Prefix]*turn
}

// turn is one address before the gate.
type turn struct {
	slot  chan struct{} // capacity 1
	users int           // has it or waits for it; guarded by gate.mu
}

func newGate(clientBytes int64) *gate {
	n := min(max(clientBytes/8/mediumMessageBytes, 2), maxMediumMessages)
	return &gate{medium: make(chan struct{}, n), large: make(chan struct{}, 1), turns: make(map[netip.Prefix]*turn)}
}

// pass is one message on its way through the gate.
type pass struct {
	gate     *gate
	key      netip.Prefix
	turn     *turn // nil: the address needs none
	done     <-chan struct{}
	deadline time.Time
	held     []chan struct{}
}

// enter waits for the address's turn, until done or for patience, which counts for what comes after too.
// The caller must leave.
func (g *gate) enter(client netip.Addr, done <-chan struct{}, patience time.Duration) (*pass, error) {
	p := &pass{gate: g, key: addressKey(client), done: done, deadline: time.Now().Add(patience)}
	if client.IsLoopback() {
		return p, nil
	}
	g.mu.Lock()
	t := g.turns[p.key]
	if t == nil {
		t = &turn{slot: make(chan struct{}, 1)}
		g.turns[p.key] = t
	}
	t.users++
	g.mu.Unlock()
	p.turn = t
	if err := p.take(t.slot); err != nil {
		p.leave()
		return nil, err
	}
	return p, nil
}

// next waits for room for as much as medium messages have, and, called again, for a large one.
func (p *pass) next() error {
	for _, slots := range []chan struct{}{p.gate.medium, p.gate.large} {
		if !p.holds(slots) {
			return p.take(slots)
		}
	}
	return nil
}

func (p *pass) holds(slots chan struct{}) bool {
	for _, h := range p.held {
		if h == slots {
			return true
		}
	}
	return false
}

func (p *pass) take(slots chan struct{}) error {
	timer := time.NewTimer(time.Until(p.deadline))
	defer timer.Stop()
	select {
	case slots <- struct{}{}:
		p.held = append(p.held, slots)
		return nil
	case <-p.done:
		return net.ErrClosed
	case <-timer.C:
		return errGateClosed
	}
}

// leave gives back what the message holds.
func (p *pass) leave() {
	for _, slots := range p.held {
		<-slots
	}
	if p.turn == nil {
		return
	}
	p.gate.mu.Lock()
	defer p.gate.mu.Unlock()
	if p.turn.users--; p.turn.users == 0 {
		delete(p.gate.turns, p.key)
	}
}
