package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/cespare/xxhash/v2"

	"millrace/consume/relaysim"
	"millrace/dict"
	jetstreamv1 "millrace/dict/jetstream"
)

// heldLog is the server's log as it sends it, after it was compared with the truth file. One
// goroutine uses it.
type heldLog struct {
	events       []heldEvent
	expectations map[string]*expectation // by query, or by subscriber if it has DIDs
}

type heldEvent struct {
	timeUS            int64
	did, collection   string // "" for other kinds than commit
	plain, compressed []byte // frames
}

// expectation is what one query gets of it.
type expectation struct {
	stamps []int64
	hash   uint64
}

var errNotExact = errors.New("the server's log differs from relaysim's truth file")

// readLog reads the whole log from the server, plain and compressed, and makes sure that it is the
// truth and that both are the same.
func readLog(ctx context.Context, server *server, truth []relaysim.Line) (*heldLog, error) {
	d, err := dict.Parse(jetstreamv1.Dictionary())
	if err != nil {
		return nil, err
	}
	dec, err := dict.NewDecoder(16<<20, d)
	if err != nil {
		return nil, err
	}
	defer dec.Close()
	l := &heldLog{events: make([]heldEvent, len(truth)), expectations: map[string]*expectation{}}
	err = eachFrame(ctx, server.subscribe("cursor=0"), len(truth), func(i int, frame, payload []byte) error {
		return l.events[i].setPlain(frame, payload, truth[i].Event)
	})
	if err != nil {
		return nil, err
	}
	return l, eachFrame(ctx, server.subscribe("cursor=0&compress=true"), len(truth), func(i int, frame, payload []byte) error {
		plain, err := dec.Append(nil, payload)
		if err != nil {
			return err
		}
		e := &l.events[i]
		if !bytes.HasSuffix(e.plain, plain) {
			return fmt.Errorf("%w: the compressed frame of event %d decodes to %s", errNotExact, i, plain)
		}
		e.compressed = bytes.Clone(frame)
		return nil
	})
}

// eachFrame calls f with the first n frames of a subscription.
func eachFrame(ctx context.Context, address string, n int, f func(i int, frame, payload []byte) error) error {
	c, err := dial(ctx, address, nil)
	if err != nil {
		return err
	}
	defer c.close()
	for i := range n {
		frame, header, err := c.nextFrame()
		if err != nil {
			return fmt.Errorf("%w: %d of %d events: %w", errNotExact, i, n, err)
		}
		if err := f(i, frame, frame[header:]); err != nil {
			return err
		}
	}
	return nil
}

func (e *heldEvent) setPlain(frame, payload, truth []byte) (err error) {
	if e.timeUS, err = matchTruth(payload, truth); err != nil {
		return fmt.Errorf("%w:\n got %s\nwant %s", errNotExact, payload, truth)
	}
	var v struct {
		DID    string
		Commit *struct{ Collection string }
	}
	if err := json.Unmarshal(payload, &v); err != nil {
		return err
	}
	e.did, e.plain = v.DID, bytes.Clone(frame)
	if v.Commit != nil {
		e.collection = v.Commit.Collection
	}
	return nil
}

// matches is the filter of the classes, said once more.
func (e *heldEvent) matches(k *subscriber) bool {
	if strings.Contains(k.class.query, "wantedKinds=commit") && e.collection == "" {
		return false
	}
	if _, rest, ok := strings.Cut(k.class.query, "wantedCollections="); ok {
		if want, _, _ := strings.Cut(rest, "&"); e.collection != "" && e.collection != want {
			return false
		}
	}
	return k.dids == nil || k.dids[e.did]
}

// expected returns what a subscriber gets.
func (l *heldLog) expected(k *subscriber) *expectation {
	key := k.class.query
	if k.dids != nil {
		key = fmt.Sprintf("%p", k)
	}
	if p := l.expectations[key]; p != nil {
		return p
	}
	p := &expectation{}
	hash := xxhash.New()
	for i := range l.events {
		e := &l.events[i]
		if !e.matches(k) {
			continue
		}
		p.stamps = append(p.stamps, e.timeUS)
		if strings.Contains(k.class.query, "compress=true") {
			_, _ = hash.Write(e.compressed)
		} else {
			_, _ = hash.Write(e.plain)
		}
	}
	p.hash = hash.Sum64()
	l.expectations[key] = p
	return p
}
