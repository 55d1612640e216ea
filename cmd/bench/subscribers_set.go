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
)

// subscriber is one connection, read by a goroutine of its own: it counts and hashes frames, and
// notes when they came. What they hold is looked up in the end, in the log.
type subscriber struct {
	class *class
	dids  map[string]struct{} // nil: all
	c     *client

	mu      sync.Mutex
	seen    tally
	tallies [2]tally      // at the begin and end of the measurement
	hash    xxhash.Digest // of the frames
	notes   []note
	ended   error
}

// note says when events were read.
type note struct {
	first int64 // number of the first one
	n     int32
	at    int64 // Unix µs
}

// tally is what a subscriber had at a moment.
type tally struct{ events, reads int64 }

// subscribers is all subscribers of a scenario.
type subscribers struct {
	all    []*subscriber
	at     [2]int64 // Unix µs of the tallies: what is stamped in between counts
	cancel context.CancelFunc
	group  errgroup.Group
}

// perSource is how many connections come from one address: a pair of addresses has 28,000 ports.
const perSource = 5000

// slowBuffer is what the kernel holds for a slow reader, so that the server notices soon.
const slowBuffer = 32 << 10

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
				if k.c, err = dial(ctx, k.address(server), local); err != nil {
					return fmt.Errorf("subscriber of %s: %w", class.name, err)
				}
				all.group.Go(func() error { k.read(ctx); return nil })
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
func (k *subscriber) read(ctx context.Context) {
	defer k.c.close()
	if tcp, ok := k.c.conn.(*net.TCPConn); ok && k.class.pace != asItComes {
		_ = tcp.SetReadBuffer(slowBuffer) // without it the server notices later
	}
	if k.class.pace == never {
		<-ctx.Done()
		return
	}
	if k.class.pace == tenASecond {
		k.c.most = 500 // about one event
	}
	for {
		frames, n, err := k.c.more()
		k.mu.Lock()
		if err != nil {
			k.ended = err
			k.mu.Unlock()
			return
		}
		_, _ = k.hash.Write(frames)
		k.notes = append(k.notes, note{k.seen.events, int32(n), k.c.came.UnixMicro()})
		k.seen.events += n
		k.seen.reads++
		k.mu.Unlock()
		if k.class.pace == tenASecond && pause(ctx, 100*time.Millisecond) != nil {
			return
		}
	}
}

// drawDIDs picks n DIDs to ask for: those of the stream, and if they are too few others.
func drawDIDs(rng *rand.Rand, known []string, n int) map[string]struct{} {
	if n == 0 {
		return nil
	}
	dids := make(map[string]struct{}, n)
	for range n / 2 {
		dids[known[rng.IntN(len(known))]] = struct{}{}
	}
	for len(dids) < n {
		dids[string(appendDID(nil, 1<<40+rng.Uint64N(1<<30)))] = struct{}{}
	}
	return dids
}

// address is where it subscribes.
func (k *subscriber) address(s *server) string {
	if k.class.v2 {
		names := strings.NewReplacer("wantedCollections", "collections", "wantedDids", "dids", "wantedKinds", "kinds")
		return s.subscribeV2(names.Replace(k.query()))
	}
	return s.subscribe(k.query())
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
	lines, err := readTruth(truth)
	if err != nil {
		return nil, err
	}
	dids := map[string]struct{}{}
	for _, l := range lines {
		var event struct{ DID string }
		if err := json.Unmarshal(l.Event, &event); err != nil {
			return nil, err
		}
		dids[event.DID] = struct{}{}
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
		k.tallies[i] = k.seen
		k.mu.Unlock()
	}
}

// drop closes the connections of slow subscribers.
func (s *subscribers) drop() {
	for _, k := range s.all {
		if k.class.pace != asItComes {
			k.c.close()
		}
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
			if k.class.exact() {
				k.mu.Lock()
				missing += max(0, int64(len(log.expected(k).stamps))-k.seen.events)
				sum += k.seen.events
				k.mu.Unlock()
			}
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
	tally
	lag     *lags
	wrong   int    // subscribers that did not get exactly their part of the truth
	example string // of what was wrong
}

// compare compares what a class got with what the log holds for it, and takes the lags. The
// connections have ended.
func (s *subscribers) compare(class class, log *heldLog) classResult {
	r := classResult{class: class, lag: new(lags)}
	for _, k := range s.all {
		if k.class.name != class.name {
			continue
		}
		r.events += k.tallies[1].events - k.tallies[0].events
		r.reads += k.tallies[1].reads - k.tallies[0].reads
		if !class.exact() || log == nil {
			continue
		}
		want := log.expected(k)
		if k.seen.events != int64(len(want.stamps)) || k.hash.Sum64() != want.hash {
			r.wrong++
			r.example = fmt.Sprintf("%d events of %d, ended: %v", k.seen.events, len(want.stamps), k.ended)
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
