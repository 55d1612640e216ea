package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/atproto/atdata"
	"github.com/bluesky-social/indigo/events"
	"github.com/bluesky-social/indigo/events/schedulers/parallel"
	"github.com/bluesky-social/indigo/repo"
	"github.com/gorilla/websocket"
	"github.com/ipfs/go-datastore"
	blockstore "github.com/ipfs/go-ipfs-blockstore"
	"github.com/ipld/go-car"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"millrace/consume/relaysim"
)

// Jetstream's own sizes.
const (
	jetstreamWorkers = 100    // commits that are read at once
	jetstreamBuffer  = 10_000 // events between them and the sequencer
	jetstreamOutbox  = 50_000 // events that a subscriber may be behind
	jetstreamEmits   = 100    // subscribers that are handed an event at once
	noPace           = 1e9    // events/s, for the limit of a subscriber

	jetstreamWriteTimeout = 10 * time.Second
)

// jetstream is the way of an event through Jetstream v1, as a process of its own. Commits are read
// in parallel through indigo's repository. One goroutine stamps, marshals, compresses and stores
// event by event. It hands each event to each subscriber by a goroutine, and a subscriber gets each
// by a write of its own. A subscriber with a cursor gets what the store has from there on, and a
// close frame where the original goes live. It differs from the original in three things. It keeps
// no traces and no metrics. Its libraries are newer: indigo decodes frames and trees in two thirds
// of the time. And it waits for a slow subscriber instead of disconnecting it.
type jetstream struct {
	store   *jetstreamStore
	encoder *zstd.Encoder
	events  chan *relaysim.JetstreamEvent
	log     *slog.Logger
	pace    *rate.Limiter // the original asks one before each read and write; this one lets all pass

	mu       sync.RWMutex
	outboxes map[chan []byte]<-chan struct{} // closed when the subscriber is gone
}

