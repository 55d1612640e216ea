package dict

import (
	"bytes"
	"os"
	"testing"
)

// benchEvents are the events that production Jetstream served, or a made one where there is no
// corpus.
func benchEvents(b *testing.B) (events [][]byte, bytesEach int64) {
	raw, err := os.ReadFile("../../shared/corpus/expected.jsonl")
	if err != nil {
		raw = []byte(testEvent)
	}
	events = bytes.Split(bytes.TrimSpace(raw), []byte{'\n'})
	return events, int64(len(raw) / len(events))
}

// BenchmarkAppend compresses one event an iteration.
func BenchmarkAppend(b *testing.B) {
	events, bytesEach := benchEvents(b)
	for name, e := range encoders(b, BuiltIn()) {
		b.Run(name, func(b *testing.B) {
			var buf []byte
			var plain, compressed, i int
			b.ReportAllocs()
			b.SetBytes(bytesEach)
			for b.Loop() {
				event := events[i%len(events)]
				buf = e.Append(buf[:0], event)
				plain += len(event)
				compressed += len(buf)
				i++
			}
			b.ReportMetric(float64(compressed)/float64(plain), "ratio")
		})
	}
}

// BenchmarkAppendParallel is BenchmarkAppend on all cores, as blocks are sealed.
func BenchmarkAppendParallel(b *testing.B) {
	events, bytesEach := benchEvents(b)
	e, err := NewEncoder(BuiltIn())
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	b.ReportAllocs()
	b.SetBytes(bytesEach)
	b.RunParallel(func(pb *testing.PB) {
		var buf []byte
		for i := 0; pb.Next(); i++ {
			buf = e.Append(buf[:0], events[i%len(events)])
		}
	})
}

// BenchmarkDecode decompresses one event an iteration.
func BenchmarkDecode(b *testing.B) {
	events, bytesEach := benchEvents(b)
	e, err := NewEncoder(BuiltIn())
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	dec, err := NewDecoder(1<<20, BuiltIn())
	if err != nil {
		b.Fatal(err)
	}
	defer dec.Close()
	frames := make([][]byte, len(events))
	for i, event := range events {
		frames[i] = e.Append(nil, event)
	}
	var buf []byte
	i := 0
	b.ReportAllocs()
	b.SetBytes(bytesEach)
	for b.Loop() {
		if buf, err = dec.Append(buf[:0], frames[i%len(frames)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// BenchmarkParse loads the built-in dictionary.
func BenchmarkParse(b *testing.B) {
	raw := BuiltIn().Bytes()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(raw); err != nil {
			b.Fatal(err)
		}
	}
}
