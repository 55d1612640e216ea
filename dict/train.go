package dict

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// DefaultTrainBytes is a good size for a dictionary. On events, larger ones gain nothing that
// shows; docs/dictionaries.md has the measurements.
const DefaultTrainBytes = 32 << 10

// Bounds of what Train works on. libzstd's trainer needs some hundred samples to find anything; a
// hundred thousand give what a million do.
const (
	MinTrainBytes  = 1 << 10
	minTrainEvents = 200
	maxSampleBytes = 1 << 30
)

// checkPercent of the authors are kept from training while Train compares the trainer's settings.
const checkPercent = 25

// errTooFewEvents is returned by Train if it cannot learn from what it was given.
var errTooFewEvents = errors.New("too few events to train a dictionary")

// TrainConfig says what Train does.
type TrainConfig struct {
	Events   [][]byte        // events' JSON, as subscribers get it; only read
	MaxBytes int             // size of the dictionary file
	ID       uint32          // 0 means one that is derived from the dictionary, below 65536
	Progress func(TrainStep) // if not nil, called after each setting that was tried
}

// TrainStep reports one setting that Train has tried.
type TrainStep struct {
	Step, Steps int
	Setting     string
	Bytes       int // size of the dictionary
	// compressed by plain bytes of events by authors it was not trained on; 0 if Err
	Ratio float64
	Err   error // the trainer cannot use this setting on these events; not fatal
}

// trainer is one setting of a dictionary trainer.
type trainer struct {
	setting string
	train   func(events [][]byte, maxBytes int) ([]byte, error) // its ID means nothing
}

// Train makes a dictionary for events like cfg.Events. It tries the trainer's settings on some of
// the authors, and picks the one that compresses the others' events best. With that it trains on
// all. ctx is checked between settings.
func Train(ctx context.Context, cfg TrainConfig) (*Dictionary, error) {
	if cfg.MaxBytes < MinTrainBytes || cfg.MaxBytes > MaxBytes {
		return nil, fmt.Errorf("dictionary size %d is not %d to %d bytes", cfg.MaxBytes, MinTrainBytes, MaxBytes)
	}
	var sum int
	for _, e := range cfg.Events {
		sum += len(e)
	}
	if sum > maxSampleBytes {
		return nil, fmt.Errorf("%d bytes of events are more than %d: take fewer", sum, maxSampleBytes)
	}
	fit, check := SplitByAuthor(cfg.Events, checkPercent, "settings")
	if len(cfg.Events) < minTrainEvents || len(check) == 0 || len(fit) == 0 {
		return nil, fmt.Errorf("%w: %d, split by author into %d to train with and %d to check with; at least %d by several authors are needed",
			errTooFewEvents, len(cfg.Events), len(fit), len(check), minTrainEvents)
	}
	best, err := pickTrainer(ctx, cfg, fit, check)
	if err != nil {
		return nil, err
	}
	raw, err := best.train(cfg.Events, cfg.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("train on all events: %w", err)
	}
	return WithID(raw, cfg.ID)
}

// pickTrainer returns the trainer whose dictionary of fit compresses check best.
func pickTrainer(ctx context.Context, cfg TrainConfig, fit, check [][]byte) (trainer, error) {
	var best trainer
	var bestRatio float64
	var errs []error
	candidates := trainers()
	for i, c := range candidates {
		if err := context.Cause(ctx); err != nil {
			return trainer{}, err
		}
		step := TrainStep{Step: i + 1, Steps: len(candidates), Setting: c.setting}
		step.Bytes, step.Ratio, step.Err = tryTrainer(c, cfg.MaxBytes, fit, check)
		if step.Err != nil {
			errs = append(errs, step.Err)
		} else if bestRatio == 0 || step.Ratio < bestRatio {
			best, bestRatio = c, step.Ratio
		}
		if cfg.Progress != nil {
			cfg.Progress(step)
		}
	}
	if bestRatio == 0 {
		return trainer{}, fmt.Errorf("%w: %w", errTooFewEvents, errors.Join(errs...))
	}
	return best, nil
}

