package public

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestMetricsOfSubscribers compares each series that subscribers move with what they did.
func TestMetricsOfSubscribers(t *testing.T) {
	l, all := mixed(t)
	s := serve(t, l, nil)
	s.want400("cursor=x", "")
	s.want400("cursor=y", "")
	variants := map[string]string{"plain": "", "zstd": "&compress=true", "extended": "&extended=true"}
	clients := map[string]*client{}
	bytes := 0
	read := func(n int) {
		for range n {
			for name, c := range clients {
				_, payload := c.next()
				if name == "extended" && strings.HasPrefix(string(payload), `{"kind":"info"`) {
					_, payload = c.next() // info messages do not count
				}
				bytes += len(appendFrame(nil, frameText, payload))
			}
		}
	}
	for name, query := range variants {
		clients[name] = s.dial("cursor=0" + query)
	}
	read(len(all))
	s.waitIdle(len(clients))
	l.add(identity(didN(3)))
	read(1)
	clients["plain"].update(`{` + strings.Repeat(" ", smallMessageBytes) + `}`)
	s.waitUpdates(1)
	s.waitIdle(len(clients))
	handshakesOver := func() bool { return s.metric("unfinished_handshakes", "") == 0 }
	eventually(t, "those that were refused are gone", handshakesOver)
	want := map[string]float64{
		"delivered_events_total v1": float64(len(clients) * (len(all) + 1)), "delivered_bytes_total v1": float64(bytes),
		"rejected_total bad_request": 2, "options_updates_total": 1, "large_messages_total": 1, "lag_seconds": 2 * float64(len(clients)),
		"subscribers plain": 1, "subscribers zstd": 1, "subscribers extended": 1,
		"connections_limit": 20_000, "connections_per_address_limit": 100, "client_bytes_limit": 32 << 20, "addresses": 1,
	}
	if diff := cmp.Diff(want, s.moved()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	clients["plain"].say("x")
	clients["plain"].wantClose(1000, "")
	s.waitMetric("ends_total", endInvalid, 1)
	for name, c := range clients {
		if name != "plain" {
			c.Close()
		}
	}
	s.waitMetric("ends_total", endClientGone, 2)
	delete(want, "addresses")
	for name := range variants {
		delete(want, "subscribers "+name)
	}
	want["ends_total invalid_message"], want["ends_total client_gone"] = 1, 2
	eventually(t, "nobody is left", func() bool { return s.count.Load() == 0 && handshakesOver() })
	got := s.moved()
	delete(got, "addresses") // they are forgotten in time
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("in the end: -want +got\n%s", diff)
	}
}

// moved returns the values of all series of the package that are not 0, by name without its
// beginning, and label.
func (s *testServer) moved() map[string]float64 {
	s.t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		var name string
		if n, _ := fmt.Sscanf(f.GetName(), "millrace_public_%s", &name); n == 0 {
			continue
		}
		for _, m := range f.GetMetric() {
			key := name
			for _, label := range m.GetLabel() {
				key += " " + label.GetValue()
			}
			if v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount()); v != 0 {
				got[key] = v
			}
		}
	}
	return got
}
