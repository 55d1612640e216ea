package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// measureLag measures the lag of a live subscriber without and with many that replay.
func (b *replayBench) measureLag(ctx context.Context, s *server) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	c, err := dial(watching, s.subscribe(""), nil)
	if err != nil {
		return err
	}
	var lag atomic.Pointer[lags]
	lag.Store(new(lags)) // until connections and caches have settled
	var watcher errgroup.Group
	watcher.Go(func() error {
		defer c.close()
		for {
			event, err := c.next()
			if err != nil {
				return err
			}
			if us := stampIn(event); us != 0 {
				lag.Load().addMicros(c.came.UnixMicro() - us)
			}
		}
	})
	alone, beside := new(lags), new(lags)
	err = pause(ctx, b.live/7)
	lag.Store(alone)
	err = errors.Join(err, pause(ctx, b.live/3))
	lag.Store(beside)
	var events, size int64
	if err == nil {
		events, size, err = b.readMany(ctx, s)
	}
	stop()
	if ended := watcher.Wait(); err == nil && beside.quantile(1) == 0 {
		err = fmt.Errorf("no live event came: %w", ended)
	}
	if err != nil {
		return err
	}
	seconds := b.live.Seconds()
	b.row(fmt.Sprintf("%d cold replays at once, live stream of %s frames/s: live lag", b.readers, grouped(b.liveRate)),
		fmt.Sprintf("p50 %s ms, p99 %s ms (without them %s, %s); they get %s, %.0f MB/s", beside.p50(), beside.p99(), alone.p50(), alone.p99(),
			perSecond(float64(events)/seconds), float64(size)/1e6/seconds))
	return nil
}

// readMany has readers begin at as many places spread over the log, so that they share little. Half
// of them read everything, a quarter compressed, a quarter posts only. It returns what all of them
// got.
func (b *replayBench) readMany(ctx context.Context, s *server) (events, size int64, err error) {
	var all, sizes atomic.Int64
	deadline := time.Now().Add(b.live)
	var g errgroup.Group
	for i := range b.readers {
		query := fmt.Sprintf("cursor=%d", b.m.OldestUS+int64(i)*(b.m.NewestUS-b.m.OldestUS)/int64(b.readers))
		query += []string{"", "&compress=true", "", "&wantedCollections=" + postCollection}[i%4]
		g.Go(func() error {
			c, err := dial(ctx, s.subscribe(query), nil)
			if err != nil {
				return err
			}
			defer c.close()
			for err = c.conn.SetReadDeadline(deadline); err == nil; {
				_, _, err = c.more()
			}
			all.Add(c.events)
			sizes.Add(c.bytes)
			if time.Now().Before(deadline) {
				return fmt.Errorf("a reader ended early: %w", err)
			}
			return nil
		})
	}
	err = g.Wait()
	return all.Load(), sizes.Load(), err
}

// stampIn reads time_us, which follows the DID at an event's beginning; 0 if it is not there.
func stampIn(payload []byte) int64 {
	_, after, _ := bytes.Cut(payload[:min(len(payload), 200)], []byte(`","time_us":`))
	digits, _, _ := bytes.Cut(after, []byte{','})
	us, _ := strconv.ParseInt(string(digits), 10, 64) // 0 on failure
	return us
}

// bareSample is how much of a subscription's frames the bare socket sends again and again. It is
// more than a core's caches hold, as new events are not in them either.
const bareSample = 8 << 20

// bare measures the socket with what a subscription sends.
func (b *replayBench) bare(ctx context.Context, s *server, query string, like streamed) (streamed, error) {
	c, err := dial(ctx, s.subscribe(query), nil)
	if err != nil {
		return streamed{}, err
	}
	defer c.close()
	var sample []byte
	for len(sample) < bareSample && c.events < like.events {
		frames, _, err := c.more()
		if err != nil {
			return streamed{}, fmt.Errorf("frames for the bare socket: %w", err)
		}
		sample = append(sample, frames...)
	}
	c.close()
	return b.median(func() (streamed, error) { return bareSocket(ctx, sample, like.bytes) })
}
