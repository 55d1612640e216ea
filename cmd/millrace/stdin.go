package main

import (
	"context"
	"io"
)

// readUntil returns a reader of in that fails once ctx ends: what feeds a pipe may be silent for
// ever. A read of in that is under way then ends with the process.
func readUntil(ctx context.Context, in io.Reader) io.Reader {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.Copy(w, in)
		_ = w.CloseWithError(err)
	}()
	return r
}