// runJetstream serves until ctx ends. Its first line on out is "listening ws://ADDRESS".
func runJetstream(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("bench jetstream", flag.ContinueOnError)
	relay := f.String("relay", "", "`URL` of the relay; default: none, for replays")
	dir := f.String("dir", "", "`directory` of the stores")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *dir == "" {
		return errors.New("-dir is missing")
	}
	if err := os.MkdirAll(*dir, 0o755); err != nil {
		return err
	}
	store, err := openJetstreamStore(*dir)
	if err != nil {
		return err
	}
	defer store.Close()
	encoder, err := jetstreamEncoder()
	if err != nil {
		return err
	}
	defer encoder.Close()
	j := &jetstream{
		store: store, encoder: encoder, events: make(chan *relaysim.JetstreamEvent, jetstreamBuffer), outboxes: make(map[chan []byte]<-chan struct{}),
		log: slog.New(slog.NewJSONHandler(os.Stderr, nil)), pace: rate.NewLimiter(noPace, noPace),
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "listening ws://%s\n", listener.Addr())
	mux := http.NewServeMux()
	mux.HandleFunc("GET /subscribe", j.subscribe)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	if *relay != "" {
		g.Go(func() error { return j.sequence(ctx) })
		g.Go(func() error { return j.consume(ctx, *relay) })
	}
	g.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	err = g.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// consume reads the relay with indigo's reader and its parallel scheduler.
func (j *jetstream) consume(ctx context.Context, relay string) error {
	ws, response, err := websocket.DefaultDialer.DialContext(ctx, relay+subscribeRepos, nil)
	if err != nil {
		return fmt.Errorf("dial the relay: %w", err)
	}
	defer response.Body.Close()
	defer ws.Close()
	scheduler := parallel.NewScheduler(jetstreamWorkers, 1000, "bench", func(_ context.Context, e *events.XRPCStreamEvent) error {
		return j.handle(ctx, e)
	})
	return events.HandleRepoStream(ctx, ws, scheduler, slog.New(slog.DiscardHandler))
}

// handle makes events of one frame.
func (j *jetstream) handle(ctx context.Context, e *events.XRPCStreamEvent) error {
	switch {
	case e.RepoCommit != nil:
		return j.commit(ctx, e.RepoCommit)
	case e.RepoIdentity != nil:
		return j.hand(ctx, &relaysim.JetstreamEvent{DID: e.RepoIdentity.Did, Kind: "identity", Identity: e.RepoIdentity})
	case e.RepoAccount != nil:
		return j.hand(ctx, &relaysim.JetstreamEvent{DID: e.RepoAccount.Did, Kind: "account", Account: e.RepoAccount})
	}
	return nil
}

// hand gives an event to the sequencer.
func (j *jetstream) hand(ctx context.Context, e *relaysim.JetstreamEvent) error {
	select {
	case j.events <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// commit reads the whole slice of the repository, finds each record by its path and re-encodes it.
func (j *jetstream) commit(ctx context.Context, commit *comatproto.SyncSubscribeRepos_Commit) error {
	if commit.TooBig {
		return nil
	}
	log := j.log.With("repo", commit.Repo, "seq", commit.Seq, "commit", commit.Commit.String())
	slice, err := readSlice(ctx, commit.Blocks)
	if err != nil {
		log.Error("commit dropped", "err", err)
		return nil
	}
	for _, op := range commit.Ops {
		collection, rkey, ok := strings.Cut(op.Path, "/")
		if !ok {
			continue
		}
		log = log.With("action", op.Action, "collection", collection)
		e := &relaysim.JetstreamEvent{DID: commit.Repo, Kind: "commit", Commit: &relaysim.JetstreamCommit{
			Rev: commit.Rev, Operation: op.Action, Collection: collection, RKey: rkey,
		}}
		if op.Action != "delete" {
			if err := readRecord(ctx, e.Commit, slice, op); err != nil {
				log.Error("operation dropped", "err", err)
				continue
			}
		}
		if err := j.hand(ctx, e); err != nil {
			return err
		}
	}
	return nil
}

// readSlice reads the slice of a repository that comes with a commit, block by block into a
// blockstore over a map. The indigo that v1 was built with does the same. Newer ones have a reader
// and a store that take half the time.
func readSlice(ctx context.Context, blocks []byte) (*repo.Repo, error) {
	r, err := car.NewCarReader(bytes.NewReader(blocks))
	if err != nil {
		return nil, fmt.Errorf("read the CAR's header: %w", err)
	}
	store := blockstore.NewBlockstore(datastore.NewMapDatastore()) //nolint:staticcheck // v1 uses it
	for {
		block, err := r.Next()
		if errors.Is(err, io.EOF) {
			return repo.OpenRepo(ctx, store, r.Header.Roots[0])
		}
		if err != nil {
			return nil, fmt.Errorf("read a block of the CAR: %w", err)
		}
		if err := store.Put(ctx, block); err != nil {
			return nil, fmt.Errorf("keep a block of the CAR: %w", err)
		}
	}
}

// readRecord fills in the record and its CID. The record is looked for in the tree by its path.
func readRecord(ctx context.Context, c *relaysim.JetstreamCommit, slice *repo.Repo, op *comatproto.SyncSubscribeRepos_RepoOp) error {
	found, data, err := slice.GetRecordBytes(ctx, op.Path)
	if err != nil {
		return err
	}
	if c.CID = found.String(); op.Cid == nil || c.CID != op.Cid.String() {
		return errors.New("the record has another CID")
	}
	record, err := atdata.UnmarshalCBOR(*data)
	if err != nil {
		return err
	}
	c.Record, err = json.Marshal(record)
	return err
}

// sequence is the one goroutine that stamps, marshals, compresses, stores and hands out every
// event.
func (j *jetstream) sequence(ctx context.Context) error {
	var last int64
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-j.events:
			last = max(last+1, time.Now().UnixMicro())
			e.TimeUS = last
			plain, err := json.Marshal(e)
			if err != nil {
				return fmt.Errorf("marshal: %w", err)
			}
			collection := ""
			if e.Commit != nil {
				collection = e.Commit.Collection
			}
			if err := j.store.Put(e.TimeUS, e.DID, collection, plain, j.encoder.EncodeAll(plain, nil)); err != nil {
				return err
			}
			if err := j.emit(ctx, plain); err != nil {
				return err
			}
		}
	}
}

// emit puts an event into every outbox, each by a goroutine of its own, and waits for all.
func (j *jetstream) emit(ctx context.Context, plain []byte) error {
	j.mu.RLock()
	defer j.mu.RUnlock()
	var emits errgroup.Group
	emits.SetLimit(jetstreamEmits)
	for outbox, gone := range j.outboxes {
		emits.Go(func() error {
			select {
			case outbox <- plain:
			case <-gone:
			case <-ctx.Done():
			}
			return ctx.Err()
		})
	}
	return emits.Wait()
}
