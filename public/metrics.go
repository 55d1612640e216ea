package public

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Reasons for turning a client away before the upgrade, beside those of package admission.
const (
	rejectBadRequest = "bad_request"
	rejectHandshake  = "handshake"
	rejectMaximum    = "max_connections"
	rejectMemory     = "client_memory"
	rejectShutdown   = "unavailable"
	rejectUIDStore   = "uid_store"
)

// Limits that hold a client back for a while without ending it.
const (
	heldUpdates = "options_updates"
	heldInbound = "inbound_bytes"
	heldEvents  = "events_per_second"
)

// The wires, as metrics name them: that of /subscribe, and that of Jetstream v2.
const (
	wireV1 = "v1"
	wireV2 = "v2"
)

// wireMetrics count what was sent on one wire.
type wireMetrics struct{ events, bytes prometheus.Counter }

// deliveredOnAll returns what was sent on all wires.
func (m *metrics) deliveredOnAll() (sent struct{ events, bytes int64 }) {
	for _, wire := range m.delivered {
		sent.events += counterValue(wire.events)
		sent.bytes += counterValue(wire.bytes)
	}
	return sent
}

// metrics of the package. No label ever holds an address or an identifier.
type metrics struct {
	subscribers *prometheus.GaugeVec   // by variant
	delivered   map[string]wireMetrics // by wire
	ends        *prometheus.CounterVec // by reason
	rejected    *prometheus.CounterVec // by reason
	pings       prometheus.Counter
	updates     prometheus.Counter
	held        *prometheus.CounterVec // by limit
	large       prometheus.Counter
	forwarded   prometheus.Counter
	lag         prometheus.Histogram
}

func newMetrics(s *Server, r prometheus.Registerer) metrics {
	auto := promauto.With(prometheus.WrapRegistererWithPrefix("millrace_public_", r))
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	gauge := func(name, help string, read func() float64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read)
	}
	m := metrics{
		subscribers: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "subscribers",
			Help: "Connected subscribers by variant: plain, extended, references, zstd, extended_zstd or references_zstd; of Jetstream v2's wire: v2 or v2_zstd.",
		}, []string{"variant"}),
		ends:      vec("ends_total", "Subscriber connections that ended, by reason.", "reason"),
		rejected:  vec("rejected_total", "Connections and handshakes turned away, by reason.", "reason"),
		pings:     counter("pings_total", "Pings sent to subscribers."),
		updates:   counter("options_updates_total", "Options updates of subscribers that were put in force."),
		held:      vec("held_back_total", "How often a limit made a client wait: options_updates, inbound_bytes or events_per_second.", "limit"),
		large:     counter("large_messages_total", "Messages from clients of more than 4 KiB, which wait for room."),
		forwarded: counter("untrusted_forwards_total", "Handshakes with X-Forwarded-For from an address that is no trusted proxy."),
		lag: auto.NewHistogram(prometheus.HistogramOpts{
			Name:    "lag_seconds",
			Help:    "From an event's time_us until a write to a live subscriber that includes it returned; one observation a write.",
			Buckets: []float64{.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 60},
		}),
	}
	events := vec("delivered_events_total", "Events sent to subscribers, by wire: v1 or v2.", "wire")
	bytes := vec("delivered_bytes_total", "Bytes of event frames sent to subscribers, by wire.", "wire")
	m.delivered = make(map[string]wireMetrics)
	for _, wire := range []string{wireV1, wireV2} {
		m.delivered[wire] = wireMetrics{events.WithLabelValues(wire), bytes.WithLabelValues(wire)}
	}
	gauge("client_bytes", "Memory that filters and slow clients' events take, of the budget for clients.",
		func() float64 { return float64(s.admission.Stats().Bytes) })
	gauge("client_bytes_limit", "The budget for clients.",
		func() float64 { return float64(s.cfg.ClientBytes) })
	gauge("connections_limit", "How many subscribers there may be.",
		func() float64 { return float64(s.cfg.MaxConnections) })
	gauge("connections_per_address_limit", "How many subscribers an address may have.",
		func() float64 { return float64(s.cfg.MaxConnectionsPerIP) })
	gauge("addresses", "Client addresses that are remembered for their limits.",
		func() float64 { return float64(s.admission.Stats().Addresses) })
	gauge("unfinished_handshakes", "Connections that are no subscribers (yet).",
		func() float64 { return float64(s.admission.Stats().Handshakes) })
	return m
}

// wire names the wire.
func (o *options) wire() string {
	if o.v2 {
		return wireV2
	}
	return wireV1
}

// variant names what a subscriber is sent.
func (o *options) variant() string {
	name := "plain"
	switch {
	case o.v2:
		name = "v2"
	case o.references:
		name = "references"
	case o.extended:
		name = "extended"
	case o.dictionary != 0:
		return "zstd"
	}
	if o.dictionary != 0 {
		name += "_zstd"
	}
	return name
}
