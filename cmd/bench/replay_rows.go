package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const postCollection = "app.bsky.feed.post"

// start starts millrace on a copy of the log.
func (b *replayBench) start(ctx context.Context, data, relay string, args ...string) (*server, error) {
	return startMillrace(ctx, b.millrace(), relay, data, append([]string{"--memory", b.memory, "--intern", "off", "--retention", "876000h"}, args...)...)
}

// withServer runs f against a server of its own.
func (b *replayBench) withServer(ctx context.Context, f func(s *server) error) error {
	s, err := b.start(ctx, b.data, noRelay)
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.stop())
}

// withBaseline runs f against the baseline.
func (b *replayBench) withBaseline(ctx context.Context, f func(s *server) error) error {
	dir := filepath.Join(b.dir, baseline)
	if err := readCached(dir); err != nil {
		return err
	}
	s, err := startBaseline(ctx, "", dir)
	if err != nil {
		return err
	}
	if err := errors.Join(f(s), s.stop()); err != nil {
		return fmt.Errorf("the Jetstream way: %w", err)
	}
	return nil
}

// settleTime is the wait before a server is measured cold, since Pebble opens all tables of the log
// first.
const settleTime = time.Second

// median measures some times and returns what took neither the longest nor the shortest.
func (b *replayBench) median(measure func() (streamed, error)) (streamed, error) {
	all := make([]streamed, b.repeat)
	for i := range all {
		var err error
		if all[i], err = measure(); err != nil {
			return streamed{}, err
		}
	}
	slices.SortFunc(all, func(x, y streamed) int { return int(x.took - y.took) })
	return all[len(all)/2], nil
}

// warm is the median of a subscription with the log in the page cache. It reads the log's files
// first, since the system or forgetCached may have dropped some.
func (b *replayBench) warm(ctx context.Context, s *server, query string, events int64) (streamed, error) {
	if err := readCached(b.data); err != nil {
		return streamed{}, err
	}
	return b.median(func() (streamed, error) { return stream(ctx, s.subscribe(query), events) })
}

// worstCold measures a subscription some times, cold.
func (b *replayBench) worstCold(ctx context.Context, query string, events int64) (worst streamed, err error) {
	for range b.cold {
		err := b.withServer(ctx, func(s *server) error {
			if err := errors.Join(pause(ctx, settleTime), forgetCached(b.data)); err != nil {
				return err
			}
			got, err := stream(ctx, s.subscribe(query), events)
			if got.took > worst.took {
				worst = got
			}
			return err
		})
		if err != nil {
			return worst, err
		}
	}
	return worst, nil
}