func tryTrainer(t trainer, maxBytes int, fit, check [][]byte) (size int, ratio float64, err error) {
	raw, err := t.train(fit, maxBytes)
	if err != nil {
		return 0, 0, err
	}
	d, err := Parse(raw)
	if err != nil {
		return 0, 0, err
	}
	e, err := NewEncoder(d)
	if err != nil {
		return 0, 0, err
	}
	defer e.Close()
	ratio, _ = Measure(e, check, 0)
	return len(raw), ratio, nil
}

// WithID returns the dictionary in raw under the given ID. 0 stands for one from MinPrivateID to
// 65535 that is derived from the other bytes. Such an ID takes two bytes of each frame, not four.
func WithID(raw []byte, id uint32) (*Dictionary, error) {
	const header = 8
	if len(raw) < header {
		return nil, fmt.Errorf("%w: it has only %d bytes", errNotDictionary, len(raw))
	}
	raw = slices.Clone(raw)
	if id == 0 {
		sum := sha256.Sum256(raw[header:])
		id = MinPrivateID + uint32(binary.LittleEndian.Uint16(sum[:]))%(1<<16-MinPrivateID)
		if ReservedID(id) {
			id -= firstBuiltInID - MinPrivateID
		}
	}
	binary.LittleEndian.PutUint32(raw[4:], id)
	return Parse(raw)
}

// SplitByAuthor splits events into those by some authors and those by heldOutPercent of them. So
// what is learnt from the first can be tried on the second. Which side an author is on depends on
// the DID and the salt alone: splits with different salts are independent of each other. The slices
// share the events' memory.
func SplitByAuthor(events [][]byte, heldOutPercent int, salt string) (train, heldOut [][]byte) {
	for _, e := range events {
		h := fnv.New64a()
		h.Write([]byte(salt))
		h.Write(author(e))
		if h.Sum64()>>32%100 < uint64(heldOutPercent) {
			heldOut = append(heldOut, e)
		} else {
			train = append(train, e)
		}
	}
	return train, heldOut
}

// author returns the DID that every event begins with, or the whole event if it begins otherwise.
func author(event []byte) []byte {
	rest, ok := bytes.CutPrefix(event, []byte(`{"did":"`))
	if !ok {
		return event
	}
	did, _, _ := bytes.Cut(rest, []byte{'"'})
	return did
}

// measureChunk is how many events are timed together.
const measureChunk = 100

// Measure compresses events with e, each alone, on one core. It does so once to see the sizes, and
// for at least timed (none if 0) over and over to see the time. It returns compressed by plain
// bytes, 1 if there are none, and the mean time for an event, of the fastest runs.
func Measure(e *Encoder, events [][]byte, timed time.Duration) (ratio float64, perEvent time.Duration) {
	var buf []byte
	plain, compressed := 0, 0
	for _, event := range events {
		buf = e.Append(buf[:0], event)
		plain += len(event)
		compressed += len(buf)
	}
	if plain == 0 {
		return 1, 0
	}
	// The machine may be busy with other things: of each short run of events the fastest time
	// counts.
	chunks := slices.Collect(slices.Chunk(events, measureChunk))
	fastest := make([]time.Duration, len(chunks))
	for began := time.Now(); timed > 0 && (fastest[0] == 0 || time.Since(began) < timed); {
		for i, chunk := range chunks {
			round := time.Now()
			for _, event := range chunk {
				buf = e.Append(buf[:0], event)
			}
			if took := time.Since(round); fastest[i] == 0 || took < fastest[i] {
				fastest[i] = took
			}
		}
	}
	for _, took := range fastest {
		perEvent += took
	}
	return float64(compressed) / float64(plain), perEvent / time.Duration(len(events))
}
