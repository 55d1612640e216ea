package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"millrace/cmd/millrace/ingest"
	"millrace/consume"
	"millrace/dict"
	"millrace/intern/kv/pebbleguard"
	"millrace/public"
	"millrace/replay"
	"millrace/replay/graph/feed"
	"millrace/replay/links"
	"millrace/replay/references"
)

// daemon is the built parts of `millrace serve`.
type daemon struct {
	cfg      *config
	logger   *slog.Logger
	registry *prometheus.Registry
	files    descriptors

	maxSubscribers int // what --max-connections, --memory and the limit of open files have room for

	dicts       *dict.Registry
	uids        *uidStore // nil: --intern=off
	uidsAtStart uint64    // given out before
	log         *replay.Log
	refs        *references.Store                   // nil: --references=off
	copied      atomic.Pointer[references.Position] // the log keeps what follows it; nil: no backup is being made
	copying     context.Context                     // of backups
	stopCopying context.CancelCauseFunc
	graph       *feed.Feed // nil: it is off
	verifier    *verifier  // nil: --verify=off
	pipeline    *ingest.Pipeline
	client      *consume.Client
	disk        *diskWatch
	server      *public.Server

	ran   *lastRun // nil: the log is not open
	stuck func()   // ends the process if a stop hangs; tests have none

	publicListener  net.Listener
	metricsListener net.Listener // nil: off
	control         *control     // nil: off; published in the data directory
}

// gcPercent is more than Go's 100: most of what is allocated are blocks of the log for readers,
// which the memory limit bounds anyhow. It makes a cold replay faster.
const gcPercent = 300

func (c *config) serve(ctx context.Context, _ []string, _, stderr io.Writer) (err error) {
	signal.Ignore(syscall.SIGPIPE) // the log may have lost its reader
	tidyMalloc()
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(c.memoryShares().goLimit(c.memory))
	logger := newLogger(c, stderr)
	if c.logFormat.value == "json" { // so is the line that says why the server ends
		defer func() {
			if err != nil {
				logger.Error("millrace has failed", "err", err)
				err = loggedError{err}
			}
		}()
	}
	d, err := newDaemon(ctx, c, logger)
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.Cause(ctx))) {
		logger.Info("millrace was stopped before it served")
		return nil
	}
	if err != nil {
		return err
	}
	stopped := make(chan struct{})
	defer close(stopped)
	d.stuck = func() {
		select {
		case <-stopped:
			return
		default:
		}
		logger.Error("stopping hangs: giving up; what was committed is safe")
		os.Exit(exitFailed)
	}
	return d.run(ctx)
}

func newLogger(cfg *config, w io.Writer) *slog.Logger {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	opts := &slog.HandlerOptions{Level: levels[cfg.logLevel.value], ReplaceAttr: plainError}
	if cfg.logFormat.value == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// plainError keeps errors to what they say: Pebble's would come with a stack trace each.
func plainError(_ []string, a slog.Attr) slog.Attr {
	if err, ok := a.Value.Any().(error); ok {
		a.Value = slog.StringValue(err.Error())
	}
	return a
}

// newDaemon opens and builds everything; on an error what was opened is closed again.
func newDaemon(ctx context.Context, cfg *config, logger *slog.Logger) (d *daemon, err error) {
	d = &daemon{cfg: cfg, logger: logger, registry: prometheus.NewRegistry(), stuck: func() {}}
	d.copying, d.stopCopying = context.WithCancelCause(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			_ = d.close() // err says more
		}
	}()
	d.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	limit, err := openFilesLimit()
	if err != nil {
		return d, err
	}
	if d.files, err = divideDescriptors(limit, len(d.storeDirs())); err != nil {
		return d, err
	}
	shares := cfg.memoryShares()
	if err := d.openStores(ctx, shares); err != nil {
		return d, err
	}
	if err := d.buildIngest(shares); err != nil {
		return d, err
	}
	if err := d.begin(ctx, shares); err != nil {
		return d, err
	}
	if err := d.buildServing(shares); err != nil {
		return d, err
	}
	d.ran.Listen = d.publicListener.Addr().String()
	d.noteRun()
	return d, nil
}