// measureAll replays everything, in each form.
func (b *replayBench) measureAll(ctx context.Context) error {
	queries := []string{"cursor=0", "cursor=0&compress=true", "cursor=0&extended=true"}
	var base [2]streamed
	err := b.withBaseline(ctx, func(s *server) (err error) {
		for i := range base {
			if base[i], err = stream(ctx, s.subscribe(queries[i]), b.m.Baseline.Events); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.withServer(ctx, func(s *server) error {
		for i := range base {
			what := []string{"all, plain", "all, compressed"}[i]
			if err := b.measureWarm(ctx, s, what, queries[i], b.m.Events, base[i]); err != nil {
				return err
			}
		}
		got, err := stream(ctx, s.subscribe(queries[2]), b.m.Events)
		if err != nil {
			return err
		}
		b.row("all, extended", perSecond(got.rate()), "", "", fmt.Sprintf("%.1f × Jetstream's plain", got.rate()/base[0].rate()))
		got, err = b.median(func() (streamed, error) { return stream(ctx, s.subscribeV2("cursor=0"), b.m.Events) })
		if err != nil {
			return err
		}
		b.row("all, v2's wire", perSecond(got.rate()))
		return nil
	})
}

// measureWarm replays from the page cache, beside the bare socket and what the baseline was
// measured with.
func (b *replayBench) measureWarm(ctx context.Context, s *server, what, query string, events int64, base streamed) error {
	got, err := b.warm(ctx, s, query, events)
	if err != nil {
		return err
	}
	bare, err := b.bare(ctx, s, query, got)
	if err != nil {
		return err
	}
	b.row(what, fmt.Sprintf("%s, %.0f MB/s", perSecond(got.rate()), float64(got.bytes)/1e6/got.took.Seconds()),
		perSecond(base.rate()), perSecond(bare.rate()), fmt.Sprintf("%.1f × Jetstream's, %.2f of bare", got.rate()/base.rate(), got.rate()/bare.rate()))
	return nil
}

// measureCold replays much of the log from the disk.
func (b *replayBench) measureCold(ctx context.Context) error {
	var rates []string
	for _, v := range []struct {
		name, query string
		events      int64
	}{
		{"plain", "cursor=0", b.m.Events},
		{"compressed", "cursor=0&compress=true", b.m.Events},
		{postCollection, postQuery, b.posts()},
	} {
		s, err := b.worstCold(ctx, v.query, v.events)
		if err != nil {
			return fmt.Errorf("%s, cold: %w", v.name, err)
		}
		rates = append(rates, v.name+" "+perSecond(s.rate()))
	}
	b.row("much of the log, cold", strings.Join(rates, ", "))
	return nil
}

// posts is how many events a reader of one large collection gets.
func (b *replayBench) posts() int64 { return b.m.Collections[postCollection] + b.m.Others }

// wantedDIDs makes the query for these DIDs, from the oldest event on.
func wantedDIDs(dids ...string) string {
	return "cursor=0&wantedDids=" + strings.Join(dids, "&wantedDids=")
}

// postQuery is the one for the collection of posts.
const postQuery = "cursor=0&wantedCollections=" + postCollection

// filterRow is a filtered replay.
type filterRow struct {
	what, query string
	events      int64
	base        time.Duration // that the baseline takes for its part of the events
}

// measureFilters replays little of the log.
func (b *replayBench) measureFilters(ctx context.Context) error {
	rows := []filterRow{
		{what: "one DID", query: wantedDIDs(rareDID), events: rareDIDEvents},
		{what: grouped(len(b.m.DIDs)) + " DIDs", query: wantedDIDs(b.m.DIDs...), events: b.m.DIDEvents},
		{what: "one collection", query: "cursor=0&wantedCollections=" + rareCollection, events: rareCollectionEvents + b.m.Others},
	}
	var posts streamed
	err := b.withBaseline(ctx, func(s *server) error {
		for i, r := range rows {
			got, err := stream(ctx, s.subscribe(r.query), 0)
			if err != nil {
				return err
			}
			rows[i].base = got.took
		}
		var err error
		posts, err = stream(ctx, s.subscribe(postQuery), b.m.Baseline.Collections[postCollection]+b.m.Baseline.Collections[""])
		return err
	})
	if err != nil {
		return err
	}
	for _, r := range rows {
		if err := b.measureFilter(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", r.what, err)
		}
	}
	return b.withServer(ctx, func(s *server) error {
		what := fmt.Sprintf("%s (%.1f %% of the events)", postCollection, 100*float64(b.posts())/float64(b.m.Events))
		return b.measureWarm(ctx, s, what, postQuery, b.posts(), posts)
	})
}

// measureFilter measures one filter, warm and cold.
func (b *replayBench) measureFilter(ctx context.Context, r filterRow) error {
	var warm streamed
	err := b.withServer(ctx, func(s *server) (err error) {
		if _, err = stream(ctx, s.subscribe(r.query), r.events); err == nil { // it is warm then
			warm, err = b.warm(ctx, s, r.query, r.events)
		}
		return err
	})
	if err != nil {
		return err
	}
	cold, err := b.worstCold(ctx, r.query, r.events)
	if err != nil {
		return err
	}
	ours := ms(warm.took) + " ms, cold " + ms(cold.took) + " ms"
	if r.events > 1000 {
		ours += ", " + perSecond(warm.rate())
	}
	base := time.Duration(float64(r.base) * float64(b.m.Events) / float64(b.m.Baseline.Events))
	b.row(fmt.Sprintf("%s (%s events)", r.what, grouped(r.events)), ours, ms(base)+" ms", "", fmt.Sprintf("%.0f × faster", float64(base)/float64(warm.took)))
	return nil
}

// measureStart starts servers on the log.
func (b *replayBench) measureStart(ctx context.Context) error {
	var took [2]time.Duration
	for i := range took {
		for range b.cold {
			err := readCached(b.data)
			if i == 1 && err == nil {
				err = forgetCached(b.data)
			}
			if err != nil {
				return err
			}
			begun := time.Now()
			err = b.withServer(ctx, func(s *server) error {
				_, err := httpGet(s.addr, "/cursors")
				took[i] = max(took[i], time.Since(begun))
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	b.row("start of the server, until it answers", ms(took[0])+" ms, cold "+ms(took[1])+" ms")
	return nil
}

// measureDisk prints the bytes of disk that the log takes.
func (b *replayBench) measureDisk(context.Context) error {
	ours, theirs := float64(b.m.Disk)/float64(b.m.Events), float64(b.m.Baseline.Disk)/float64(b.m.Baseline.Events)
	b.row("disk, bytes an event", grouped(ours), grouped(theirs), "", fmt.Sprintf("%.2f of Jetstream's", ours/theirs))
	return nil
}

// measureLive has many read the log from the disk while a live stream comes in and is read.
func (b *replayBench) measureLive(ctx context.Context) (err error) {
	data := filepath.Join(b.work, "live")
	if err := b.copyLog(data); err != nil {
		return err
	}
	r, err := startRelay(ctx, b.relaysim(), nil, "--rate", fmt.Sprint(b.liveRate), "--generate", fmt.Sprint(b.m.Params.world()))
	if err != nil {
		return err
	}
	defer func() { _ = r.stop() }()
	if err := forgetCached(data); err != nil {
		return err
	}
	s, err := b.start(ctx, data, r.url(), "--new-epoch")
	if err != nil {
		return err
	}
	defer func() { _ = s.stop() }()
	return b.measureLag(ctx, s)
}
