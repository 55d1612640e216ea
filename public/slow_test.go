package public

import (
	"bytes"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/testwait"
	"millrace/public/internal/admission"
	"millrace/replay"
)

// endless is an event log without an end of large frames.
func endless(payload int) eventLog {
	f := appendFrame(nil, frameText, bytes.Repeat([]byte("x"), payload))
	return fakeSource(func(c *replay.Chunk) error {
		*c = replay.Chunk{Through: point(1)}
		for c.Bytes < maxChunkBytes {
			c.Frames = append(c.Frames, f)
			c.Events++
			c.Bytes += len(f)
		}
		return nil
	})
}

func TestSlowSubscriberIsEnded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := serveSourceBubble(t, endless(1000), newRegistry(t), func(cfg *Config, tm *timing) {
			cfg.SlowTimeout = 10 * time.Second
			tm.grace = testTimeout
		})
		plain, extended := s.rawDial(""), s.rawDial("extended=true")
		healthy := s.rawDial("")
		for range 10_000 {
			if _, _, err := healthy.frame(); err != nil {
				t.Fatal(err)
			}
		}
		healthy.Close()
		eventually(t, "both are judged", func() bool { // before either reads on
			s.mu.Lock()
			defer s.mu.Unlock()
			for sub := range s.subscribers {
				if !sub.ended() {
					return false
				}
			}
			return true
		})
		// The plain one was reset: no close frame is in what it can still read.
		for {
			first, _, err := plain.frame()
			if err != nil {
				break
			}
			if first == frameClose {
				t.Fatal("a slow plain subscriber got a close frame")
			}
		}
		// The extended one starts to read within the grace period and gets the reason.
		for {
			first, payload, err := extended.frame()
			if err != nil {
				t.Fatalf("the slow extended subscriber got no close frame: %v", err)
			}
			if first == frameClose {
				if code := int(payload[0])<<8 | int(payload[1]); code != websocket.CloseTryAgainLater {
					t.Errorf("code %d %s", code, payload[2:])
				}
				break
			}
		}
		s.waitMetric("ends_total", endSlow, 2)
	})
}

func TestSlowButSteadySubscriberStays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const memory = 16 << 20
		s := serveSourceBubble(t, endless(1000), newRegistry(t), func(cfg *Config, _ *timing) { cfg.ClientBytes = memory })
		filters := s.admission.Quota(admission.Filters, netip.IPv6Loopback())
		c := s.rawDial("")
		behind := false
		for begin := time.Now(); time.Since(begin) < time.Minute; testwait.Elapse(5 * time.Millisecond) {
			for range 2 { // 400 KB/s: each chunk makes the writer wait
				if _, _, err := c.frame(); err != nil {
					t.Fatal(err)
				}
			}
			behind = behind || s.admission.Stats().Bytes > 0
			if !filters.Reserve(memory / 2) {
				t.Fatal("it takes of the memory for filters")
			}
			filters.Release(memory / 2)
		}
		if !behind {
			t.Error("it never fell behind")
		}
	})
}

func TestSlowSubscribersShareTheBudget(t *testing.T) {
	s := serveSource(t, endless(1000), newRegistry(t), func(cfg *Config, _ *timing) { cfg.ClientBytes = 1000 })
	s.rawDial("extended=true")
	s.waitMetric("ends_total", endOverloaded, 1)
	eventually(t, "it is gone", func() bool { return s.count.Load() == 0 })
}

func TestSlowReaderIsNotTakenForDead(t *testing.T) {
	// 100 KB are on their way before the first ping: the client may take 100 s for them.
	f := appendFrame(nil, frameText, bytes.Repeat([]byte("x"), 100<<10))
	calls := 0
	s := serveSource(t, fakeSource(func(c *replay.Chunk) error {
		*c = replay.Chunk{Through: point(1), Live: true}
		if calls++; calls == 1 {
			c.Frames, c.Events, c.Bytes = [][]byte{f}, 1, len(f)
		}
		return nil
	}), newRegistry(t), func(_ *Config, tm *timing) { tm.ping, tm.silent = 20*time.Millisecond, 100*time.Millisecond })
	s.rawDial("")
	s.waitMetric("pings_total", "", 30)
	if s.count.Load() != 1 {
		t.Error("a client that may still be reading was ended")
	}
}

