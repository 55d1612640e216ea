package public

import (
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/consume/relaysim/testwait"
)

// long says whether tests may take minutes.
func long() bool { return os.Getenv("MILLRACE_TEST_LONG") != "" }

// largeUpdate is an options update of n bytes that asks for one DID.
func largeUpdate(n int, did string) []byte {
	m := `{"type":"options_update","payload":{"wantedDids":["` + did + `"]}}`
	return []byte(m + strings.Repeat(" ", n-len(m)))
}

// TestHalfSentUpdatesStarveNobody has one address send half of a large message on each of many
// connections: the large one of another address gets through.
func TestHalfSentUpdatesStarveNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l, _ := mixed(t)
		s := serveBubble(t, l, func(cfg *Config, _ *timing) {
			cfg.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		})
		const attackers = 30
		half := largeUpdate(3<<20, didN(1))
		frame := mask(frameText, half)[:2<<20]
		var sending sync.WaitGroup
		for range attackers {
			c := s.rawDialFrom("192.0.2.1", "wantedDids="+didN(999))
			sending.Go(func() { c.Write(frame) })
		}
		eventually(t, "the large slot is taken", func() bool { return s.admission.Stats().LargeMessages == 1 })
		c := s.rawDialFrom("192.0.2.2", "wantedDids="+didN(999))
		if _, err := c.Write(mask(frameText, largeUpdate(3<<20, didN(5)))); err != nil {
			t.Fatal(err)
		}
		s.waitUpdates(1)
		want := l.add(identity(didN(5)))
		if _, payload, err := c.frame(); err != nil || string(payload) != want[0].json {
			t.Errorf("got %s, %v", payload, err)
		}
		testwait.Elapse(time.Hour)
		sending.Wait() // all attackers have ended
		if n := s.metric("ends_total", endOverloaded) + s.metric("ends_total", endSlowMessage); n != attackers {
			t.Errorf("%v of %d attackers were ended", n, attackers)
		}
		eventually(t, "the slots are free", func() bool {
			held := s.admission.Stats()
			return held.LargeMessages == 0 && held.MediumMessages == 0
		})
	})
}

// TestManyLargeUpdates sends the largest updates there may be on many connections at once. All are
// put in force or refused, memory stays bounded, and a healthy subscriber gets its events.
func TestManyLargeUpdates(t *testing.T) {
	clients := 12
	if long() {
		clients = 100
	}
	// one large message, its medium waiters, the clients' copies of theirs, and garbage
	const maxGrowth = 160 << 20
	l, _ := mixed(t)
	s := serve(t, l, func(_ *Config, tm *timing) { tm.message = 3 * testTimeout })
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	frame := mask(frameText, largeUpdate(maxMessageBytes, didN(5)))
	var peak atomic.Uint64
	var sending sync.WaitGroup
	for range clients {
		c := s.rawDial("wantedDids=" + didN(999))
		sending.Go(func() { c.Write(frame) })
	}
	healthy := s.dial("")
	done := make(chan struct{})
	go func() { sending.Wait(); close(done) }()
	for sent := false; !sent; {
		healthy.want(l.add(posts(2)...)...)
		runtime.ReadMemStats(&now)
		peak.Store(max(peak.Load(), now.HeapAlloc))
		select {
		case <-done:
			sent = true
		case <-time.After(20 * time.Millisecond):
		}
	}
	ended := func() float64 { return s.metric("ends_total", endOverloaded) + s.metric("options_updates_total", "") }
	eventually(t, "all are dealt with", func() bool { return ended() >= float64(clients) })
	if grown := int64(peak.Load()) - int64(before.HeapAlloc); grown > maxGrowth {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	} else {
		t.Logf("the heap grew by %d MiB", grown>>20)
	}
}

// TestReconnectStorm has clients come and go as fast as they can, in all the ways there are.
func TestReconnectStorm(t *testing.T) {
	visits := 400
	if long() {
		visits = 20_000
	}
	l, _ := mixed(t)
	s := serve(t, l, nil)
	healthy := s.dial("")
	const wantEvents = 20
	var begun, visited, events atomic.Int64
	var storm sync.WaitGroup
	for i := range 8 {
		storm.Go(func() {
			for n := begun.Add(1); n <= int64(visits) || events.Load() < wantEvents; n = begun.Add(1) {
				query := []string{"cursor=0", "", "extended=true&compress=true", "wantedDids=" + didN(int(n))}[n%4]
				ws, _, err := new(dialer).Dial(s.url(query), nil)
				if err != nil {
					t.Errorf("%d: %v", i, err)
					return
				}
				if n%3 == 0 {
					ws.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(1000, ""), time.Now().Add(time.Second))
				}
				ws.Close()
				visited.Add(1)
			}
		})
	}
	over := make(chan struct{})
	go func() { storm.Wait(); close(over) }()
	for going := true; going; events.Add(1) {
		healthy.want(l.add(identity(didN(1)))...)
		select {
		case <-over:
			going = false
		default:
		}
	}
	eventually(t, "all but one are gone", func() bool { return s.count.Load() == 1 })
	if total := s.metric("ends_total", endClientGone) + s.metric("ends_total", endClientClose) + s.metric("ends_total", endWriteFailure); total != float64(visited.Load()) {
		t.Errorf("%v ends are counted for %d visits", total, visited.Load())
	}
}
