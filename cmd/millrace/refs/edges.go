package refs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
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
// first line may name them, empty ones are passed over. Lines are in any order.
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
// time and in any order; its calls follow each other. An error says which line is wrong.
func (r *EdgeReader) Read(ctx context.Context, in io.Reader, do func(edges []graph.Edge) error) error {
	plain, err := dict.NewFileReader(in, maxWindowBytes)
	if err != nil {
		return err
	}
	defer plain.Close()
	tasks, ctx := errgroup.WithContext(ctx)
	blocks := make(chan lineBlock)
	tasks.Go(func() error {
		defer close(blocks)
		return readLines(ctx, plain, blocks)
	})
	var doing sync.Mutex
	for range runtime.GOMAXPROCS(0) {
		tasks.Go(func() error {
			resolver := edgeResolver{uids: r.UIDs}
			for b := range blocks {
				edges, err := resolver.edges(ctx, b)
				if err != nil {
					return err
				}
				r.Lines.Add(uint64(len(edges)))
				doing.Lock()
				err = do(edges)
				doing.Unlock()
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return tasks.Wait()
}

// readLines cuts a file into blocks.
func readLines(ctx context.Context, in io.Reader, blocks chan<- lineBlock) error {
	newline := []byte("\n")
	var rest []byte // a line whose end has not been read
	for number, ended := 1, false; !ended; {
		text := append(make([]byte, 0, edgeBlock), rest...)
		for len(text) < edgeBlock && !ended {
			n, err := in.Read(text[len(text):edgeBlock])
			text = text[:len(text)+n]
			if ended = errors.Is(err, io.EOF); err != nil && !ended {
				return fmt.Errorf("line %d: %w", number+bytes.Count(text, newline), err)
			}
		}
		if !ended {
			whole := bytes.LastIndexByte(text, '\n') + 1
			text, rest = text[:whole], text[whole:]
		}
		if len(rest) > maxEdgeLine {
			return lineTooLong(number + bytes.Count(text, newline))
		}
		b := lineBlock{number, text}
		if number == 1 {
			b.text = bytes.TrimPrefix(text, []byte(byteOrderMark))
			first, others, _ := bytes.Cut(b.text, newline)
			if actor, subject, _ := cutEdge(first); string(actor) == "actor" && string(subject) == "subject" {
				b = lineBlock{2, others}
			}
		}
		number += bytes.Count(text, newline)
		select {
		case blocks <- b:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func lineTooLong(number int) error {
	return fmt.Errorf("line %d: it is longer than %d bytes", number, maxEdgeLine)
}

// edgeResolver makes edges of one block after the other. What is of a block is used again.
type edgeResolver struct {
	uids  UIDs
	reqs  []intern.Request
	out   []intern.Result
	lines []edgeRequests
}

// edgeRequests says which requests are for the accounts of a line of that number.
type edgeRequests struct{ number, actor, subject int }

// edges makes edges of a block. Each line has a request for its subject, and before it one for its
// actor unless that is the actor of the line before.
func (r *edgeResolver) edges(ctx context.Context, b lineBlock) ([]graph.Edge, error) {
	r.reqs, r.lines = r.reqs[:0], r.lines[:0]
	number := b.first - 1
	for text := range bytes.Lines(b.text) {
		number++
		if len(text) > maxEdgeLine {
			return nil, lineTooLong(number)
		}
		if len(bytes.TrimRight(text, "\r\n")) == 0 {
			continue
		}
		actor, subject, ok := cutEdge(text)
		if !ok {
			return nil, fmt.Errorf("line %d: %.100q is not actor,subject", number, text)
		}
		line := edgeRequests{number: number, actor: len(r.reqs)}
		if last := len(r.lines) - 1; last >= 0 && bytes.Equal(r.reqs[r.lines[last].actor].DID, actor) {
			line.actor = r.lines[last].actor
		} else {
			r.reqs = append(r.reqs, intern.Request{DID: actor})
		}
		line.subject = len(r.reqs)
		r.reqs, r.lines = append(r.reqs, intern.Request{DID: subject}), append(r.lines, line)
	}
	r.out = slices.Grow(r.out[:0], len(r.reqs))[:len(r.reqs)]
	err := r.uids.Resolve(ctx, r.reqs, r.out)
	if invalid, ok := errors.AsType[*intern.InvalidError](err); ok {
		line := slices.IndexFunc(r.lines, func(l edgeRequests) bool { return l.subject >= invalid.Index })
		return nil, fmt.Errorf("line %d: %.100q is no DID: %s", r.lines[line].number, r.reqs[invalid.Index].DID, invalid.Reason)
	}
	if err != nil {
		return nil, err
	}
	edges := make([]graph.Edge, len(r.lines))
	for i, l := range r.lines {
		edges[i] = graph.Edge{Actor: r.out[l.actor].DIDUID, Subject: r.out[l.subject].DIDUID}
	}
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
