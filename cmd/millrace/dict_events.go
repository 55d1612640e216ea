package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"millrace/dict"
	"millrace/public/client"
	"millrace/replay"
)

// events collects the samples.
func (c *dictTrainConfig) events(ctx context.Context, files []string, stderr io.Writer) ([][]byte, error) {
	s := &sampler{max: c.samples, rng: rand.New(rand.NewPCG(1, 1)), stderr: stderr, say: sayCount(stderr, "events so far")}
	switch {
	case c.url != "":
		return s.fromServer(ctx, c.url, c.cursor)
	case c.dataDir != "":
		return s.fromLog(ctx, c.dataDir, c.cursor)
	}
	for _, path := range files {
		if err := readFile(ctx, path, func(in io.Reader) error { return s.readLines(ctx, path, in) }); err != nil {
			return nil, fmt.Errorf("read events: %w", err)
		}
	}
	return s.events, nil
}

// sampler keeps at most max events, each of those it has seen with the same probability.
type sampler struct {
	max    int
	rng    *rand.Rand
	seen   int
	events [][]byte
	stderr io.Writer
	say    func(seen uint64)
}

// add takes an event, which it copies.
func (s *sampler) add(event []byte) {
	s.seen++
	if len(s.events) < s.max {
		s.events = append(s.events, bytes.Clone(event))
	} else if i := s.rng.IntN(s.seen); i < s.max {
		s.events[i] = bytes.Clone(event)
	}
	s.say(uint64(s.seen))
}

// readLines adds the events of a file, plain or compressed.
func (s *sampler) readLines(ctx context.Context, path string, in io.Reader) error {
	plain, err := dict.NewFileReader(in, maxDictWindow)
	if err != nil {
		return err
	}
	defer plain.Close()
	lines := bufio.NewScanner(plain)
	lines.Buffer(nil, maxDictEvent)
	n := 1
	for ; lines.Scan(); n++ {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 || bytes.HasPrefix(line, []byte(`{"kind":"info",`)) {
			continue
		}
		if line[0] != '{' || line[len(line)-1] != '}' || !bytes.Contains(line, []byte(`"did":"did:`)) {
			err := fmt.Errorf("line %d is not an event: one JSON object a line is expected, as millrace tail prints them", n)
			return fmt.Errorf("%s: %w", path, cmp.Or(lines.Err(), err)) // a failed read ends within a line
		}
		s.add(line)
	}
	err = lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("line %d is longer than %d bytes: one JSON object a line is expected, as millrace tail prints them", n, maxDictEvent)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// fromServer takes events as millrace tail gets them, until there are enough.
func (s *sampler) fromServer(ctx context.Context, url, cursor string) ([][]byte, error) {
	c, err := client.New(client.Config{
		URL: url, Cursor: cursor, UserAgent: "millrace-dict/" + version,
		OnDisconnect: func(err error, wait time.Duration) {
			printLine(s.stderr, "millrace dict: %v; connecting again in %.1f s", err, wait.Seconds())
		},
	})
	if err != nil {
		return nil, usageError{fmt.Errorf("--url: %w", err)}
	}
	var line []byte
	for e, err := range c.Events(ctx) {
		if err != nil {
			return nil, err
		}
		line = e.AppendPlain(line[:0])
		if s.add(line); s.seen == s.max {
			break
		}
	}
	return s.events, nil
}

// fromLog takes events from the log in a data directory, up to its end. It changes nothing there.
func (s *sampler) fromLog(ctx context.Context, dataDir, cursor string) (_ [][]byte, err error) {
	from := replay.TimeCursor(0)
	if cursor != "" {
		if from, err = parseCursor(cursor); err != nil {
			return nil, err
		}
	}
	dicts := shippedDictionaries()
	defer dicts.Close()
	log, err := replay.Open(replay.Config{Dir: (&config{dataDir: dataDir}).logDir(), ReadOnly: true, MaxOpenFiles: commandFiles(), Dictionaries: dicts})
	switch {
	case errors.Is(err, replay.ErrNoLog):
		return nil, fmt.Errorf("--data-dir %s is no server's data directory: %w", dataDir, err)
	case errors.Is(err, replay.ErrInUse):
		return nil, fmt.Errorf("--data-dir %s: stop the server first, or take its events with --url: %w", dataDir, err)
	case err != nil:
		return nil, adviseNewer(adviseStores(err), dataDir)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if err := s.readLog(ctx, log, from); err != nil {
		return nil, fmt.Errorf("read the log in %s: %w", dataDir, err)
	}
	return s.events, nil
}

func (s *sampler) readLog(ctx context.Context, log *replay.Log, from replay.Cursor) error {
	r, err := log.NewReader(replay.ReaderConfig{Cursor: from})
	if err != nil {
		return err
	}
	defer r.Close()
	for c := (replay.Chunk{}); !c.Live; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := r.Next(&c); err != nil {
			return err
		}
		for _, frames := range c.Frames {
			for len(frames) > 0 {
				var event []byte
				if event, frames, err = cutFrame(frames); err != nil {
					return err
				}
				s.add(event)
			}
		}
	}
	if s.seen == 0 {
		return errors.New("it holds no events")
	}
	return nil
}

// cutFrame cuts the first of some unmasked websocket frames off (RFC 6455, 5.2). Both results alias
// b.
func cutFrame(b []byte) (payload, rest []byte, err error) {
	var head [10]byte // the longest, without a mask
	copy(head[:], b)
	begin, n := 2, uint64(head[1])
	switch n {
	case 126:
		begin, n = 4, uint64(binary.BigEndian.Uint16(head[2:]))
	case 127:
		begin, n = 10, binary.BigEndian.Uint64(head[2:])
	}
	if len(b) < begin || n > uint64(len(b)-begin) {
		return nil, nil, errors.New("a frame is cut short")
	}
	return b[begin : begin+int(n)], b[begin+int(n):], nil
}
