//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/gorilla/websocket"

	"millrace/dict"
	jetstreamv1 "millrace/dict/jetstream"
)

// readLog reads the whole log from the server, plain and compressed, and makes sure that it is the
// truth and that both are the same.
func readLog(ctx context.Context, addr string, truth []json.RawMessage) (*heldLog, error) {
	d, err := dict.Parse(jetstreamv1.Dictionary())
	if err != nil {
		return nil, err
	}
	dec, err := dict.NewDecoder(16<<20, d)
	if err != nil {
		return nil, err
	}
	l := &heldLog{events: make([]heldEvent, len(truth)), parts: map[string]*heldPart{}}
	err = eachMessage(ctx, addr, "cursor=0", len(truth), func(i int, m []byte) error {
		return l.events[i].setPlain(m, truth[i])
	})
	if err != nil {
		return nil, err
	}
	return l, eachMessage(ctx, addr, "cursor=0&compress=true", len(truth), func(i int, m []byte) error {
		plain, err := dec.Append(nil, m)
		if err != nil {
			return err
		}
		e := &l.events[i]
		if !bytes.HasSuffix(e.plain, plain) {
			return fmt.Errorf("%w: event %d compressed is %s", errNotExact, i, plain)
		}
		e.compressed = appendServerFrame(nil, 0x82, m)
		return nil
	})
}

func (e *heldEvent) setPlain(m []byte, truth json.RawMessage) error {
	var v struct {
		DID    string
		TimeUS int64 `json:"time_us"`
		Commit *struct{ Collection string }
	}
	if err := json.Unmarshal(m, &v); err != nil {
		return err
	}
	zeroed := bytes.Replace(m, strconv.AppendInt([]byte(`"time_us":`), v.TimeUS, 10), []byte(`"time_us":0`), 1)
	if !bytes.Equal(zeroed, truth) {
		return fmt.Errorf("%w: it has\n%s\nwhere the truth is\n%s", errNotExact, zeroed, truth)
	}
	e.did, e.timeUS = v.DID, v.TimeUS
	if v.Commit != nil {
		e.collection = v.Commit.Collection
	}
	e.plain = appendServerFrame(nil, 0x81, m)
	return nil
}

// appendServerFrame appends an unmasked frame.
func appendServerFrame(dst []byte, first byte, payload []byte) []byte {
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, first, byte(n))
	case n < 1<<16:
		dst = append(dst, first, 126, byte(n>>8), byte(n))
	default:
		dst = append(dst, first, 127, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return append(dst, payload...)
}

// eachMessage calls f with the first n messages of a subscription.
func eachMessage(ctx context.Context, addr, query string, n int, f func(i int, m []byte) error) error {
	ws, resp, err := websocket.DefaultDialer.DialContext(ctx, "ws://"+addr+"/subscribe?"+query, nil)
	if err != nil {
		if resp != nil {
			resp.Body.Close()
		}
		return err
	}
	defer ws.Close()
	for i := range n {
		if err := ws.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			return err
		}
		_, m, err := ws.ReadMessage()
		if err != nil {
			return fmt.Errorf("%w: %d of %d events: %w", errNotExact, i, n, err)
		}
		if err := f(i, m); err != nil {
			return err
		}
	}
	return nil
}
