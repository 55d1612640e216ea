package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// lagMeter is a live subscriber that notes how old events are when they come, by their time_us.
type lagMeter struct {
	client  *frameClient
	now     int64        // of the read under way
	phase   atomic.Int32 // which list the lags go to
	lags    [3][]int64   // microseconds; 0: while it settles
	reading sync.WaitGroup
}

// meterLag subscribes live.
func meterLag(ctx context.Context, addr string) (*lagMeter, error) {
	c, err := dialFrames(ctx, addr, "/subscribe")
	if err != nil {
		return nil, err
	}
	m := &lagMeter{client: c}
	c.payload = func(payload []byte) {
		if us := stampIn(payload); us != 0 {
			p := m.phase.Load()
			m.lags[p] = append(m.lags[p], m.now-us)
		}
	}
	m.reading.Go(func() {
		for {
			n, err := c.conn.Read(c.buf)
			m.now = time.Now().UnixMicro()
			c.skim(c.buf[:n])
			if err != nil {
				return
			}
		}
	})
	return m, nil
}

// stop ends it; the lags may be read then.
func (m *lagMeter) stop() {
	m.client.close()
	m.reading.Wait()
}

// p99 returns the median and the 99th percentile of a phase.
func (m *lagMeter) p99(phase int) (p50, p99 time.Duration) {
	lags := m.lags[phase]
	if len(lags) == 0 {
		return 0, 0
	}
	slices.Sort(lags)
	at := func(share float64) time.Duration {
		return time.Duration(lags[int(share*float64(len(lags)-1))]) * time.Microsecond
	}
	return at(0.5), at(0.99)
}

// measureLive has many read the log from the disk while a live stream comes in and is read.
func (b *replayBench) measureLive(ctx context.Context) error {
	data := filepath.Join(b.work, "live")
	if err := b.copyLog(data); err != nil {
		return err
	}
	relay, url, err := b.bin.startRelay(ctx, "--rate", fmt.Sprint(b.f.liveRate), "--wait-for-consumer", "--generate", fmt.Sprint(b.m.Params.world()))
	if err != nil {
		return err
	}
	defer func() { _ = relay.stop() }()
	if done, err := forgetCached(data); err != nil || !done {
		b.say("  the page cache was not dropped (%v)", err)
	}
	server, addr, _, err := b.bin.startServer(ctx, data, "--memory", b.f.memory, "--relay", url, "--new-epoch")
	if err != nil {
		return err
	}
	defer func() { _ = server.stop() }()
	meter, err := meterLag(ctx, addr)
	if err != nil {
		return err
	}
	err = pause(ctx, b.f.live/7) // until connections and caches have settled
	meter.phase.Store(1)
	err = errors.Join(err, pause(ctx, b.f.live/3))
	meter.phase.Store(2)
	var events, bytes int64
	if err == nil {
		events, bytes, err = b.readMany(ctx, addr)
	}
	meter.stop()
	if err != nil {
		return err
	}
	aloneP50, aloneP99 := meter.p99(1)
	p50, p99 := meter.p99(2)
	if len(meter.lags[2]) == 0 {
		return errors.New("no live event came")
	}
	seconds := b.f.live.Seconds()
	b.row(reachRow{
		what: fmt.Sprintf("%d cold replays at once, live stream of %s events/s: live lag", b.f.readers, grouped(float64(len(meter.lags[2]))/seconds)),
		ours: fmt.Sprintf("p50 %s, p99 %s (without them %s, %s); they get %s, %.0f MB/s", millis(p50), millis(p99), millis(aloneP50), millis(aloneP99),
			perSecond(float64(events)/seconds), float64(bytes)/1e6/seconds),
		reach: "p99 < 50 ms", met: p99 < 50*time.Millisecond,
	})
	return nil
}

// readMany has readers begin at as many places spread over the log, so that they share little: half
// of them read everything, a quarter compressed, a quarter posts only. It returns what all of them
// got.
func (b *replayBench) readMany(ctx context.Context, addr string) (events, bytes int64, err error) {
	deadline := time.Now().Add(b.f.live)
	var got, size atomic.Int64
	errs := make(chan error, b.f.readers)
	var all sync.WaitGroup
	for i := range b.f.readers {
		query := fmt.Sprintf("/subscribe?cursor=%d", b.m.OldestUS+int64(i)*(b.m.NewestUS-b.m.OldestUS)/int64(b.f.readers))
		query += []string{"", "&compress=true", "", "&wantedCollections=" + postCollection}[i%4]
		all.Go(func() {
			c, err := dialFrames(ctx, addr, query)
			if err != nil {
				errs <- err
				return
			}
			defer c.close()
			_ = c.conn.SetReadDeadline(deadline)
			for err == nil {
				err = c.read()
			}
			if time.Now().Before(deadline) {
				errs <- fmt.Errorf("a reader ended early: %w", err)
			}
			got.Add(c.frames)
			size.Add(c.bytes)
		})
	}
	all.Wait()
	close(errs)
	for e := range errs {
		err = errors.Join(err, e)
	}
	return got.Load(), size.Load(), err
}
