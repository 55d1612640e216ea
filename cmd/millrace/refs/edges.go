package refs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"millrace/dict"
	"millrace/intern"
	"millrace/replay/graph"
)

const (
	maxEdgeLine = 8 << 10 // bytes; two of the longest DIDs have half of that
	edgeBlock   = 512 << 10
)

// EdgeReader reads edges without records, as CSV with the columns actor and subject, both DIDs. The
// first line may name them. Lines are in any order.
type EdgeReader struct {
	UIDs  UIDs
	Lines atomic.Uint64 // read so far, of all files
}

// lineBlock is whole lines of a file.
type lineBlock struct {
	first int // number of the first line
	text  []byte
}

// Read reads a file, plain or compressed with gzip or zstd. do gets its edges, some thousand at a
// time and in any order, from one goroutine. An error says which line is wrong.
func (r *EdgeReader) Read(ctx context.Context, in io.Reader, do func(edges []graph.Edge) error) error {
	plain, err := dict.NewFileReader(in, maxWindowBytes)
	if err != nil {
		return err
	}
	defer plain.Close()
	tasks, ctx := errgroup.WithContext(ctx)
	blocks, found := make(chan lineBlock), make(chan []graph.Edge)
	tasks.Go(func() error {
		defer close(blocks)
		return readLines(ctx, plain, blocks)
	})
	workers := runtime.GOMAXPROCS(0)
	running := atomic.Int32{}
	running.Store(int32(workers))
	for range workers {
		tasks.Go(func() error {
			defer func() {
				if running.Add(-1) == 0 {
					close(found)
				}
			}()
			return r.resolve(ctx, blocks, found)
		})
	}
	tasks.Go(func() error {
		for edges := range found {
			if err := do(edges); err != nil {
				return err
			}
		}
		return nil
	})
	return tasks.Wait()
}

// readLines cuts a file into blocks.
func readLines(ctx context.Context, in io.Reader, blocks chan<- lineBlock) error {
	lines := bufio.NewReaderSize(in, maxEdgeLine)
	b := lineBlock{first: 1}
	for number := 1; ; number++ {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("line %d: it is longer than %d bytes", number, maxEdgeLine)
		case err != nil && !errors.Is(err, io.EOF):
			return fmt.Errorf("line %d: %w", number, err)
		}
		if number == 1 && string(bytes.TrimRight(line, "\r\n")) == "actor,subject" {
			line = line[len(line):]
			b.first++
		}
		b.text = append(b.text, line...)
		if err == nil && len(b.text) < edgeBlock {
			continue
		}
		select {
		case blocks <- b:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err != nil {
			return nil //nolint:nilerr // the end of the file
		}
		b = lineBlock{first: number + 1, text: make([]byte, 0, edgeBlock+maxEdgeLine)}
	}
}

// resolve makes edges of blocks.
func (r *EdgeReader) resolve(ctx context.Context, blocks <-chan lineBlock, found chan<- []graph.Edge) error {
	for b := range blocks {
		edges, err := r.edges(ctx, b)
		if err != nil {
			return err
		}
		select {
		case found <- edges:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// edges makes edges of a block. Each line has a request for its subject, and before it one for its
// actor unless that is the actor of the line before.
func (r *EdgeReader) edges(ctx context.Context, b lineBlock) ([]graph.Edge, error) {
	var reqs []intern.Request
	var actors []int // by line, the request of its actor
	var subjects []int
	lineOf := func(request int) int { // the line of a request that is wrong
		for i, subject := range subjects {
			if subject >= request {
				return b.first + i
			}
		}
		return b.first
	}
	for line := range bytes.Lines(b.text) {
		actor, subject, ok := cutEdge(line)
		if !ok {
			return nil, fmt.Errorf("line %d: %.100q is not actor,subject", b.first+len(actors), line)
		}
		last := len(actors) - 1
		if last < 0 || !bytes.Equal(reqs[actors[last]].DID, actor) {
			actors = append(actors, len(reqs))
			reqs = append(reqs, intern.Request{DID: actor})
		} else {
			actors = append(actors, actors[last])
		}
		subjects = append(subjects, len(reqs))
		reqs = append(reqs, intern.Request{DID: subject})
	}
	out := make([]intern.Result, len(reqs))
	err := r.UIDs.Resolve(ctx, reqs, out)
	var invalid *intern.InvalidError
	if errors.As(err, &invalid) {
		return nil, fmt.Errorf("line %d: %.100q is no DID: %s", lineOf(invalid.Index), reqs[invalid.Index].DID, invalid.Reason)
	}
	if err != nil {
		return nil, err
	}
	edges := make([]graph.Edge, len(actors))
	for i := range edges {
		edges[i] = graph.Edge{Actor: out[actors[i]].DIDUID, Subject: out[subjects[i]].DIDUID}
	}
	r.Lines.Add(uint64(len(edges)))
	return edges, nil
}

// cutEdge returns the fields of a line, which may be in quotation marks.
func cutEdge(line []byte) (actor, subject []byte, ok bool) {
	actor, subject, ok = bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(","))
	unquote := func(field []byte) []byte {
		if n := len(field); n >= 2 && field[0] == '"' && field[n-1] == '"' {
			return field[1 : n-1]
		}
		return field
	}
	return unquote(actor), unquote(subject), ok
}
