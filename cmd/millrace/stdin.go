package main

import (
	"context"
	"io"
	"sync"
)

// readUntil returns a reader of in that fails once ctx ends.
func readUntil(ctx context.Context, in io.Reader) *io.PipeReader {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(context.Cause(ctx)) })
	var wg sync.WaitGroup // not waited for: a read of a pipe or a terminal may never end
	wg.Go(func() {
		_, err := io.Copy(w, in)
		_ = w.CloseWithError(err)
	})
	return r
}
