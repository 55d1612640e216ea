package admission

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

// Config is what New needs. All fields must be set, but for those that say otherwise.
type Config struct {
	Connections       int     // that one address may have
	AttemptsPerSecond float64 // of one address
	AttemptBurst      int     // of them at once
	Handshakes        int     // unfinished ones in all; at least 1
	Bytes             int64   // of all quotas; each Budget has half of it
	BytesPerAddress   int64   // of them for one address
	MessageSlots      int     // for messages of medium size; large ones have one slot
	HeaderSlots       int     // for large request lines and headers
	// for a request's headers to arrive, the wait for a slot included
	HeaderTimeout  time.Duration
	TrustedProxies []netip.Prefix // networks whose X-Forwarded-For is believed; may be nil
	// Rejected is called for each connection that is closed before a request was read; may be nil.
	Rejected func(peer netip.Addr, reason string)
}

// Reasons for turning an address away, as metrics name them.
const (
	ReasonAttempts          = "address_attempts"
	ReasonConnections       = "address_connections"
	ReasonAddresses         = "too_many_addresses"
	ReasonHandshakes        = "unfinished_handshakes"
	ReasonAddressHandshakes = "address_unfinished_handshakes"
)

// Controller holds the limits and what counts against them.
type Controller struct {
	cfg   Config
	slots [slotKinds]slots

	mu         sync.Mutex
	addresses  map[netip.Prefix]*address
	swept      time.Time // when sweepLocked last looked
	handshakes list.List // of *Conn, the oldest first
	bytes      [budgets]int64
}

// New makes a Controller. It starts nothing.
func New(cfg Config) *Controller {
	return &Controller{
		cfg: cfg,
		slots: [...]slots{
			messageSlot: {make(chan struct{}, cfg.MessageSlots), make(chan struct{}, 1)},
			headerSlot:  {make(chan struct{}, cfg.HeaderSlots)},
		},
		addresses: make(map[netip.Prefix]*address),
	}
}

// Stats is what is held at one moment.
type Stats struct {
	Addresses      int   // that are remembered
	Handshakes     int   // unfinished ones
	Bytes          int64 // of the budget
	MediumMessages int   // slots taken
	LargeMessages  int   // slots taken
	LargeHeaders   int   // slots taken
}

// Stats returns what is held now.
func (c *Controller) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Stats{
		Addresses:      len(c.addresses),
		Handshakes:     c.handshakes.Len(),
		Bytes:          c.bytes[Filters] + c.bytes[Unsent],
		MediumMessages: len(c.slots[messageSlot][0]),
		LargeMessages:  len(c.slots[messageSlot][1]),
		LargeHeaders:   len(c.slots[headerSlot][0]),
	}
}
