package main

import (
	"errors"
	"io"
	"syscall"
)

const tailBuffer = 64 << 10 // bytes of output that wait for the next pause of the input

// lineWriter holds lines back until the next pause of the input. It knows how far they are written.
type lineWriter struct {
	out   io.Writer
	held  []byte
	lines []heldLine // of held
	torn  bool       // what is written ends within a line
	err   error      // of the write that failed
}

// heldLine is one that is held.
type heldLine struct {
	end    int    // in held
	cursor string // after it
}

// hold adds a line, which stays the caller's. The cursor is that after it.
func (w *lineWriter) hold(line []byte, cursor string) {
	w.held = append(w.held, line...)
	w.lines = append(w.lines, heldLine{len(w.held), cursor})
}

// flush writes what is held. If that fails, it returns the cursor after the last line that was
// written whole, "" if none was. Nothing is written after that.
func (w *lineWriter) flush() (cursor string, err error) {
	if w.err != nil || len(w.held) == 0 {
		return "", w.err
	}
	n, err := w.out.Write(w.held)
	if w.err = err; err != nil {
		whole := 0
		for _, l := range w.lines {
			if l.end <= n {
				whole, cursor = l.end, l.cursor
			}
		}
		w.torn = n > whole
		if errors.Is(err, syscall.EPIPE) {
			cursor = "" // the reader has left before it read them
		}
	}
	clear(w.lines)
	w.held, w.lines = w.held[:0], w.lines[:0]
	return cursor, err
}
