package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// truth is what the relay says a correct consumer must hold, event by event, as it makes it. The
// relay writes it into a pipe: at full speed a file would take the disk that is to be measured. One
// goroutine calls next.
type truth struct {
	name   string
	chunks chan []byte // whole lines
	rest   []byte      // of the chunk at hand
	err    error       // after chunks is closed

	running sync.WaitGroup // read and discard
}

const (
	truthChunkBytes = 1 << 20
	maxTruthChunks  = 512 // how far the relay may be ahead of the subscriber
)

// newTruth makes the pipe, which the relay must open for writing.
func newTruth(name string) (*truth, error) {
	if err := makePipe(name); err != nil {
		return nil, fmt.Errorf("make the pipe of the truth: %w", err)
	}
	t := &truth{name: name, chunks: make(chan []byte, maxTruthChunks)}
	t.running.Go(t.read)
	return t, nil
}

// read cuts what comes into chunks of whole lines.
func (t *truth) read() {
	defer close(t.chunks)
	f, err := os.Open(t.name)
	if err != nil {
		t.err = err
		return
	}
	defer f.Close()
	if err := growPipe(f, truthChunkBytes); err != nil {
		t.err = fmt.Errorf("grow the pipe: %w", err)
		return
	}
	chunk := make([]byte, 0, truthChunkBytes)
	for {
		n, err := f.Read(chunk[len(chunk):cap(chunk)])
		chunk = chunk[:len(chunk)+n]
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.err = err
			}
			return
		}
		if end := bytes.LastIndexByte(chunk, '\n') + 1; end > 0 {
			t.chunks <- bytes.Clone(chunk[:end])
			chunk = chunk[:copy(chunk, chunk[end:])]
		}
		if len(chunk) == cap(chunk) {
			chunk = slices.Grow(chunk, cap(chunk))
		}
	}
}

// next returns the next event that there must be, with "time_us":0. It waits for it.
func (t *truth) next() ([]byte, error) {
	for len(t.rest) == 0 {
		chunk, ok := <-t.chunks
		if !ok {
			return nil, errors.Join(errors.New("the relay has made no such event"), t.err)
		}
		t.rest = chunk
	}
	const event = `,"event":`
	end := bytes.IndexByte(t.rest, '\n')
	at := bytes.Index(t.rest[:end], []byte(event))
	if at < 0 {
		return nil, fmt.Errorf("not a line of truth: %.200q", t.rest[:end])
	}
	line := t.rest[at+len(event) : end-1]
	t.rest = t.rest[end+1:]
	return line, nil
}

// discard forgets what comes from now on, until the relay ends: else the relay waits for room in
// the pipe.
func (t *truth) discard() {
	t.running.Go(func() {
		for range t.chunks { //nolint:revive // there is nothing to do with them
		}
	})
}

// close waits for what discard still reads. The relay must have ended.
func (t *truth) close() {
	// A relay that never opened the pipe keeps its reader waiting for a writer.
	if f, err := os.OpenFile(t.name, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
		f.Close()
	}
	t.running.Wait()
}

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
	var tid int64
	for _, c := range event[at+len(commit):][:tidCharacters] {
		n := strings.IndexByte(tidAlphabet, c)
		if n < 0 {
			return 0
		}
		tid = tid<<5 | int64(n)
	}
	return tid >> 10
}