// openStores opens the stores, and leaves to begin what changes what they hold.
func (d *daemon) openStores(ctx context.Context, shares memoryShares) error {
	cfg := d.cfg
	stored, err := cfg.storedDictionary()
	if err != nil {
		return err
	}
	if err := cfg.verification.checkExport(); err != nil {
		return err
	}
	if err := refuseNewer(ctx, cfg.dataDir); err != nil {
		return adviseNewer(err, cfg.dataDir)
	}
	host, _ := consume.Host(cfg.relay) // validate has parsed it
	if err := cmp.Or(cfg.checkRestored(), cfg.checkUIDStore(), cfg.checkMemory(), cfg.checkListen()); err != nil {
		return err
	}
	if err := pebbleguard.MakeDir(vfs.Default, cfg.dataDir); err != nil {
		return adviseDataDir(err, cfg.dataDir)
	}
	if d.dicts, err = dict.NewRegistry(stored, append(dict.Shipped(), jetstreamDictionary())...); err != nil {
		return fmt.Errorf("load the dictionaries: %w", err)
	}
	if d.uids, err = d.openUIDs(ctx, shares); err != nil {
		return adviseDataDir(err, cfg.dataDir)
	}
	if d.uids != nil {
		if d.uidsAtStart, err = d.uids.interner.Count(ctx); err != nil {
			return err
		}
	}
	if err := d.openLog(host, shares); err != nil {
		return err
	}
	if err := d.uids.checkGiven(ctx, d.log); err != nil {
		return err
	}
	if err := d.openReferences(shares); err != nil {
		return err
	}
	return d.openVerifier(shares)
}

// begin does what cannot be undone, such as to begin an epoch, to switch references off, or to skip
// UIDs. It comes when all stores are open, so that a start that is refused does none of it.
func (d *daemon) begin(ctx context.Context, shares memoryShares) error {
	backup, err := readBackupManifest(d.cfg.dataDir)
	if err != nil {
		return err
	}
	if err := d.log.Begin(); err != nil {
		return adviseDataDir(err, d.cfg.dataDir)
	}
	if backup, err = d.skipRestored(ctx, backup); err != nil {
		return err
	}
	if err := d.beginReferences(ctx, backup); err != nil {
		return err
	}
	if err := d.verifier.begin(d.log.Progress()); err != nil {
		return adviseDataDir(err, d.cfg.dataDir)
	}
	if err := d.openGraph(ctx, shares); err != nil || backup == nil {
		return err
	}
	return markRestored(d.cfg.dataDir)
}

func (d *daemon) openLog(host string, shares memoryShares) (err error) {
	if d.log, err = replay.Prepare(d.logConfig(host, shares)); err != nil {
		return adviseDataDir(err, d.cfg.dataDir)
	}
	d.ran = &lastRun{Version: thisBuild().version, Started: time.Now().UTC()}
	d.noteRun()
	return d.cfg.relayCursorFits(d.log.Progress().Seq)
}

func (d *daemon) logConfig(host string, shares memoryShares) replay.Config {
	cfg := d.cfg
	log := replay.Config{
		Dir:            cfg.logDir(),
		Relay:          host,
		NewEpoch:       cfg.newEpoch,
		UIDStore:       d.uids.storeID(),
		Retention:      cfg.retention,
		RetentionBytes: int64(cfg.retentionBytes),
		References:     cfg.referencesOn(),
		Collections:    cfg.collectionSet(),
		TailBytes:      shares.tail,
		CacheBytes:     shares.cache,
		PebbleBytes:    shares.log,
		MaxOpenFiles:   d.files.storeFiles,
		Dictionaries:   d.dicts,
		FS:             d.storeFS(cfg.logDir()),
		Now:            cfg.hooks.now,
		FrameAge:       func() (time.Duration, bool) { return d.pipeline.FrameAge() },
		Logger:         d.logger.With("part", "replay"),
		Registerer:     d.registry,
	}
	if cfg.referencesOn() {
		log.Hold, log.Strings = d.holdLog, d.uids.strings
	}
	return log
}