func TestClientBudget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, _ := mixed(t)
		s := serveBubble(t, l, func(cfg *Config, _ *timing) { cfg.ClientBytes = 80 << 10 })
		var dids []string
		for i := range 1000 {
			dids = append(dids, `"`+didN(i)+`"`)
		}
		big := `{"wantedDids":[` + strings.Join(dids, ",") + `]}` // about 26 KB
		first := s.dial("")
		first.update(big)
		s.waitMetric("options_updates_total", "", 1)
		// replaces the first only once it is there
		first.update(strings.Replace(big, didN(1), didN(5000), 1))
		first.wantClose(websocket.CloseAbnormalClosure, "")
		eventually(t, "given back", func() bool { return s.admission.Stats().Bytes == 0 })

		holder := s.dial("")
		holder.update(big)
		s.waitMetric("options_updates_total", "", 2)
		extended := s.dial("extended=true")
		extended.update(big)
		extended.wantClose(websocket.CloseTryAgainLater, "memory")
		var q strings.Builder
		for i := range 1000 {
			q.WriteString("&wantedDids=" + didN(i))
		}
		resp, body := s.refused(q.String(), nil)
		if resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s %q", resp.Status, body)
		}
		holder.Close()
		eventually(t, "given back", func() bool { return s.admission.Stats().Bytes == 0 })
		s.dial(q.String())
	})
}

func TestEventsPerSecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newTestLog(t)
		l.add(posts(60)...)
		s := serveBubble(t, l, func(cfg *Config, _ *timing) { cfg.MaxEventsPerSecond = 100 })
		c := s.dial("cursor=0")
		c.want(l.all()...)
		begin := time.Now()
		c.want(l.add(posts(1)...)...)
		if took := time.Since(begin); took < 590*time.Millisecond || took > 700*time.Millisecond {
			t.Errorf("61st event after %v, want 600 ms", took)
		}
		s.waitMetric("held_back_total", heldEvents, 1)
	})
}

// TestUpdateWhileHeldBack: an options update that comes while --max-events-per-second holds a live
// subscriber back is in force when the hold ends, and not only at the next ping.
func TestUpdateWhileHeldBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := newTestLog(t)
		s := serveBubble(t, l, func(cfg *Config, _ *timing) { cfg.MaxEventsPerSecond = 10 })
		c := s.dial("")
		synctest.Wait()
		c.want(l.add(posts(5)...)...) // it is live, and held back for 500 ms
		c.update(`{}`)
		synctest.Wait()
		begin := time.Now()
		c.want(l.add(posts(1)...)...)
		if took := time.Since(begin); took > time.Second {
			t.Errorf("an event after the hold of 500 ms came after %v", took)
		}
	})
}

// Chunks that are being written to subscribers that catch up take no more memory than
// Config.ChunkBytes. A client that does not take its chunk gives way after firstPatience.
func TestChunksShareTheirBytes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const room, clients = 3, 10
		var chunks atomic.Int64
		next := endless(1000).newReader
		src := fakeSource(nil)
		src.newReader = func(cfg replay.ReaderConfig) (reader, error) {
			r, err := next(cfg)
			return &countingReader{reader: r, pulls: &chunks}, err
		}
		s := serveSourceBubble(t, src, newRegistry(t), func(cfg *Config, _ *timing) { cfg.ChunkBytes = room * maxChunkBytes * 5 / 4 })
		begun := time.Now()
		for range clients {
			s.rawDial("")
		}
		synctest.Wait()
		if n := chunks.Load(); n != room || time.Since(begun) > 0 {
			t.Errorf("%d chunks are in memory after %v, want %d at once", n, time.Since(begun), room)
		}
		eventually(t, "the others have theirs", func() bool { return chunks.Load() == clients })
	})
}

func TestReplaysTakeTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var running atomic.Int64
		proceed := make(chan struct{})
		s := serveSourceBubble(t, fakeSource(func(c *replay.Chunk) error {
			running.Add(1)
			<-proceed
			running.Add(-1)
			*c = replay.Chunk{Through: point(1), Live: true}
			return nil
		}), newRegistry(t), nil)
		replays := 2 * cap(s.catchUp.slots) // which grow with the cores
		for range replays {
			s.rawDial("")
		}
		synctest.Wait()
		if n, want := running.Load(), int64(cap(s.catchUp.slots)); n != want {
			t.Errorf("%d of %d replays look through the log at once, want %d", n, replays, want)
		}
		close(proceed)
		s.waitIdle(replays)
	})
}
