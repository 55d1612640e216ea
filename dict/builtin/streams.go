package main

import (
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"millrace/dict"
)

// streams measures the other way to compress for subscribers: a context for each, which sees all that
// was sent to that subscriber, and is flushed after every event. It compresses better and needs no
// dictionary; but the work is done again for each subscriber, and so is the memory. The time is that of
// the processor, whatever else goes on.
func (m *material) streams(w io.Writer) error {
	fmt.Fprintln(w, "| subscribers | ratio | µs of a core an event, all subscribers | cores at 2,000 events/s |\n|---|---|---|---|")
	for _, n := range []int{1, 100, 1000} {
		// Enough events for a subscriber's window to fill, as far as there is time.
		events := m.heldEvents[:max(200, len(m.heldEvents)/n)]
		sinks := make([]countingWriter, n)
		encoders := make([]*zstd.Encoder, n)
		for i := range encoders {
			enc, err := zstd.NewWriter(&sinks[i], zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
				zstd.WithWindowSize(dict.MaxWindowBytes), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
			if err != nil {
				return err
			}
			encoders[i] = enc
		}
		var plain int64
		began, err := processorTime()
		if err != nil {
			return err
		}
		for _, event := range events {
			plain += int64(len(event))
			for _, enc := range encoders {
				if _, err := enc.Write(event); err != nil {
					return err
				}
				if err := enc.Flush(); err != nil {
					return err
				}
			}
		}
		ended, err := processorTime()
		if err != nil {
			return err
		}
		each := (ended - began).Seconds() / float64(len(events))
		fmt.Fprintf(w, "| %d | %.3f | %.0f | %.2f |\n", n, float64(sinks[0].bytes)/float64(plain), each*1e6, each*2000)
		for _, enc := range encoders {
			if err := enc.Close(); err != nil {
				return err
			}
		}
	}
	return nil
}

// processorTime returns what this process has used so far, in user and kernel mode.
func processorTime() (time.Duration, error) {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

// countingWriter counts what is written to it.
type countingWriter struct{ bytes int64 }

func (w *countingWriter) Write(p []byte) (int, error) {
	w.bytes += int64(len(p))
	return len(p), nil
}
