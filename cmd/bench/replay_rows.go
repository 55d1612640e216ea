package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// Reaches of docs and of the table.
const (
	reachPlain      = 3_000_000 // events/s
	reachCompressed = 6_000_000
	reachPosts      = 1_000_000
	reachSelective  = 50 * time.Millisecond
)

func (b *replayBench) baselineDir() string { return filepath.Join(b.kept, baseline) }

// withServer runs f against a server of its own.
func (b *replayBench) withServer(ctx context.Context, f func(ctx context.Context, addr string) error, args ...string) error {
	server, addr, _, err := b.bin.startServer(ctx, b.data, append([]string{"--memory", b.f.memory}, args...)...)
	if err != nil {
		return err
	}
	defer func() { _ = server.stop() }()
	return f(ctx, addr)
}

// settleTime is how long a server is left alone that is to be measured cold: for about a third of a
// second Pebble opens all tables of the log.
const settleTime = time.Second

// chill makes the next reads come from the disk, as far as a server does not have them in its own
// caches.
func (b *replayBench) chill() error {
	done, err := forgetCached(b.data)
	b.cold = fmt.Sprintf("a server that was started %v before (in the row of its start: one yet to be started) and has served nothing, the log's files dropped from the page cache (posix_fadvise)", settleTime)
	if !done {
		b.cold = fmt.Sprintf("a server that was started %v before and has served nothing; the page cache cannot be dropped on this system", settleTime)
	}
	return err
}

// median measures a subscription some times, with the log in the page cache: what was there before
// may have been dropped since, by us or by the system.
func (b *replayBench) median(ctx context.Context, addr, query string, events int64) (streamed, error) {
	if err := readCached(b.data); err != nil {
		return streamed{}, err
	}
	all := make([]streamed, b.f.repeat)
	for i := range all {
		var err error
		if all[i], err = stream(ctx, addr, query, events); err != nil {
			return streamed{}, err
		}
	}
	return medianOf(all), nil
}

