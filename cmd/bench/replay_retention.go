package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"millrace/public"
	"millrace/replay"
	"millrace/translate"
)

const (
	slowReaders = 10
	slowBytes   = 4 << 10               // that a slow reader takes
	slowEvery   = 20 * time.Millisecond // so often
	// of the kernel's on either side of these connections, about
	slowBuffer = 32 << 10
	slowTime   = time.Minute // that all of this may take
	// close code of one whose place was trimmed, extended only (docs/wire.md)
	closeTrimmed = 4001
	writerEvery  = 5 * time.Millisecond
)

// slowReader sits at the oldest end of the log until it is asked to hurry.
type slowReader struct {
	client   *frameClient
	extended bool
	hurry    chan struct{}
	first    int64 // stamp of its first event
	count    int64
	wrong    int64 // events that are not the next one of the log
}

func newSlowReader(ctx context.Context, addr string, extended bool) (*slowReader, error) {
	query := "/subscribe?cursor=0"
	if extended {
		query += "&extended=true"
	}
	c, err := dialFrames(ctx, addr, query)
	if err != nil {
		return nil, err
	}
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(slowBuffer) // without it the kernel takes a few megabytes more
	}
	r := &slowReader{client: c, extended: extended, hurry: make(chan struct{})}
	c.payload = r.event
	return r, nil
}

// event checks that an event is the log's next: their stamps are equally far apart.
func (r *slowReader) event(payload []byte) {
	us := stampIn(payload)
	if r.count == 0 {
		r.first = us
	}
	if us != 0 && us != r.first+r.count*eventStepUS {
		r.wrong++
	}
	r.count++
}

// run reads until the connection ends.
func (r *slowReader) run() error {
	defer r.client.close()
	buf := r.client.buf
	r.client.buf = buf[:slowBytes]
	for {
		err := r.client.read()
		if err != nil {
			return r.check()
		}
		select {
		case <-r.hurry:
			r.client.buf = buf
		case <-time.After(slowEvery):
		}
	}
}

// check says whether the connection ended as it should have.
func (r *slowReader) check() error {
	c := r.client
	switch {
	case r.count == 0 || r.first == 0:
		return errors.New("a slow reader got no event")
	case r.wrong > 0:
		return fmt.Errorf("a slow reader got %d events that were not the next", r.wrong)
	case c.skip != 0 || len(c.head) != 0:
		return errors.New("a slow reader's last frame is cut")
	case r.extended && c.code != closeTrimmed:
		return fmt.Errorf("an extended slow reader was ended with code %d, not %d", c.code, closeTrimmed)
	case !r.extended && c.closed:
		return fmt.Errorf("a plain slow reader was sent close code %d", c.code)
	}
	return nil
}

// smallBuffers is a listener whose connections do not hide a slow reader in the kernel's memory.
type smallBuffers struct{ net.Listener }

// Accept implements net.Listener.
func (l smallBuffers) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(slowBuffer)
	}
	return c, err
}

// retention is a server on a log of its own that is trimmed under its readers.
type retention struct {
	log     *replay.Log
	addr    string
	commits []time.Duration
}

// measureRetention drops half of the log under slow readers, with a live stream going on.
func (b *replayBench) measureRetention(ctx context.Context) (err error) {
	data := filepath.Join(b.work, "retention")
	if err := b.copyLog(data); err != nil {
		return err
	}
	dicts, err := newDictionaries()
	if err != nil {
		return err
	}
	defer dicts.Close()
	r := &retention{}
	if r.log, err = openReplayLog(filepath.Join(data, "log"), dicts, nil); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.log.Close()) }()
	server, err := public.New(public.Config{Log: r.log, Dictionaries: dicts})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	r.addr = ln.Addr().String()
	feeder, err := b.newFeeder(r.log.Progress().Seq)
	if err != nil {
		return errors.Join(err, ln.Close())
	}
	serving, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	var serveErr, writeErr error
	running.Go(func() { serveErr = server.Serve(serving, smallBuffers{ln}) })
	running.Go(func() { writeErr = r.write(serving, feeder, b.f.liveRate) })
	limited, cancel := context.WithTimeoutCause(ctx, slowTime, errors.New("the slow readers were not ended"))
	row, err := r.trimUnderReaders(limited)
	cancel()
	stop()
	running.Wait()
	if err = errors.Join(err, serveErr, writeErr); err != nil {
		return err
	}
	slices.Sort(r.commits)
	row.ours += ", longest commit " + millis(r.commits[len(r.commits)-1])
	b.row(row)
	return nil
}

