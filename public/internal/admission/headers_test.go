package admission

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// endless is a connection whose client never stops to send.
type endless struct{ net.Conn }

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestLargeHeaders: headers beyond 32 KiB wait for a slot, of which an address may have one. A body
// does not wait, and the next request's headers begin anew.
func TestLargeHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{
			Handshakes: 10, HeaderSlots: 2, HeaderTimeout: time.Second,
			TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		})
		conns := map[string]*Conn{}
		for name, peer := range map[string]string{
			"first": "192.0.2.1", "its second": "192.0.2.1", "other": "192.0.2.2", "third": "192.0.2.3",
			"a proxy's": "10.0.0.1", "the proxy's second": "10.0.0.1",
		} {
			raw, _ := pipe(netip.MustParseAddr(peer))
			conns[name] = c.begin(endless{raw})
		}
		for i, step := range []struct {
			conn  string
			state http.ConnState // StateNew: none, the connection is read
			bytes int
			waits time.Duration // until it is given up
			slots int           // that are taken afterwards
		}{
			{conn: "first", bytes: smallHeaderBytes - 1},
			{conn: "first", bytes: 1},
			{conn: "first", bytes: 1, slots: 1},
			{conn: "first", bytes: 1, slots: 1},
			{conn: "its second", bytes: smallHeaderBytes, slots: 1},
			{conn: "its second", bytes: 1, waits: time.Second, slots: 1},
			{conn: "other", bytes: smallHeaderBytes + 1, slots: 1},
			{conn: "other", bytes: 1, slots: 2},
			{conn: "third", bytes: smallHeaderBytes, slots: 2},
			{conn: "third", bytes: 1, waits: time.Second, slots: 2},
			{conn: "first", state: http.StateActive, slots: 1},
			{conn: "first", bytes: smallHeaderBytes, slots: 1},
			{conn: "first", bytes: 1, slots: 1},
			{conn: "third", bytes: 1, slots: 2},
			{conn: "first", state: http.StateIdle, slots: 2},
			{conn: "first", bytes: smallHeaderBytes, slots: 2},
			{conn: "first", bytes: 1, waits: time.Second, slots: 2},
			{conn: "other", state: http.StateClosed, slots: 1},
			{conn: "third", state: http.StateHijacked, slots: 0},
			{conn: "a proxy's", bytes: smallHeaderBytes},
			{conn: "the proxy's second", bytes: smallHeaderBytes},
			{conn: "a proxy's", bytes: 1, slots: 1},
			{conn: "the proxy's second", bytes: 1, slots: 2},
			{conn: "a proxy's", state: http.StateClosed, slots: 1},
			{conn: "the proxy's second", state: http.StateClosed, slots: 0},
		} {
			began := time.Now()
			if step.state != http.StateNew {
				c.ConnState(conns[step.conn], step.state)
			} else if n, err := conns[step.conn].Read(make([]byte, step.bytes)); step.waits == 0 && (n != step.bytes || err != nil) ||
				step.waits > 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("step %d, %s: %d bytes read, %v", i, step.conn, n, err)
			}
			if waited := time.Since(began); waited != step.waits {
				t.Errorf("step %d, %s: waited %v, want %v", i, step.conn, waited, step.waits)
			}
			if slots := c.Stats().LargeHeaders; slots != step.slots {
				t.Errorf("step %d, %s: %d slots are taken, want %d", i, step.conn, slots, step.slots)
			}
		}
		for _, conn := range conns {
			conn.Close()
		}
		if held := c.Stats(); held != (Stats{}) {
			t.Errorf("left: %+v", held)
		}
	})
}

// TestLargeHeadersOfClosed: a connection that is closed waits for no slot.
func TestLargeHeadersOfClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{Handshakes: 10, HeaderTimeout: time.Hour})
		raw, _ := pipe(netip.MustParseAddr("192.0.2.1"))
		conn := c.begin(endless{raw})
		if _, err := conn.Read(make([]byte, smallHeaderBytes)); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { conn.Close() })
		began := time.Now()
		if _, err := conn.Read(make([]byte, 1)); err == nil || time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if held := c.Stats(); held != (Stats{}) {
			t.Errorf("left: %+v", held)
		}
	})
}
