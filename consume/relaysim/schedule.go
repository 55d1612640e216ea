package relaysim

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"
)

// fault is one line of a schedule file.
type fault struct {
	AtMS   int64             `json:"at_ms"` // since the schedule began
	Seq    int64             `json:"seq"`   // newest when it happened
	Epoch  uint32            `json:"epoch"`
	Action string            `json:"action"`
	Params map[string]string `json:"params,omitempty"`
	Result map[string]any    `json:"result,omitempty"`
	Error  string            `json:"error,omitempty"`
}

// runSchedule lets things go wrong until ctx ends. Which, with what parameters and how long after
// one another follows from the seed; each is written to the schedule file before the next.
func (r *Relay) runSchedule(ctx context.Context) (err error) {
	drawn, err := drawable(r.cfg.FaultKinds)
	if err != nil {
		return err
	}
	var out *json.Encoder
	if r.cfg.Schedule != "" {
		f, err := os.Create(r.cfg.Schedule)
		if err != nil {
			return fmt.Errorf("create schedule: %w", err)
		}
		defer f.Close()
		out = json.NewEncoder(f)
	}
	rng := newRand(r.cfg.Seed, "faults")
	began := time.Now()
	for {
		wait := time.Duration(rng.ExpFloat64() * float64(r.cfg.FaultsEvery))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		line := r.happen(ctx, drawn[rng.IntN(len(drawn))], rng)
		line.AtMS = time.Since(began).Milliseconds()
		if out == nil {
			continue
		}
		if err := out.Encode(line); err != nil {
			return fmt.Errorf("write schedule: %w", err)
		}
	}
}

// happen runs an action with parameters drawn from rng.
func (r *Relay) happen(ctx context.Context, a action, rng *rand.Rand) fault {
	q := a.draw(rng, r)
	n := r.producer.current.Load()
	line := fault{Seq: n.win.head(), Epoch: n.epoch, Action: a.name}
	for k := range q {
		if line.Params == nil {
			line.Params = make(map[string]string)
		}
		line.Params[k] = q.Get(k)
	}
	result, err := a.run(ctx, r, q)
	line.Result = result
	if err != nil {
		line.Error = err.Error()
	}
	return line
}

// drawable returns the actions of those names, or for "" those after which a consumer can still
// hold everything.
func drawable(names string) (drawn []action, err error) {
	if names == "" {
		return slices.DeleteFunc(actions(), func(a action) bool { return a.risky }), nil
	}
	return choose(actions(), names, "fault-kinds", "action", "GET /admin/")
}
