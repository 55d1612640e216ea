package consume

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"
	"github.com/prometheus/client_golang/prometheus"

	"millrace/consume/relaysim/testwait"
)

// TestMetrics compares each series with what a scripted relay sent.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sizes := map[string]int{}
		_, l := pipeRelay(t, func(p *peer) {
			count := func(typ string, msg []byte) []byte {
				sizes[typ] += len(msg)
				return msg
			}
			if p.n == 1 {
				p.send(count(TypeCommit, frameOf(TypeCommit, 11, 1)), count(TypeIdentity, frameOf(TypeIdentity, 12, 2)),
					count(TypeAccount, frameOf(TypeAccount, 13, 3)), count(TypeSync, frameOf(TypeSync, 14, 4)),
					count(TypeOther, frameOf("#fnord", 15, 5)), count(TypeIdentity, frameOf(TypeIdentity, 12, 6)),
					count(TypeInfo, infoFrameOf("OutdatedCursor")), count(TypeInfo, infoFrameOf("Fnord")), count(TypeInfo, infoFrameOf("Fnord")),
					nil, []byte{0xff}, frameOf(TypeCommit, 0, 7),
					bytes.Replace(frameOf(TypeCommit, 16, 0), []byte("\x62op\x01"), []byte("\x62op\x02"), 1))
				p.ws.WriteMessage(websocket.TextMessage, []byte("text"))
				return
			}
			p.send(count(TypeCommit, frameOf(TypeCommit, 20, 8)), errorFrameOf(errorTooSlow), errorFrameOf("Fnord"), errorFrameOf("Fnord"))
			large := frameOf(TypeCommit, 21, maxMessageBytes)
			sizes[TypeCommit] += maxMessageBytes + 1
			p.send(large)
			p.wait()
		})
		c := start(t, l, Config{Cursor: 10, Epoch: 3})
		c.until(t, 7)
		testwait.Elapse(time.Second)
		want := map[string]float64{
			"frames_total #commit": 3, "frames_total #identity": 2, "frames_total #account": 1, "frames_total #sync": 1,
			"frames_total #info": 3, "frames_total other": 1,
			"dropped_total text": 1, "dropped_total empty": 1, "dropped_total bad_header": 1, "dropped_total bad_op": 1,
			"dropped_total no_seq": 1, "dropped_total too_large": 1,
			"repeats_total": 1, "info_frames_total OutdatedCursor": 1, "info_frames_total other": 2,
			"error_frames_total ConsumerTooSlow": 1, "error_frames_total other": 2,
			"reconnects_total lost": 1, "gaps_total": 1, "gap_frames_total": 4, "epochs_begun_total": 0,
			"epoch": 3, "last_seq": 21, "connected": 1, "suspect": 0, "handle_blocked_seconds_total": 0,
			"last_frame_timestamp_seconds": float64(c.Status().LastFrame.UnixNano()) / 1e9,
		}
		for typ, size := range sizes {
			want["bytes_total "+typ] = float64(size)
		}
		if diff := cmp.Diff(want, c.metrics(t)); diff != "" {
			t.Errorf("metrics (-want +got):\n%s", diff)
		}
		c.stop()
		if got := c.metric(t, "connected", ""); got != 0 {
			t.Errorf("connected is %v after Run", got)
		}
	})
}

// metrics returns the values of all series, by name without its beginning, and label.
func (r *running) metrics(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()[len("millrace_consume_"):]
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			got[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return got
}

// TestOneClientOfARegisterer: a second one is an error, and leaves the metrics of the first.
func TestOneClientOfARegisterer(t *testing.T) {
	reg := prometheus.NewRegistry()
	cfg := Config{URL: "relay.example.com", Handle: func(context.Context, Frame) error { return nil }, Registerer: reg}
	for i, want := range []string{"", "another client has this Registerer"} {
		if c, err := New(cfg); (c == nil) != (i == 1) || i == 1 && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("client %d: %v", i+1, err)
		}
	}
	cfg.Registerer = failingRegisterer{reg}
	if _, err := New(cfg); !errors.Is(err, errRegister) {
		t.Errorf("a Registerer that fails: %v", err)
	}
	if families, err := reg.Gather(); err != nil || len(families) == 0 {
		t.Errorf("%d metrics, %v", len(families), err)
	}
}

var errRegister = errors.New("no more metrics")

type failingRegisterer struct{ prometheus.Registerer }

func (failingRegisterer) Register(prometheus.Collector) error { return errRegister }
