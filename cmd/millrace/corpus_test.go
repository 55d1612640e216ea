package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

// Sixty frames of the real network give the events that production Jetstream served for them, byte
// for byte but for time_us. They come live, replayed, and compressed for a client that carries
// Jetstream's dictionary.
func TestCorpusEndToEnd(t *testing.T) {
	t.Parallel()
	frames, want := corpusFrames(t), corpusEvents(t)
	relay := newTestRelay(t)
	d := startDaemon(t, relay.url, t.TempDir())

	decoder, err := zstd.NewReader(nil, zstd.WithDecoderDicts(corpusFile(t, "jetstream_v1.zdict")))
	if err != nil {
		t.Fatal(err)
	}
	defer decoder.Close()
	decode := func(b []byte) ([]byte, error) { return decoder.DecodeAll(b, nil) }

	live := subscribe(t, d.addr, "")
	liveZstd := subscribe(t, d.addr, "compress=true")
	liveZstd.decode = decode
	for _, f := range frames {
		relay.send <- f
	}
	check := func(name string, s *subscriber) {
		t.Helper()
		last := int64(0)
		for i, line := range s.lines(t, len(want)) {
			e := parseTruthEvent(t, line)
			if diff := cmp.Diff(parseTruthEvent(t, want[i]).JSON, e.JSON); diff != "" {
				t.Fatalf("%s: event %d (-production +millrace):\n%s", name, i, diff)
			}
			if e.TimeUS <= last {
				t.Fatalf("%s: event %d: time_us %d after %d", name, i, e.TimeUS, last)
			}
			last = e.TimeUS
		}
		if msg, err := s.next(50 * time.Millisecond); err == nil {
			t.Errorf("%s: one event too many: %s", name, msg)
		}
	}
	check("live", live)
	check("live, compressed", liveZstd)

	check("replayed", subscribe(t, d.addr, "cursor=0"))
	zstdReplay := subscribe(t, d.addr, "cursor=0&compress=true")
	zstdReplay.decode = decode
	check("replayed, compressed", zstdReplay)

	// The same after a restart, when nothing is in memory.
	dir := d.cfg.dataDir
	d.mustStop(t)
	d = startDaemon(t, relay.url, dir)
	check("replayed after a restart", subscribe(t, d.addr, "cursor=0"))
	zstdReplay = subscribe(t, d.addr, "cursor=0&compress=true")
	zstdReplay.decode = decode
	check("replayed after a restart, compressed", zstdReplay)
}
