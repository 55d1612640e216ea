package relaysim

import (
	"fmt"
	"io"
	"testing"

	"github.com/gorilla/websocket"
)

// BenchmarkServe runs flat out to one consumer that discards what it reads. It reports frames a
// second from generation in memory to the consumer's hands, both in this process.
func BenchmarkServe(b *testing.B) {
	for _, source := range []string{"world", "capture"} {
		for _, truth := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/truth=%v", source, truth), func(b *testing.B) { benchmarkServe(b, source, truth) })
		}
	}
}

func benchmarkServe(b *testing.B, source string, truth bool) {
	flags := []string{"--generate", "5000", "--population", "100000", "--clock", "wall", "--wait-for-consumer"}
	if source == "capture" {
		flags = append(flags, "--capture", corpus(b, "frames.bin.zst"))
	}
	if !truth {
		flags = append(flags, "--truth", "")
	}
	r := startRelay(b, flags...)
	dialer := websocket.Dialer{ReadBufferSize: 256 << 10}
	ws, _, err := dialer.Dial("ws://"+r.addr+subscribePath, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer ws.Close()
	frames, bytes := int64(0), int64(0)
	b.ReportAllocs()
	for b.Loop() {
		_, reader, err := ws.NextReader()
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, reader)
		if err != nil {
			b.Fatal(err)
		}
		frames++
		bytes += n
	}
	b.SetBytes(bytes / frames)
	b.ReportMetric(float64(frames)/b.Elapsed().Seconds(), "frames/s")
}

// BenchmarkProduce makes frames without sending them.
func BenchmarkProduce(b *testing.B) {
	r := newRelay(b, "--generate", "5000")
	const n = 256
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.producer.produce(n); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(r.producer.now.win.wireBytes / int64(b.N))
	b.ReportMetric(float64(r.producer.made.Load())/b.Elapsed().Seconds(), "frames/s")
}
