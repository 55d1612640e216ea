package public

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
	"time"
)

// loopback returns both ends of a TCP connection; everything written to the first is read and
// forgotten.
func loopback(b *testing.B) net.Conn {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		io.CopyBuffer(io.Discard, struct{ io.Reader }{c}, make([]byte, 256<<10))
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close(); <-done })
	return c
}

// BenchmarkSocketWrite sends frames of 500 bytes. It sends one at a time, or many at a time from
// slices of their own, as a filtered replay does. It also sends many at a time from one slice, as
// an unfiltered one does.
func BenchmarkSocketWrite(b *testing.B) {
	frame := appendFrame(nil, frameText, bytes.Repeat([]byte("x"), 496))
	const many = maxChunkBytes / 500
	for _, bm := range []struct {
		name           string
		slices, frames int // a write; frames a slice
	}{{"one", 1, 1}, {"many slices", many, 1}, {"one slice", 1, many}} {
		b.Run(bm.name, func(b *testing.B) {
			w := writer{raw: loopback(b), slowTimeout: time.Minute, quota: unlimited(), stop: func() bool { return false }}
			slice := bytes.Repeat(frame, bm.frames)
			frames := make([][]byte, bm.slices)
			events := bm.slices * bm.frames
			b.ReportAllocs()
			b.SetBytes(int64(events * len(frame)))
			for b.Loop() {
				for i := range frames {
					frames[i] = slice
				}
				if err := w.send(nil, frames, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkReplay is a whole replay of 50,000 events over a websocket, connection and all.
func BenchmarkReplay(b *testing.B) {
	l := newTestLog(b)
	for range 100 {
		l.add(posts(500)...)
	}
	for _, bm := range []struct {
		name, query string
		events      int
	}{
		{"plain", "", 50_000},
		{"collection", "&wantedCollections=app.bsky.feed.*", 50_000},
		{"did", "&wantedDids=" + didN(3), 7_100},
		{"zstd", "&compress=true", 50_000},
	} {
		b.Run(bm.name, func(b *testing.B) {
			s := serve(b, l, nil)
			// The first run shows how many bytes there are to be read.
			c := s.rawDial("cursor=0" + bm.query)
			bytes := 0
			for range bm.events {
				_, payload, err := c.frame()
				if err != nil {
					b.Fatal(err)
				}
				bytes += len(appendFrame(nil, frameText, payload))
			}
			c.Close()
			buf := make([]byte, 256<<10)
			b.ReportAllocs()
			b.SetBytes(int64(bytes))
			for b.Loop() {
				c := s.rawDial("cursor=0" + bm.query)
				for left := bytes - c.br.Buffered(); left > 0; {
					n, err := c.Conn.Read(buf)
					if err != nil {
						b.Fatal(err)
					}
					left -= n
				}
				c.Close()
			}
			b.ReportMetric(float64(b.N*bm.events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

func BenchmarkParseUpdate(b *testing.B) {
	var m bytes.Buffer
	m.WriteString(`{"type":"options_update","payload":{"wantedDids":["` + didN(0) + `"`)
	for i := range 9_999 {
		fmt.Fprintf(&m, `,"%s"`, didN(i+1))
	}
	m.WriteString(`]}}`)
	b.SetBytes(int64(m.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseUpdate(m.Bytes()); err != nil {
			b.Fatal(err)
		}
	}
}

// TestQuietSubscribersAreSmall bounds what a subscriber takes that has nothing to be sent, the
// test's own end of the connection included.
func TestQuietSubscribersAreSmall(t *testing.T) {
	const clients, maxBytes = 1000, 40 << 10
	l, all := mixed(t)
	s := serve(t, l, func(cfg *Config, _ *timing) { cfg.MaxConnections = 2 * clients })
	memory := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapInuse + m.StackInuse)
	}
	connect := func(n int) {
		for range n {
			c := s.rawDial("cursor=0")
			for range all {
				if _, _, err := c.frame(); err != nil {
					t.Fatal(err)
				}
			}
			c.br = nil
		}
	}
	connect(100)
	before := memory()
	connect(clients)
	each := (memory() - before) / clients
	t.Logf("%d bytes each", each)
	if each > maxBytes {
		t.Errorf("a quiet subscriber takes %d bytes, want at most %d", each, maxBytes)
	}
}
