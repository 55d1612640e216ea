package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"millrace/replay/references"
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
		var status struct{ Subscribers struct{ Max int } }
		if getJSON(t, "http://"+d.addr+"/status", &status); status.Subscribers.Max != tt.want {
			t.Errorf("--max-connections %s: room for %d; want %d", tt.flag, status.Subscribers.Max, tt.want)
		}
	}
	for _, mib := range []int64{64, 256, 4096} {
		s := divideMemory(byteSize(mib << 20))
		if n := int64(s.subscribers()) * subscriberBytes; n > s.garbage*3/4 || n < s.garbage*7/10 {
			t.Errorf("%s MiB: subscribers take %d bytes of %d", strconv.FormatInt(mib, 10), n, s.garbage)
		}
	}
}

// TestLargeMemory: a share may be larger than what Pebble takes for a memtable.
func TestLargeMemory(t *testing.T) {
	t.Parallel()
	d := &daemon{cfg: &config{dataDir: t.TempDir()}}
	store, _, err := d.openUIDStore(t.Context(), memoryShares{uids: 64 << 30}, slog.New(slog.DiscardHandler))
	if err == nil {
		err = store.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestMemoryOfTheMachine: a budget that the machine does not have is refused, before anything is
// made.
func TestMemoryOfTheMachine(t *testing.T) {
	if _, err := os.Stat("/proc/meminfo"); err != nil {
		t.Skip("this system does not say how much memory it has")
	}
	dir := filepath.Join(t.TempDir(), "data")
	code, said := millrace(t, "serve", "--data-dir", dir, "--memory", "4096TiB", "--listen", "127.0.0.1:0", "--metrics-listen", "")
	if code != exitFailed || !strings.Contains(said, "--memory 4096TiB is more than this machine has") {
		t.Errorf("exit code %d\n%s", code, said)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the data directory: %v", err)
	}
}

// TestMemoryShares: a part has its share of what is not fixed, and gives of it what references,
// links and verification need.
func TestMemoryShares(t *testing.T) {
	const unit = 2 << 20 // a twentieth
	const total = fixedBytes + 20*unit
	c := &config{memory: total}
	want := memoryShares{inFlight: 2 * unit, tail: 2 * unit, cache: 2 * unit, log: 4 * unit, uids: 3 * unit, strings: 2 * unit, clients: unit,
		garbage: 4 * unit, fixed: fixedBytes}
	compare := func(limit, names int64) {
		t.Helper()
		if got := c.memoryShares(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		if got := want.goLimit(total); got != limit {
			t.Errorf("the Go runtime's limit is %d, want %d", got, limit)
		}
		if got := want.names(c); got != names {
			t.Errorf("%d for names, want %d", got, names)
		}
	}
	compare(total-programBytes-7*unit/8*9, 0)
	c.references.value = "on"
	want.tail, want.cache, want.log, want.uids, want.references, want.overlay = unit, unit, 3*unit, 2*unit, 3*unit, unit
	compare(total-programBytes-unit*9, unit/2)
	c.links = true
	const links = references.RecentBytes + references.HeadFilterBytes
	want.log, want.references = 2*unit, 4*unit-links
	compare(total-programBytes-(8*unit-links)/8*9, unit/2)
	c.verification.verify.value = "drop"
	want.uids, want.strings, want.chains, want.keys = unit, unit, unit, unit
	compare(total-programBytes-(8*unit-links)/8*9, unit/4)
	if want.chunks() != unit || want.subscribers() != 3*unit/subscriberBytes {
		t.Errorf("%d bytes for chunks, %d subscribers", want.chunks(), want.subscribers())
	}
}