// write appends events at a rate, until ctx is done.
func (r *retention) write(ctx context.Context, feeder *frameFeeder, rate int) error {
	stamper := replay.NewStamper(r.log.Progress().TimeUS, nil)
	begun, done := time.Now(), 0
	for tick := time.NewTicker(writerEvery); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return nil
		case <-tick.C:
		}
		due := int(time.Since(begun).Seconds()*float64(rate)) - done
		if due <= 0 {
			continue
		}
		block, n, err := feeder.block(r.log, due, func(b *translate.Batch) { stamper.StampBatch(b) })
		if err != nil {
			return err
		}
		start := time.Now()
		if err := r.log.Append(block); err != nil {
			return err
		}
		r.commits = append(r.commits, time.Since(start))
		done += n
	}
}

// trimUnderReaders has slow readers begin, trims, and sees how they end.
func (r *retention) trimUnderReaders(ctx context.Context) (row reachRow, err error) {
	meter, err := meterLag(ctx, r.addr)
	if err != nil {
		return row, err
	}
	defer meter.stop()
	var readers []*slowReader
	var running sync.WaitGroup
	ends := make(chan error, slowReaders)
	for i := range slowReaders {
		s, err := newSlowReader(ctx, r.addr, i%2 == 0)
		if err != nil {
			return row, err
		}
		defer context.AfterFunc(ctx, s.client.close)()
		readers = append(readers, s)
		running.Go(func() { ends <- s.run() })
	}
	if err := pause(ctx, time.Second); err != nil {
		return row, err
	}
	meter.phase.Store(1)
	before := r.log.Range()
	begun := time.Now()
	if err := r.log.TrimTo(ctx, before.Bytes/2); err != nil {
		return row, err
	}
	took := time.Since(begun)
	// for what the trim may set off in the background
	if err := pause(ctx, time.Second); err != nil {
		return row, err
	}
	for _, s := range readers {
		close(s.hurry)
	}
	running.Wait()
	err = context.Cause(ctx)
	for range readers {
		err = errors.Join(err, <-ends)
	}
	if err != nil {
		return row, err
	}
	meter.phase.Store(2)
	if err := r.checkOldest(ctx); err != nil {
		return row, err
	}
	meter.stop()
	_, p99 := meter.p99(1)
	return reachRow{
		what:  fmt.Sprintf("%s of %s events dropped under %d slow readers at the oldest end", grouped(before.Events-r.log.Range().Events), grouped(before.Events), slowReaders),
		ours:  fmt.Sprintf("all ended as they asked for, no event wrong, missing or cut; trim %s, live lag p99 %s", millis(took), millis(p99)),
		reach: "no stall, no garbage", met: took < time.Second && p99 < 50*time.Millisecond,
	}, nil
}

// checkOldest makes sure that a new reader begins where the log now does.
func (r *retention) checkOldest(ctx context.Context) error {
	c, err := dialFrames(ctx, r.addr, "/subscribe?cursor=0")
	if err != nil {
		return err
	}
	defer c.close()
	var first int64
	c.payload = func(payload []byte) {
		if first == 0 {
			first = stampIn(payload)
		}
	}
	if err := c.until(1); err != nil {
		return err
	}
	if want := r.log.Range().Oldest.TimeUS; first != want {
		return fmt.Errorf("a new reader begins at %d, the log at %d", first, want)
	}
	return nil
}
