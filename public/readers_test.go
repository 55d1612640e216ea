package public

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"millrace/replay"
)

// countedReader counts among openReaders until it is closed.
type countedReader struct {
	reader
	openReaders *atomic.Int64
}

func (r *countedReader) Close() {
	r.openReaders.Add(-1)
	r.reader.Close()
}

// TestReadersAreClosed: each reader that is made is closed once, whatever becomes of its client.
func TestReadersAreClosed(t *testing.T) {
	l, all := mixed(t)
	src := eventLogOf(l.Log)
	var openReaders, made atomic.Int64
	src.newReader = func(cfg replay.ReaderConfig) (reader, error) {
		r, err := l.NewReader(cfg)
		if err != nil {
			return nil, err
		}
		made.Add(1)
		openReaders.Add(1)
		return &countedReader{r, &openReaders}, nil
	}
	s := serveSource(t, src, l.dictionaries, func(cfg *Config, _ *timing) { cfg.MaxConnections = 2 })
	wantOpen := func(when string, want int64) {
		t.Helper()
		eventually(t, fmt.Sprintf("%s: %d readers are open", when, want), func() bool { return openReaders.Load() == want })
	}
	served := s.dial("cursor=0")
	served.want(all...)
	s.want400("strict=true&cursor=1000000", "oldest is")
	wantOpen("refused for its cursor", 1)
	hello := s.dial("requireHello=true&cursor=0")
	wantOpen("before its hello", 2)
	s.refused("cursor=0", nil)
	wantOpen("one client too many", 2)
	hello.update(`{"wantedCollections":["app.bsky.feed.post"]}`)
	hello.want(pick(all, 0, 5, 6)...)
	wantOpen("after its hello", 2)
	hello.Close()
	wantOpen("one client is gone", 1)
	s.dialHTTP10(t)
	wantOpen("no handshake", 1)
	served.Close()
	wantOpen("all are gone", 0)
	if n := made.Load(); n != 6 {
		t.Errorf("%d readers were made, want 6", n)
	}
}

// dialHTTP10 asks for a subscription in a request whose handshake must fail.
func (s *testServer) dialHTTP10(t *testing.T) {
	t.Helper()
	nc := s.connect()
	defer nc.Close()
	fmt.Fprintf(nc, "GET /subscribe?cursor=0 HTTP/1.0\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", s.addr)
	answer := make([]byte, 12)
	if _, err := nc.Read(answer); err != nil || string(answer[9:]) != "400" {
		t.Errorf("it is answered %q, %v", answer, err)
	}
}

// endlessRecorded is an endless event log, with the reader that it made last.
func endlessRecorded() (src eventLog, made func() *fakeReader) {
	src = endless(1000)
	inner := src.newReader
	var last *fakeReader
	src.newReader = func(cfg replay.ReaderConfig) (reader, error) {
		r, err := inner(cfg)
		last = r.(*fakeReader)
		return r, err
	}
	return src, func() *fakeReader { return last }
}

// TestSlowSubscriberReleasesItsReader: while a client takes nothing, its reader holds nothing of
// the log.
func TestSlowSubscriberReleasesItsReader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src, made := endlessRecorded()
		s := serveSourceBubble(t, src, newRegistry(t), nil)
		s.rawDial("")
		synctest.Wait()
		if n := made().released.Load(); n != 0 {
			t.Errorf("it is released %d times before it waits", n)
		}
		eventually(t, "the reader is released", func() bool { return made().released.Load() == 1 })
	})
}

// TestLimitedSubscriberReleasesItsReader: while a subscriber has had its events of a second, its
// reader holds nothing of the log.
func TestLimitedSubscriberReleasesItsReader(t *testing.T) {
	bubble(t, func(t *testing.T) {
		src, made := endlessRecorded()
		s := serveSourceBubble(t, src, newRegistry(t), func(cfg *Config, _ *timing) { cfg.MaxEventsPerSecond = 10 })
		c := s.dial("")
		for size := 0; size < maxChunkBytes; {
			_, p := c.next()
			size += len(appendFrame(nil, frameText, p))
		}
		synctest.Wait()
		if made().released.Load() == 0 {
			t.Error("its reader is not released while it waits")
		}
	})
}