// worstCold measures a subscription some times, cold.
func (b *replayBench) worstCold(ctx context.Context, query string, events int64) (worst streamed, err error) {
	for range b.f.cold {
		err := b.withServer(ctx, func(ctx context.Context, addr string) error {
			if err := pause(ctx, settleTime); err != nil {
				return err
			}
			if err := b.chill(); err != nil {
				return err
			}
			s, err := stream(ctx, addr, query, events)
			if s.took > worst.took {
				worst = s
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
	var base [2]streamed
	err := b.withBaseline(ctx, func(ctx context.Context, addr string) (err error) {
		if base[0], err = stream(ctx, addr, "cursor=0", b.m.Baseline.Events); err == nil {
			base[1], err = stream(ctx, addr, "cursor=0&compress=true", b.m.Baseline.Events)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("baseline: %w", err)
	}
	return b.withServer(ctx, func(ctx context.Context, addr string) error {
		for i, v := range []struct {
			name, query string
			reach       float64
		}{{"all, plain", "cursor=0", reachPlain}, {"all, compressed", "cursor=0&compress=true", reachCompressed}} {
			s, err := b.median(ctx, addr, v.query, b.m.Events)
			if err != nil {
				return err
			}
			socket, err := b.bare(ctx, addr, v.query, s)
			if err != nil {
				return err
			}
			bare := socket.rate()
			r := reachRow{
				what: v.name, ours: perSecond(s.rate()) + fmt.Sprintf(", %.0f MB/s", float64(s.bytes)/1e6/s.took.Seconds()), baseline: perSecond(base[i].rate()), bare: perSecond(bare),
				ratio: fmt.Sprintf("%.1f × baseline, %.2f of bare", s.rate()/base[i].rate(), s.rate()/bare),
				reach: "≥ " + perSecond(v.reach), met: s.rate() >= v.reach,
			}
			if i == 0 {
				r.reach += ", ≥ half of bare"
				r.met = r.met && s.rate() >= bare/2
			}
			b.row(r)
		}
		s, err := stream(ctx, addr, "cursor=0&extended=true", b.m.Events)
		if err != nil {
			return err
		}
		b.row(reachRow{what: "all, extended", ours: perSecond(s.rate()), ratio: fmt.Sprintf("%.1f × baseline (plain)", s.rate()/base[0].rate())})
		return nil
	})
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
		{postCollection, wanted(nil, []string{postCollection}), b.posts()},
	} {
		s, err := b.worstCold(ctx, v.query, v.events)
		if err != nil {
			return fmt.Errorf("%s, cold: %w", v.name, err)
		}
		rates = append(rates, v.name+" "+perSecond(s.rate()))
	}
	b.row(reachRow{what: "much of the log, cold", ours: strings.Join(rates, ", ")})
	return nil
}

// posts is how many events a reader of one large collection gets.
func (b *replayBench) posts() int64 {
	return b.m.Collections[postCollection] + b.m.Kinds["identity"] + b.m.Kinds["account"]
}

// filterRow is a filtered replay.
type filterRow struct {
	what              string
	dids, collections []string
	more              string // of our parameters
	events            int64
	// of them in the baseline's part; negative: it has no such filter
	baselineEvents int64
	most           time.Duration // to reach; 0: none
	cold           bool
}

// filterRows are the filters to be measured.
func (b *replayBench) filterRows() []filterRow {
	m := b.m
	others := m.Kinds["identity"] + m.Kinds["account"]
	rows := []filterRow{{what: "one DID", dids: []string{rareDID}, events: rareDIDEvents, most: reachSelective, cold: true}}
	for _, n := range replayLists() {
		l := m.Lists[n]
		rows = append(rows, filterRow{what: grouped(len(l.DIDs)) + " DIDs", dids: l.DIDs, events: l.Events, cold: true})
	}
	return append(rows,
		filterRow{what: "one collection, wantedKinds=commit", collections: []string{rareCollection}, more: "wantedKinds=commit",
			events: rareCollectionEvents, baselineEvents: -1, most: reachSelective, cold: true},
		filterRow{what: "one collection, v1 wire", collections: []string{rareCollection}, events: rareCollectionEvents + others, cold: true})
}

// measureFilters replays little of the log.
func (b *replayBench) measureFilters(ctx context.Context) error {
	rows := b.filterRows()
	base, scans := make([]streamed, len(rows)), float64(b.m.Events)/float64(b.m.Baseline.Events)
	var basePosts streamed
	err := b.withBaseline(ctx, func(ctx context.Context, addr string) (err error) {
		for i, r := range rows {
			if r.baselineEvents < 0 {
				continue
			}
			if base[i], err = b.baselineScan(ctx, addr, wanted(r.dids, r.collections)); err != nil {
				return err
			}
		}
		posts := b.m.Baseline.Collections[postCollection] + b.m.Baseline.Collections[""]
		basePosts, err = stream(ctx, addr, wanted(nil, []string{postCollection}), posts)
		return err
	})
	if err != nil {
		return fmt.Errorf("baseline: %w", err)
	}
	for i, r := range rows {
		if err := b.filterRow(ctx, r, time.Duration(float64(base[i].took)*scans)); err != nil {
			return err
		}
	}
	return b.measurePosts(ctx, basePosts)
}

const postCollection = "app.bsky.feed.post"

// baselineScan times how long the baseline takes to look at all it has; it says so with a close
// frame.
func (b *replayBench) baselineScan(ctx context.Context, addr, query string) (streamed, error) {
	begun := time.Now()
	c, err := dialFrames(ctx, addr, "/subscribe?"+query)
	if err != nil {
		return streamed{}, err
	}
	defer c.close()
	defer context.AfterFunc(ctx, c.close)()
	for {
		if err := c.read(); err != nil {
			return streamed{}, errors.Join(err, context.Cause(ctx))
		}
		if c.closed {
			return streamed{c.frames, c.bytes, time.Since(begun)}, nil
		}
	}
}

// filterRow measures one filter, warm and, if asked for, cold.
func (b *replayBench) filterRow(ctx context.Context, r filterRow, base time.Duration) error {
	query := wanted(r.dids, r.collections)
	if r.more != "" {
		query += "&" + r.more
	}
	var warm, cold streamed
	err := b.withServer(ctx, func(ctx context.Context, addr string) (err error) {
		if _, err = stream(ctx, addr, query, r.events); err == nil { // it is warm then
			warm, err = b.median(ctx, addr, query, r.events)
		}
		return err
	})
	if err == nil && r.cold {
		cold, err = b.worstCold(ctx, query, r.events)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.what, err)
	}
	row := reachRow{what: fmt.Sprintf("%s (%s events)", r.what, grouped(r.events)), ours: millis(warm.took)}
	if r.cold {
		row.ours += ", cold " + millis(cold.took)
	}
	if base > 0 {
		row.baseline = millis(base)
		row.ratio = fmt.Sprintf("%.0f × baseline", float64(base)/float64(warm.took))
	}
	if r.events > 1000 {
		row.ours += ", " + perSecond(warm.rate())
	}
	if r.most > 0 {
		row.reach, row.met = "< "+millis(r.most)+", cold too", warm.took < r.most && cold.took < r.most
	}
	b.row(row)
	return nil
}

// measurePosts replays one collection of many events.
func (b *replayBench) measurePosts(ctx context.Context, base streamed) error {
	return b.withServer(ctx, func(ctx context.Context, addr string) error {
		events := b.posts()
		query := wanted(nil, []string{postCollection})
		s, err := b.median(ctx, addr, query, events)
		if err != nil {
			return err
		}
		bare, err := b.bare(ctx, addr, query, s)
		if err != nil {
			return err
		}
		b.row(reachRow{
			what: fmt.Sprintf("%s (%.1f %% of the events)", postCollection, 100*float64(events)/float64(b.m.Events)),
			ours: perSecond(s.rate()), baseline: perSecond(base.rate()), bare: perSecond(bare.rate()),
			ratio: fmt.Sprintf("%.1f × baseline", s.rate()/base.rate()),
			reach: "≥ " + perSecond(reachPosts) + ", or ≥ 5 × baseline", met: s.rate() >= reachPosts || s.rate() >= 5*base.rate(),
		})
		return nil
	})
}

// measureStart starts servers on the log.
func (b *replayBench) measureStart(ctx context.Context) error {
	var took [2]time.Duration
	for i, cold := range []bool{false, true} {
		for range b.f.cold {
			err := readCached(b.data)
			if cold && err == nil {
				err = b.chill()
			}
			if err != nil {
				return err
			}
			server, _, t, err := b.bin.startServer(ctx, b.data, "--memory", b.f.memory)
			if err != nil {
				return err
			}
			_ = server.stop()
			took[i] = max(took[i], t)
		}
	}
	b.row(reachRow{what: "start of the server, until it answers", ours: millis(took[0]) + ", cold " + millis(took[1]),
		reach: "< 1 s", met: max(took[0], took[1]) < time.Second})
	return nil
}
