package ingest

import (
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/translate"
)

// translator translates frames; *translate.Translator does.
type translator interface {
	AppendFrame(dst *translate.Batch, frame []byte)
}

// frameTranslator is a translator that survives its own bugs. A frame on which it panics is
// dropped, as it would stop the stream anew after each restart. One goroutine uses it.
type frameTranslator struct {
	make func() (translator, error)
	t    translator
	// checker verifies what was translated; nil: nothing is.
	checker *checker
	panics  prometheus.Counter
	logger  *slog.Logger
}

// append appends the events of a frame. It fails only if a new translator cannot be made.
func (f *frameTranslator) append(dst *translate.Batch, frame []byte, seq int64) (err error) {
	if f.t == nil {
		if f.t, err = f.make(); err != nil {
			return fmt.Errorf("translate: %w", err)
		}
	}
	if reason := f.try(dst, frame); reason != nil {
		f.t = nil // after a panic its state is unknown
		f.panics.Inc()
		f.logger.Error("translating a frame panicked; it is dropped, please report it", "seq", seq, "panic", fmt.Sprint(reason))
	}
	return nil
}

// try undoes what AppendFrame did and returns the reason if it panics.
func (f *frameTranslator) try(dst *translate.Batch, frame []byte) (reason any) {
	before := *dst
	defer func() {
		if reason = recover(); reason != nil {
			before.Time = dst.Time // this frame's: the bytes of before's are overwritten
			*dst = before
		}
	}()
	f.t.AppendFrame(dst, frame)
	return nil
}

// newTranslator makes a translator that drops frames of more than maxJSONBytes.
func (p *Pipeline) newTranslator(maxJSONBytes int) *frameTranslator {
	t := &frameTranslator{
		make: func() (translator, error) {
			return translate.New(translate.Config{
				Collections: p.cfg.Collections, MaxFrameJSONBytes: maxJSONBytes, References: p.cfg.References != nil,
			})
		},
		panics: p.metrics.panics,
		logger: p.cfg.Logger,
	}
	if p.cfg.Verify != nil {
		t.checker = &checker{cfg: p.cfg.Verify, now: p.cfg.Now, logger: p.cfg.Logger}
	}
	return t
}
