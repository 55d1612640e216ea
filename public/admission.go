package public

import (
	"net/netip"
	"time"

	"millrace/public/internal/admission"
)

const (
	// maxHandshakes is the default of Config.MaxHandshakes.
	maxHandshakes = 512
	// addressesPerBudget is the number of addresses that it takes, at least, to use up ClientBytes,
	// unless that is small.
	addressesPerBudget = 8
	// Slots for messages and headers of up to mediumMessageBytes: as many as an eighth of
	// ClientBytes has room for, within these bounds.
	minMessageSlots = 2
	minHeaderSlots  = 4
	maxSlots        = 32
)

// newAdmission makes the limits that cfg asks for.
func newAdmission(cfg *Config, headerTimeout time.Duration, rejected func(netip.Addr, string)) *admission.Controller {
	slots := int(min(cfg.ClientBytes/8/mediumMessageBytes, maxSlots))
	return admission.New(admission.Config{
		Connections:       cfg.MaxConnectionsPerIP,
		AttemptsPerSecond: cfg.AttemptsPerSecond,
		AttemptBurst:      cfg.AttemptBurst,
		Handshakes:        cfg.MaxHandshakes,
		Bytes:             cfg.ClientBytes,
		BytesPerAddress:   addressQuota(cfg.ClientBytes),
		MessageSlots:      max(slots, minMessageSlots),
		HeaderSlots:       max(slots, minHeaderSlots),
		HeaderTimeout:     headerTimeout,
		TrustedProxies:    cfg.TrustedProxies,
		Rejected:          rejected,
	})
}

// addressQuota is how many of clientBytes one address may have: room for two large filters at
// least, so that one can be replaced by another.
func addressQuota(clientBytes int64) int64 {
	return min(clientBytes/2, max(clientBytes/addressesPerBudget, 2*largeFilterBytes))
}
