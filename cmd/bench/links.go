package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"millrace/replay/references"
)

// linksTwentieth is the unit in which millrace serve --memory 256MiB shares its memory out: a
// twentieth of what the program itself leaves. With --references=on --links the reference store has
// four for Pebble, and one for the overlay and the cache of accounts.
const linksTwentieth = (256<<20 - 39<<20) / 20

// linksBench is one run: its flags, and what they lead to.
type linksBench struct {
	programs
	dir      string
	edges    int
	requests int
	lag      bool

	progress
	work   string // where the stores are
	stream *linkStream
	t      *table
}

func (b *linksBench) row(what, measured string) {
	say("  %s: %s", what, measured)
	b.t.row(what, measured)
}

// runLinks measures links: made with the record table, served, and built from it.
func runLinks(ctx context.Context, args []string, out io.Writer) (err error) {
	b := &linksBench{t: newTable(out, "links", "measured")}
	fs := flag.NewFlagSet("bench links", flag.ContinueOnError)
	fs.StringVar(&b.dir, "dir", "", "where the stores are made and removed again, 1 GB; empty: the system's temporary directory")
	fs.IntVar(&b.edges, "edges", 20_000_000, "links to make, at least")
	fs.IntVar(&b.requests, "requests", 10_000, "of each kind, after as many that warm up")
	fs.BoolVar(&b.lag, "lag", true, "measure how far links are behind a stream of 2,000 frames a second, too")
	fs.StringVar(&b.bin, "bin", "", "directory of millrace and relaysim, for -lag; empty: they are built")
	if err := parse(fs, args, new(string)); err != nil {
		return err
	}
	if b.edges < 1000 || b.requests < 1 {
		return errors.New("-edges must be at least 1000, -requests at least 1")
	}
	if b.work, err = os.MkdirTemp(b.dir, "millrace-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.work)) }()
	b.stream = newLinkStream(2 * b.requests)
	parts := parts{{"making links", b.feed}, {"serving links", b.serve}, {"building links", b.build}, {"following a stream", b.follow}}
	if err := parts.run(ctx, ""); err != nil {
		return err
	}
	printMachine(out)
	fmt.Fprintf(out, "%s bytes of memory are Pebble's and %s for the overlay and accounts, as of millrace serve --memory 256MiB.\n"+
		"%s links were made. Client and server are one process. Each name comes from a look-up in a UID store of %s URIs.\n\n",
		grouped(4*linksTwentieth), grouped(linksTwentieth), grouped(b.stream.edges), grouped(b.uidStrings()))
	return b.t.end()
}

func (b *linksBench) open(links references.Links) (*references.Store, error) {
	return references.Open(references.Config{Dir: b.store(), Links: links,
		PebbleBytes: 4 * linksTwentieth, OverlayBytes: linksTwentieth / 2, AccountBytes: linksTwentieth / 2})
}

func (b *linksBench) store() string { return filepath.Join(b.work, "refs") }

// feed makes the links, and measures how fast.
func (b *linksBench) feed(ctx context.Context) error {
	s, err := b.open(references.LinksOn)
	if err != nil {
		return err
	}
	if err := s.Begin("bench", references.Position{Epoch: 1}); err != nil {
		return errors.Join(err, s.Close())
	}
	begun := time.Now()
	// As in millrace serve, a batch is hydrated while the one before is applied.
	hydrated := make(chan *references.Batch, 1)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(hydrated)
		for b.stream.edges < int64(b.edges) {
			batch := b.stream.batch(1000)
			batch.Since = s.Hydrated()
			if err := s.Hydrate(ctx, batch); err != nil {
				return err
			}
			select {
			case hydrated <- batch:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			b.report("%s links, %s/s", grouped(b.stream.edges), grouped(float64(b.stream.edges)/time.Since(begun).Seconds()))
		}
		return nil
	})
	g.Go(func() error {
		for batch := range hydrated {
			if err := s.Apply(batch); err != nil {
				return err
			}
		}
		return nil
	})
	if err := errors.Join(g.Wait(), s.Close()); err != nil {
		return err
	}
	b.row("links/s made, beside deletes and counts", grouped(float64(b.stream.edges)/time.Since(begun).Seconds()))
	return nil
}

// build measures what links take of the disk, and builds them from the record table.
func (b *linksBench) build(ctx context.Context) error {
	with, err := b.settle(references.LinksAsStored)
	if err != nil {
		return err
	}
	if _, err := b.settle(references.LinksOff); err != nil {
		return err
	}
	without, err := b.settle(references.LinksAsStored) // of what closing has flushed
	if err != nil {
		return err
	}
	each := func(bytes int64) float64 { return float64(bytes) / float64(b.stream.alive) }
	b.row("bytes a link that --links adds", fmt.Sprintf("%.1f", each(with-without)))
	b.row("bytes a link of the whole store, record table included", fmt.Sprintf("%.1f", each(with)))

	s, err := b.open(references.LinksOn)
	if err != nil {
		return err
	}
	begun := time.Now()
	ctx, stop := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.Run(ctx) })
	g.Go(func() error { defer stop(); return b.awaitLinks(ctx, s) })
	err = g.Wait()
	took := time.Since(begun)
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	tenMillion := took.Seconds() * 10e6 / float64(b.stream.live)
	b.row(fmt.Sprintf("s to build links from %s rows, in the share of ten million", grouped(b.stream.live)),
		fmt.Sprintf("%.1f", tenMillion))
	return nil
}

// awaitLinks waits until the links are complete.
func (b *linksBench) awaitLinks(ctx context.Context, s *references.Store) error {
	for {
		_, built, err := s.LinksProgress()
		if err != nil || built == 1 {
			return err
		}
		b.report("%.0f %% built", 100*built)
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// settle opens the store, lets it compact itself, closes it, and returns the size of all its files.
func (b *linksBench) settle(links references.Links) (bytes int64, err error) {
	s, err := b.open(links)
	if err != nil {
		return 0, err
	}
	_, err = awaitRest(b.store())
	if err := errors.Join(err, s.Close()); err != nil {
		return 0, err
	}
	return bytesIn(b.store(), func(string) bool { return true })
}
