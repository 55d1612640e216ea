package consume

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// cause says why a connection ended or was not made. It is the label of the reconnect metric.
type cause string

const (
	causeDial        cause = "dial_failed"     // no connection, or a failed handshake
	causeRefused     cause = "refused"         // an HTTP answer other than the upgrade
	causeClosed      cause = "closed"          // the relay sent a close frame
	causeLost        cause = "lost"            // the connection broke
	causeSilent      cause = "silent"          // nothing came for silenceTimeout, no pong either
	causePing        cause = "write_failed"    // a ping or pong could not be written
	causeProtocol    cause = "protocol"        // not websocket frames as they ought to be
	causeTooLong     cause = "message_timeout" // a message did not come within messageTimeout
	causeFuture      cause = "future_cursor"
	causeTooSlow     cause = "consumer_too_slow"
	causeErrorFrame  cause = "error_frame"   // another error frame
	causeResume      cause = "left_out"      // frames were left out; ask for them
	causeRecheck     cause = "epoch_recheck" // has the relay its old numbering back?
	causeNewEpoch    cause = "new_epoch"     // a new epoch begins
	causeStopped     cause = "stopped"       // Run's context is done
	causeHandleError cause = "handle_failed" // Handle returned an error
)

// errorNames are the error frames that have a label of their own.
const (
	errorFutureCursor = "FutureCursor"
	errorTooSlow      = "ConsumerTooSlow"
	errorOther        = "other"
)

// metrics of one Client. What the reading goroutine counts per frame is resolved beforehand.
type metrics struct {
	frames     map[string]prometheus.Counter // by type
	bytes      map[string]prometheus.Counter // by type
	drops      [numReasons]prometheus.Counter
	repeats    prometheus.Counter
	infos      *prometheus.CounterVec
	errors     *prometheus.CounterVec
	reconnects *prometheus.CounterVec
	gaps       prometheus.Counter
	missed     prometheus.Counter
	epochs     prometheus.Counter
}

// newMetrics makes c's metrics and registers them with r, if that is not nil.
func newMetrics(c *Client, r prometheus.Registerer) (*metrics, error) {
	own := prometheus.NewRegistry() // so that all register, or none
	auto := promauto.With(prometheus.WrapRegistererWithPrefix("millrace_consume_", own))
	counter := func(name, help string) prometheus.Counter {
		return auto.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		return auto.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	gauge := func(name, help string, f func() float64) {
		auto.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	m := &metrics{
		frames:     make(map[string]prometheus.Counter),
		bytes:      make(map[string]prometheus.Counter),
		repeats:    counter("repeats_total", "Frames dropped because they were at or below the last one handed over."),
		infos:      vec("info_frames_total", "Info frames from the relay, by name.", "name"),
		errors:     vec("error_frames_total", "Error frames from the relay, by name.", "name"),
		reconnects: vec("reconnects_total", "Connections that ended or were not made, by cause.", "cause"),
		gaps:       counter("gaps_total", "Gaps recorded: places where frames may have been lost."),
		missed:     counter("gap_frames_total", "Sequence numbers within gaps of one epoch."),
		epochs:     counter("epochs_begun_total", "Epochs begun because the relay restarted its numbering."),
	}
	frames := vec("frames_total", "Frames received, by type.", "type")
	bytes := vec("bytes_total", "Bytes of frames received, by type.", "type")
	for _, t := range []string{TypeCommit, TypeIdentity, TypeAccount, TypeSync, TypeInfo, TypeOther} {
		m.frames[t] = frames.WithLabelValues(t)
		m.bytes[t] = bytes.WithLabelValues(t)
	}
	drops := vec("dropped_total", "Messages dropped or skipped, by reason.", "reason")
	for r := reasonText; r < numReasons; r++ {
		m.drops[r] = drops.WithLabelValues(r.String())
	}
	gauge("epoch", "The epoch of the relay's numbering.", func() float64 { return float64(c.epoch.Load()) })
	gauge("last_seq", "The last sequence number handed over.", func() float64 { return float64(c.lastSeq.Load()) })
	gauge("connected", "1 while there is a connection to the relay.", func() float64 { return oneIf(c.Status().Connected) })
	gauge("suspect", "1 while the relay's numbering is suspected to have restarted.", func() float64 { return oneIf(c.suspect.Load()) })
	gauge("last_frame_timestamp_seconds", "When the last frame with a sequence number came, 0 if none did.", func() float64 {
		return float64(c.lastFrame.Load()) / float64(time.Second)
	})
	auto.NewCounterFunc(prometheus.CounterOpts{
		Name: "handle_blocked_seconds_total",
		Help: "Time in which reading waited for frames to be taken.",
	}, func() float64 { return time.Duration(c.blocked.Load()).Seconds() })
	if r == nil {
		return m, nil
	}
	err := r.Register(own)
	if errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		return nil, fmt.Errorf("register metrics: another client has this Registerer: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
