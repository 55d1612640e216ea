package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
)

// --memory bounds how many subscribers there may be, whatever --max-connections says; and that
// bounds them, too.
func TestMemoryBoundsSubscribers(t *testing.T) {
	t.Parallel()
	sim := startRelaysim(t, "--frames", "10")
	for _, tt := range []struct {
		flag string
		want int
	}{
		{"20000", divideMemory(64 << 20).subscribers()},
		{"100", 100},
	} {
		d := startDaemon(t, sim.url, t.TempDir(), "--memory", "64MiB", "--max-connections", tt.flag)
		resp, err := http.Get("http://" + d.addr + "/status")
		if err != nil {
			t.Fatal(err)
		}
		var status struct{ Subscribers struct{ Max int } }
		err = json.NewDecoder(resp.Body).Decode(&status)
		resp.Body.Close()
		if err != nil || status.Subscribers.Max != tt.want {
			t.Errorf("--max-connections %s: room for %d, %v; want %d", tt.flag, status.Subscribers.Max, err, tt.want)
		}
	}
	for _, mib := range []int64{64, 256, 4096} {
		s := divideMemory(byteSize(mib << 20))
		if n := int64(s.subscribers()) * subscriberBytes; n > s.garbage*3/4 || n < s.garbage*7/10 {
			t.Errorf("%s MiB: subscribers take %d bytes of %d", strconv.FormatInt(mib, 10), n, s.garbage)
		}
	}
}
