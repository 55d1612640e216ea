package translate

import "testing"

// BenchmarkFrame translates the captured frames over and over. One iteration is one frame.
func BenchmarkFrame(b *testing.B) {
	frames := corpusFrames(b)
	tr := newTranslator(b)
	size := 0
	for _, f := range frames {
		size += len(f)
	}
	var batch Batch
	b.SetBytes(int64(size / len(frames)))
	b.ReportAllocs()
	events, i := 0, 0
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
