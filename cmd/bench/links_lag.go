package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strconv"
	"time"
)

const (
	lagRate  = 2000 // frames a second of the relay
	lagEvery = 20   // of so many likes a count is asked for one
	lagWarm  = 5 * time.Second
	mostLags = 2000
)

// likeEvent is what an event says of a like.
type likeEvent struct {
	TimeUS int64 `json:"time_us"`
	Cursor string
	Commit struct {
		Operation string
		Record    struct{ Subject struct{ URI string } }
	}
}

// follow measures how old a like is when a count that has it is answered: from its stamp, which it
// gets before it is durable.
func (b *linksBench) follow(ctx context.Context) (err error) {
	if !b.lag {
		return nil
	}
	if err := b.programs.build(ctx, b.work, false); err != nil {
		return err
	}
	r, err := startRelay(ctx, b.relaysim(), nil, "--generate", "2000", "--rate", strconv.Itoa(lagRate),
		"--window-frames", ratedWindowFrames, "--window-bytes", ratedWindowBytes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.stop()) }()
	s, err := startMillrace(ctx, b.millrace(), r.url(), filepath.Join(b.work, "followed"), "--memory", "256MiB", "--references=on", "--links")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	likes, err := dial(ctx, s.subscribe("extended=true&wantedKinds=commit&wantedCollections=app.bsky.feed.like"), nil)
	if err != nil {
		return err
	}
	defer likes.close()
	client, err := dialHTTP(ctx, s.addr)
	if err != nil {
		return err
	}
	defer client.Close()
	var lag, asked lags
	begun := time.Now()
	for i, n := 0, 0; n < min(b.requests, mostLags); i++ {
		event, err := likes.next()
		if err != nil {
			return s.failed(err)
		}
		var like likeEvent
		if i%lagEvery != 0 {
			continue
		}
		if err := json.Unmarshal(event, &like); err != nil {
			return fmt.Errorf("%w: %s", err, event)
		}
		if like.Commit.Operation != "create" {
			continue
		}
		query := url.Values{"subject": {like.Commit.Record.Subject.URI}, "source": {"app.bsky.feed.like:subject.uri"}, "at": {like.Cursor}, "wait": {"10000"}}
		if _, err := client.total("getBacklinksCount?"+query.Encode(), &asked); err != nil {
			return s.failed(err)
		}
		if time.Since(begun) > lagWarm {
			n++
			lag.add(time.Since(time.UnixMicro(like.TimeUS)))
		}
	}
	b.row(fmt.Sprintf("ms from an event's stamp to a count with it, at %s frames/s, p99", grouped(lagRate)), lag.p99())
	return nil
}