func (d *daemon) buildIngest(shares memoryShares) (err error) {
	cfg := d.cfg
	at := d.log.Progress()
	if d.pipeline, err = ingest.New(d.ingestConfig(shares)); err != nil {
		return err
	}
	if d.client, err = consume.New(d.relayConfig(at)); err != nil {
		return fmt.Errorf("make the relay's client: %w", err)
	}
	d.disk = &diskWatch{
		dirs:    d.storeDirs(),
		minFree: int64(cfg.minFreeDisk),
		free:    freeBytes,
		trim:    func(ctx context.Context) error { return d.log.TrimTo(ctx, d.log.Range().Bytes/20*19) },
		reading: d.pipeline.SetReading,
		logger:  d.logger.With("part", "disk"),
		now:     time.Now,
		gauge:   newDiskGauge(d.registry),
	}
	return nil
}

// relayStart is --relay-cursor of a log at a position; nil: the log goes on. 0 is for empty logs
// only, so that it can stay in the environment.
func (c *config) relayStart(seq int64) *int64 {
	if c.relayCursor != nil && *c.relayCursor == 0 && seq > 0 {
		return nil
	}
	return c.relayCursor
}

// relayCursorFits returns an error if --relay-cursor is below the log's position.
func (c *config) relayCursorFits(seq int64) error {
	start := c.relayStart(seq)
	if start == nil || *start >= seq {
		return nil
	}
	return usageError{fmt.Errorf("--relay-cursor %d is below the log's position %d: the events in between would be "+
		"in the log twice; leave it out to resume, or give --new-epoch too", *start, seq)}
}

func (d *daemon) ingestConfig(shares memoryShares) ingest.Config {
	cfg := d.cfg
	pipeline := ingest.Config{
		Log:           d.log,
		Collections:   cfg.collections,
		Verify:        d.verifier.ingestConfig(&cfg.verification),
		InFlightBytes: shares.inFlight,
		AppendBytes:   int(shares.log / 8),
		Now:           cfg.hooks.now,
		Logger:        d.logger.With("part", "pipeline"),
		Registerer:    d.registry,
	}
	if d.uids != nil {
		pipeline.NewResolver = func() ingest.Resolver { return &batchResolver{interner: d.uids.interner} }
	}
	if d.refs != nil {
		pipeline.References = d.refs
	}
	return pipeline
}

// relayConfig is of the client that goes on from a position.
func (d *daemon) relayConfig(at replay.Progress) consume.Config {
	cfg := d.cfg
	client := consume.Config{
		URL:           cfg.relay,
		Epoch:         at.Epoch,
		Cursor:        at.Seq,
		Start:         cfg.relayStart(at.Seq),
		EpochPatience: cfg.epochPatience,
		Handle:        d.pipeline.Handle,
		Idle:          d.pipeline.Idle,
		UserAgent:     "millrace/" + version,
		Logger:        d.logger.With("part", "consume"),
		Registerer:    d.registry,
	}
	if p := at.Previous; p.Epoch != 0 {
		// An operator's new epoch: what lies between the end of the one before and the first frame
		// is unknown.
		client.Previous = &consume.EpochEnd{Epoch: p.Epoch, Seq: p.Seq}
	}
	return client
}

