package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/bluesky-social/indigo/atproto/syntax"
)

// truth is what the relay says a correct consumer must hold, event by event, as it makes it. The
// relay writes it into a pipe: at full speed a file would take the disk that is measured. One
// goroutine calls next.
type truth struct {
	lines chan []byte
	err   error // after lines is closed

	running sync.WaitGroup // read and discard
}

const (
	truthPipeBytes = 1 << 20
	maxTruthLines  = 1 << 18 // how far the relay may be ahead of the subscriber
)

// newTruth makes the pipe. The relay has its end, to, from its start on; the caller closes to.
func newTruth() (t *truth, to *os.File, err error) {
	from, to, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make the pipe for relaysim's truth file: %w", err)
	}
	t = &truth{lines: make(chan []byte, maxTruthLines)}
	t.running.Go(func() {
		defer close(t.lines)
		defer from.Close()
		t.err = t.read(from)
	})
	return t, to, nil
}

func (t *truth) read(f *os.File) error {
	if err := growPipe(f, truthPipeBytes); err != nil {
		return fmt.Errorf("grow the pipe: %w", err)
	}
	for r := bufio.NewReaderSize(f, truthPipeBytes); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		t.lines <- line
	}
}

// next returns the next event that there must be, with "time_us":0. It waits for it.
func (t *truth) next() ([]byte, error) {
	line, ok := <-t.lines
	if !ok {
		return nil, errors.Join(errors.New("the server sent an event that the relay has not made"), t.err)
	}
	_, event, ok := bytes.Cut(line, []byte(`,"event":`))
	if !ok {
		return nil, fmt.Errorf("not a line of relaysim's truth file: %.200q", line)
	}
	return event[:len(event)-len("}\n")], nil
}

// discard forgets what comes from now on, until the relay ends: else the relay waits for room in
// the pipe.
func (t *truth) discard() {
	t.running.Go(func() {
		for range t.lines { //nolint:revive // there is nothing to do with them
		}
	})
}

// close waits for what discard still reads. The relay must have ended.
func (t *truth) close() { t.running.Wait() }

// errDiffers says that an event is not the one that must come here.
var errDiffers = errors.New("the event is not the one that the relay sent next")

// matchTruth compares an event with its truth and returns its stamp.
func matchTruth(got, want []byte) (int64, error) {
	const stamp = `,"time_us":`
	at := bytes.Index(got, []byte(stamp))
	if at < 0 {
		return 0, errDiffers
	}
	digits, us := at+len(stamp), int64(0)
	end := digits
	for ; end < len(got) && got[end] >= '0' && got[end] <= '9'; end++ {
		us = us*10 + int64(got[end]-'0')
	}
	if len(want) <= digits || !bytes.Equal(got[:digits], want[:digits]) || want[digits] != '0' || !bytes.Equal(got[end:], want[digits+1:]) {
		return 0, errDiffers
	}
	return us, nil
}

// madeAt returns when the relay made the commit of an event, in Unix microseconds, by its rev; 0
// for other events.
func madeAt(event []byte) int64 {
	const commit = `"kind":"commit","commit":{"rev":"`
	at := bytes.Index(event, []byte(commit))
	if at < 0 || len(event) < at+len(commit)+tidCharacters {
		return 0
	}
	rev := syntax.TID(event[at+len(commit):][:tidCharacters])
	return int64(rev.Integer() >> 10)
}
