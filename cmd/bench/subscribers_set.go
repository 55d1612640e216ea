package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"

	"millrace/consume/relaysim"
)

// subscriber is one connection, read by a goroutine of its own: it counts and hashes frames, and
// notes when they came. What they hold is looked up in the end, in the log.
type subscriber struct {
	class *class
	dids  map[string]bool // nil: all
	c     *client

	mu     sync.Mutex
	seen   int64         // events
	seenAt [2]int64      // at the begin and end of the measurement
	hash   xxhash.Digest // of the frames
	notes  []note
	ended  error
}

// note says when events were read.
type note struct {
	first int64 // number of the first one
	n     int32
	at    int64 // Unix µs
}

// subscribers is all subscribers of a scenario.
type subscribers struct {
	all    []*subscriber
	at     [2]int64 // Unix µs of seenAt: what is stamped in between counts
	cancel context.CancelFunc
	group  errgroup.Group
}

// perSource is how many connections come from one address: a pair of addresses has 28,000 ports.
const perSource = 5000

// subscribeAll connects all subscribers. Those of replaying classes have cursor=0, so that each
// must get all of its part of the log.
func subscribeAll(ctx context.Context, s scenario, server *server, truth string) (*subscribers, error) {
	dids, err := someDIDs(truth)
	if err != nil {
		return nil, err
	}
	all := &subscribers{}
	ctx, all.cancel = context.WithCancel(ctx)
	var dials errgroup.Group
	dials.SetLimit(16)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range s.mix {
		class := &s.mix[i]
		for range class.n {
			k := &subscriber{class: class, dids: drawDIDs(rng, dids, class.dids)}
			k.hash.Reset()
			// 127.0.0.2 and on
			local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+len(all.all)/perSource))}
			all.all = append(all.all, k)
			dials.Go(func() (err error) {
				if k.c, err = dial(ctx, server.subscribe(k.query()), local); err != nil {
					return fmt.Errorf("subscriber of %s: %w", class.name, err)
				}
				all.group.Go(func() error { k.read(); return nil })
				return nil
			})
		}
	}
	if err := dials.Wait(); err != nil {
		all.close()
		return nil, err
	}
	return all, nil
}

// read reads until the connection ends.
func (k *subscriber) read() {
	defer k.c.close()
	for {
		frames, n, err := k.c.more()
		k.mu.Lock()
		if err != nil {
			k.ended = err
			k.mu.Unlock()
			return
		}
		_, _ = k.hash.Write(frames)
		k.notes = append(k.notes, note{k.seen, int32(n), k.c.came.UnixMicro()})
		k.seen += n
		k.mu.Unlock()
	}
}

// drawDIDs picks n DIDs to ask for: those of the stream, and if they are too few others.
func drawDIDs(rng *rand.Rand, known []string, n int) map[string]bool {
	if n == 0 {
		return nil
	}
	dids := make(map[string]bool, n)
	for range n / 2 {
		dids[known[rng.IntN(len(known))]] = true
	}
	for len(dids) < n {
		dids[string(appendDID(nil, 1<<40+rng.Uint64N(1<<30)))] = true
	}
	return dids
}

func (k *subscriber) query() string {
	var q strings.Builder
	if !k.class.live {
		q.WriteString("cursor=0&")
	}
	q.WriteString(k.class.query)
	for d := range k.dids {
		q.WriteString("&wantedDids=" + d)
	}
	return q.String()
}

// someDIDs returns the DIDs of the truth so far.
func someDIDs(truth string) ([]string, error) {
	lines, err := relaysim.ReadTruth(truth)
	if err != nil {
		return nil, err
	}
	dids := make(map[string]bool)
	for _, l := range lines {
		var event struct{ DID string }
		if err := json.Unmarshal(l.Event, &event); err != nil {
			return nil, err
		}
		dids[event.DID] = true
	}
	if len(dids) == 0 {
		return nil, errors.New("the relay has sent nothing yet")
	}
	return slices.Sorted(maps.Keys(dids)), nil
}

// snapshot notes what each subscriber has, at the begin (0) or end (1) of the measurement.
func (s *subscribers) snapshot(i int) {
	s.at[i] = time.Now().UnixMicro()
	for _, k := range s.all {
		k.mu.Lock()
		k.seenAt[i] = k.seen
		k.mu.Unlock()
	}
}

// close ends all connections, and what reads them. It is safe twice.
func (s *subscribers) close() {
	s.cancel()
	_ = s.group.Wait() // none fails
}

// drain waits until each subscriber has all that is for it in the log, or nothing came for some
// seconds.
func (s *subscribers) drain(ctx context.Context, log *heldLog) {
	const patience = 5 * time.Second
	last, since := int64(-1), time.Now()
	for time.Since(since) < patience {
		var missing, sum int64
		for _, k := range s.all {
			k.mu.Lock()
			missing += max(0, int64(len(log.expected(k).stamps))-k.seen)
			sum += k.seen
			k.mu.Unlock()
		}
		if missing == 0 {
			return
		}
		if sum != last {
			last, since = sum, time.Now()
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
}

// classResult is what the subscribers of a class got.
type classResult struct {
	class
	events  int64 // while it was measured
	lag     *lags
	wrong   int    // subscribers that did not get exactly their part of the truth
	example string // of what was wrong
}

// compare compares what a class got with what the log holds for it, and takes the lags. A live one
// needs no log. The connections have ended.
func (s *subscribers) compare(class class, log *heldLog) classResult {
	r := classResult{class: class, lag: new(lags)}
	for _, k := range s.all {
		if k.class.name != class.name {
			continue
		}
		r.events += k.seenAt[1] - k.seenAt[0]
		if class.live {
			continue
		}
		want := log.expected(k)
		if k.seen != int64(len(want.stamps)) || k.hash.Sum64() != want.hash {
			r.wrong++
			r.example = fmt.Sprintf("%d events of %d, ended: %v", k.seen, len(want.stamps), k.ended)
			continue
		}
		for _, n := range k.notes {
			for i := n.first; i < n.first+int64(n.n); i++ {
				if at := want.stamps[i]; at >= s.at[0] && at < s.at[1] {
					r.lag.addMicros(n.at - at)
				}
			}
		}
	}
	return r
}