// storeDirs are the directories of the stores, first the log's.
func (d *daemon) storeDirs() []string {
	cfg := d.cfg
	dirs := []string{cfg.logDir()}
	if cfg.intern.value == "pebble" {
		dirs = append(dirs, cfg.internDir())
	}
	if cfg.referencesOn() {
		dirs = append(dirs, cfg.referencesDir())
	}
	if cfg.verification.verifies() {
		dirs = append(dirs, cfg.chainsDir(), cfg.identitiesDir())
	}
	return dirs
}

func (d *daemon) buildServing(shares memoryShares) (err error) {
	cfg := d.cfg
	connections := cfg.maxConnections
	if room := shares.subscribers(); room < connections {
		connections = room
		if cfg.given["memory"] || cfg.given["max-connections"] {
			d.logger.Info("--memory has room for fewer subscribers than --max-connections", "subscribers", room, "max_connections", cfg.maxConnections)
		}
	}
	if room := d.files.subscribers; room < connections {
		connections = room
		d.logger.Info("the limit of open files has room for fewer subscribers than --max-connections and --memory",
			"subscribers", room, "open_files", d.files.limit, "max_connections", cfg.maxConnections)
	}
	d.maxSubscribers = connections
	if d.server, err = public.New(d.servingConfig(shares)); err != nil {
		return fmt.Errorf("make the server of subscribers: %w", err)
	}
	return d.listen()
}

func (d *daemon) servingConfig(shares memoryShares) public.Config {
	cfg := d.cfg
	proxies, _ := cfg.proxies() // validate has parsed them
	serving := public.Config{
		Log:                 d.log,
		Dictionaries:        d.dicts,
		Health:              d.health,
		Process:             d.process,
		Version:             thisBuild().version,
		MaxConnections:      d.maxSubscribers,
		MaxConnectionsPerIP: cfg.maxConnectionsPerIP,
		MaxHandshakes:       d.files.handshakes,
		MaxEventsPerSecond:  float64(cfg.maxEventsPerSecond),
		TrustedProxies:      proxies,
		SlowTimeout:         cfg.slowTimeout,
		ClientBytes:         shares.clients,
		ChunkBytes:          shares.chunks(),
		DayFile:             filepath.Join(cfg.dataDir, dayFile),
		Logger:              d.logger.With("part", "public"),
		Registerer:          d.registry,
	}
	if d.uids != nil {
		serving.UIDs = d.uids.interner
	}
	if cfg.links {
		serving.Links = links.New(d.refs)
	}
	if d.graph != nil {
		serving.Graph = d.graph
	}
	if cfg.verification.verify.value == "drop" {
		serving.LeftOut = d.pipeline.LeftOut
	}
	return serving
}

