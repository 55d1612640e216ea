package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"millrace/cmd/millrace/ingest"
	"millrace/consume"
	"millrace/replay/graph/feed"
	"millrace/replay/references"
)

// heldReferences is a reference store whose Apply waits for the graph, which takes nothing until it
// stops. So it is while a graph is built and its queue is full.
type heldReferences struct {
	*references.Store
	graph   *feed.Feed
	applies chan struct{} // closed by the first Apply
	release context.Context
}

func (r heldReferences) Apply(b *references.Batch) error {
	close(r.applies)
	_ = r.graph.Wait(r.release, references.Position{Epoch: 1 << 31})
	return r.Store.Apply(b)
}

// TestStopWhileTheGraphIsHeldUp: a graph that holds up the drain is stopped when the drain's time
// is over.
func TestStopWhileTheGraphIsHeldUp(t *testing.T) {
	t.Parallel()
	relay := newTestRelay(t)
	args := append(serveArgs(t.TempDir(), "--references", "on", "--graph", "--graph-memory", "64MiB", "--shutdown-timeout", "100ms")[1:], "--relay", relay.url)
	cfg := serveConfig(t, args)
	d := openDaemon(t, cfg, slog.New(slog.DiscardHandler))
	d.stuck = func() {}
	release, giveUp := context.WithCancel(context.Background())
	defer giveUp()
	held := heldReferences{d.refs, d.graph, make(chan struct{}), release}
	pipeline := d.ingestConfig(cfg.memoryShares())
	pipeline.References, pipeline.Registerer = held, nil
	var err error
	if d.pipeline, err = ingest.New(pipeline); err != nil {
		t.Fatal(err)
	}
	client := d.relayConfig(d.log.Progress())
	client.Registerer = nil
	if d.client, err = consume.New(client); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.run(ctx) }()
	relay.send <- identityFrame(t, 1).Data
	select {
	case <-held.applies:
	case <-time.After(patience):
		t.Error("nothing is applied")
	}
	stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("run: %v", err)
		}
	case <-time.After(patience):
		giveUp()
		t.Errorf("it stops only when the graph goes on: %v", <-ended)
	}
}
