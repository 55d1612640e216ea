package public

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/testwait"
	"millrace/replay"
)

// TestQueuedReplaysAreKeptAlive keeps the log from all replays. They must get pings and heartbeats,
// end if the client is dead and only then, and go on once they get their turn.
func TestQueuedReplaysAreKeptAlive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, all := mixed(t)
		s := serveBubble(t, l, nil)
		for range cap(s.catchUp.slots) {
			s.catchUp.slots <- struct{}{}
		}
		free := sync.OnceFunc(func() {
			for range cap(s.catchUp.slots) {
				<-s.catchUp.slots
			}
		})
		defer free()
		const healthy = 10
		var heartbeats atomic.Int64
		read := make(chan error, healthy)
		for range healthy {
			c := s.dial("cursor=0&heartbeat=1")
			go func() { // reading answers pings
				for events := 0; events < len(all); {
					_, m, err := c.ReadMessage()
					if err != nil {
						read <- err
						return
					}
					if bytes.Contains(m, []byte(`"kind":"heartbeat"`)) {
						heartbeats.Add(1)
					} else {
						events++
					}
				}
				read <- nil
			}()
		}
		leaves := s.dial("cursor=0")
		if err := leaves.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""), time.Now().Add(testTimeout)); err != nil {
			t.Fatal(err)
		}
		leaves.wantClose(1000, "")
		dead := s.rawDial("cursor=0")
		go io.Copy(io.Discard, dead) // answers no ping
		testwait.Elapse(5 * time.Minute)
		s.waitMetric("ends_total", endSilent, 1)
		if n := heartbeats.Load(); n < healthy*(5*60-2) {
			t.Errorf("%d heartbeats", n)
		}
		if n := s.count.Load(); n != healthy {
			t.Errorf("%d of %d healthy subscribers are left", n, healthy)
		}
		free()
		for range healthy {
			if err := <-read; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestSilenceBeforeAPingIsNoDeath lets one read of the log take longer than a client may be silent.
func TestSilenceBeforeAPingIsNoDeath(t *testing.T) {
	bubble(t, func(t *testing.T) {
		calls := 0
		s := serveSourceBubble(t, fakeSource(func(c *replay.Chunk) error {
			*c = replay.Chunk{Through: point(1), Live: true}
			if calls++; calls == 1 {
				time.Sleep(10 * time.Minute)
			}
			return nil
		}), newRegistry(t), nil)
		c := s.dial("")
		go c.ReadMessage() // answers pings
		testwait.Elapse(20 * time.Minute)
		if s.waitMetric("pings_total", "", 19); s.count.Load() != 1 {
			t.Error("a healthy subscriber was ended")
		}
	})
}

// TestSilenceAfterManyBytes: however much a client was sent, it may be silent for a while after a
// ping.
func TestSilenceAfterManyBytes(t *testing.T) {
	for _, written := range []int64{1 << 30, 10 << 30} {
		tm := defaultTiming()
		c := &conn{started: time.Now().Add(-time.Hour)}
		c.heard.Store(int64(time.Hour - 40*time.Second))
		o := outbound{conn: c, timing: &tm, writer: writer{written: written}, pinged: time.Hour - 31*time.Second}
		if o.silent() {
			t.Errorf("after %d bytes a client is taken for dead 31 s after a ping", written)
		}
	}
}