// run works until ctx ends or a part fails. Then it stops everything in order: reading the relay,
// draining into the log, informing subscribers, closing the stores.
func (d *daemon) run(ctx context.Context) error {
	d.logger.Info("millrace serves", "version", thisBuild().version, "relay", d.cfg.relay,
		"listen", d.publicListener.Addr().String(), "metrics_listen", addrOf(d.metricsListener),
		"data_dir", d.cfg.dataDir, "seq", d.log.Progress().Seq, "epoch", d.log.Progress().Epoch,
		"dictionary", d.dicts.Stored().ID(), "max_subscribers", d.maxSubscribers, "open_files", d.files.limit)
	g, gctx := errgroup.WithContext(ctx)
	// What was read has half of --shutdown-timeout to become durable. What then remains is for
	// endSubscribers.
	drain, cut := context.WithCancelCause(context.Background())
	defer cut(nil)

	drained := make(chan struct{})
	g.Go(func() error {
		defer close(drained)
		return d.ingest(gctx, drain)
	})
	g.Go(func() error { return d.log.Run(gctx) })
	g.Go(func() error { return d.uids.run(gctx) })
	if d.refs != nil {
		g.Go(func() error { return d.refs.Run(gctx) })
	}
	if d.verifier != nil {
		g.Go(func() error { return d.verifier.run(gctx) })
	}
	if d.graph != nil {
		following, stop := context.WithCancel(context.WithoutCancel(ctx))
		g.Go(func() error { return d.graph.Run(following) })
		g.Go(func() error {
			select {
			case <-drained: // the reference store takes no more
			case <-drain.Done(): // a build may hold up what is drained
			}
			stop()
			return nil
		})
	}
	g.Go(func() error { return d.disk.Run(gctx) })
	g.Go(func() error { return d.server.Run(gctx) })
	// Until endSubscribers.
	g.Go(func() error { return d.server.Serve(d.publicListener) })
	g.Go(func() error {
		<-gctx.Done()
		stop := time.Now()
		time.AfterFunc(d.cfg.shutdownTimeout/2, func() { cut(errShutdownTimeout) })
		time.AfterFunc(d.cfg.shutdownTimeout+stuckTimeout, d.stuck)
		// here, so that "stopped" comes after it
		d.logger.Info("stopping", "cause", context.Cause(gctx))
		<-drained
		d.endSubscribers(d.cfg.shutdownTimeout - time.Since(stop))
		return nil
	})
	if d.metricsListener != nil {
		g.Go(func() error { return d.serveMetrics(gctx) })
	}
	err := g.Wait()
	if errors.Is(err, errShutdownTimeout) {
		d.logger.Warn("stopped before all that was read was durable; the relay will be asked for it again", "err", err)
		err = nil
	}
	if err = cmp.Or(err, d.close()); err == nil {
		d.logger.Info("stopped", "seq", d.log.Progress().Seq, "epoch", d.log.Progress().Epoch)
	}
	return err
}

// stuckTimeout is how long after --shutdown-timeout a stop that hangs, in a disk that answers no
// more say, is given up.
const stuckTimeout = 5 * time.Second

// errShutdownTimeout is the cause of what is cut off when a stop takes too long.
var errShutdownTimeout = errors.New("--shutdown-timeout is over")

// endSubscribers asks subscribers to come back later. Those that take nothing more are cut off.
func (d *daemon) endSubscribers(within time.Duration) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), within, errShutdownTimeout)
	defer cancel()
	if err := d.server.Shutdown(ctx); err != nil {
		d.logger.Warn("some subscribers were cut off", "err", err)
	}
}

// ingest reads the relay until ctx ends, then drains what was read, until drain ends at the latest.
func (d *daemon) ingest(ctx, drain context.Context) error {
	g, gctx := errgroup.WithContext(drain)
	g.Go(func() error { return d.pipeline.Run(gctx) })
	g.Go(func() error {
		defer d.pipeline.Finish()
		reading, stop := context.WithCancel(gctx)
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		return d.client.Run(reading)
	})
	return g.Wait()
}

// errNotClosed means that the log of the process says which stores could not be closed, and why.
var errNotClosed = errors.New("not all stores could be closed: the lines above say why")

// close closes what is open, in the order that the rest needs. Its error is errNotClosed.
func (d *daemon) close() (err error) {
	for _, l := range []net.Listener{d.publicListener, d.metricsListener} {
		if l != nil {
			_ = l.Close() // closed already after a clean stop
		}
	}
	closed := func(what string, failed error) {
		if failed != nil {
			d.logger.Error("a store could not be closed", "store", what, "err", failed)
			err = errNotClosed
		}
	}
	if d.log != nil {
		closed("log", d.log.Close())
	}
	if d.graph != nil { // before the store whose rows it may be reading
		closed("graph", d.graph.Close())
	}
	if d.refs != nil {
		closed("references", d.refs.Close())
	}
	closed("verification", d.verifier.close())
	closed("UIDs", d.uids.close())
	if err == nil { // else the directory may be another one
		d.noteStop()
	}
	if d.dicts != nil {
		d.dicts.Close()
	}
	return err
}

func addrOf(l net.Listener) string {
	if l == nil {
		return "off"
	}
	return l.Addr().String()
}
