package translate

import (
	"math"
	"testing"
)

// benchFrames returns the captured frames and their mean size.
func benchFrames(b *testing.B) (frames [][]byte, meanBytes int64) {
	frames = corpusFrames(b)
	for _, f := range frames {
		meanBytes += int64(len(f))
	}
	return frames, meanBytes / int64(len(frames))
}

// BenchmarkFrame translates the captured frames over and over. One iteration is one frame.
func BenchmarkFrame(b *testing.B) {
	benchmarkFrames(b, newTranslator(b))
}

// BenchmarkFrameReferences is BenchmarkFrame with the records' references.
func BenchmarkFrameReferences(b *testing.B) {
	benchmarkFrames(b, newReferenceTranslator(b))
}

func benchmarkFrames(b *testing.B, tr *Translator) {
	frames, size := benchFrames(b)
	var batch Batch
	events, i := 0, 0
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		if i == len(frames) {
			i = 0
			events += len(batch.Events)
			batch.Reset()
		}
		tr.AppendFrame(&batch, frames[i])
		i++
	}
	events += len(batch.Events)
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkFrameFiltered is BenchmarkFrame with a collection that hardly a frame has.
func BenchmarkFrameFiltered(b *testing.B) {
	frames, size := benchFrames(b)
	tr := newTranslator(b, "app.bsky.graph.follow")
	var batch Batch
	i := 0
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		if i == len(frames) {
			i = 0
			batch.Reset()
		}
		tr.AppendFrame(&batch, frames[i])
		i++
	}
}

// BenchmarkFrameIndigo is the baseline: the same frames through indigo's general path.
func BenchmarkFrameIndigo(b *testing.B) {
	frames, size := benchFrames(b)
	events, i := 0, 0
	b.SetBytes(size)
	b.ReportAllocs()
	for b.Loop() {
		if i == len(frames) {
			i = 0
		}
		out, err := indigoFrame(b, frames[i], false)
		if err != nil {
			b.Fatal(err)
		}
		events += len(out)
		i++
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkRecord turns the records of the captured frames into JSON, without their hashes.
func BenchmarkRecord(b *testing.B) {
	records := corpusRecords(b)
	if len(records) == 0 {
		b.Skip("the corpus is not here")
	}
	benchmarkRecords(b, records)
}

// BenchmarkPostRecord does it with the corpus's larger set of records, which has mostly posts.
func BenchmarkPostRecord(b *testing.B) {
	var records [][]byte
	for _, l := range corpusCommits(b) {
		records = append(records, l.record)
	}
	benchmarkRecords(b, records)
}

func benchmarkRecords(b *testing.B, records [][]byte) {
	size := 0
	for _, rec := range records {
		size += len(rec)
	}
	var c recordCoder
	var dst []byte
	b.SetBytes(int64(size / len(records)))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if i == len(records) {
			i = 0
		}
		var ok bool
		if dst, ok = c.appendRecord(dst[:0], records[i], math.MaxInt); !ok {
			b.Fatalf("record %x", records[i])
		}
		i++
	}
}
