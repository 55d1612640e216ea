//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cespare/xxhash/v2"
)

// subscriberSet is all subscribers of a scenario. Once they are connected one goroutine reads for
// all of them.
type subscriberSet struct {
	clients []*skimmer
	epoll   int
	from    atomic.Int64 // Unix µs: what is stamped in between counts
	to      atomic.Int64
	marks   [2]map[*skimmer]tally

	requests chan func() // run by the loop, between two reads
	stop     chan struct{}
	looping  sync.WaitGroup
}

// tally is what a client had at a moment.
type tally struct{ events, bytes, reads int64 }

// loopPause is how long the loop lets bytes gather: it wants few reads, and lag is taken from them.
const loopPause = 500 * time.Microsecond

// perSource is how many connections come from one address: a pair of addresses has 28,000 ports.
const perSource = 5000

// connectSubscribers connects everybody, with cursor=0, so that each must get all there is of its
// part of the log, if its class is not of those who come for what is live.
func connectSubscribers(ctx context.Context, s scenario, addr, truth string) (*subscriberSet, error) {
	epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	c := &subscriberSet{epoll: epoll, requests: make(chan func()), stop: make(chan struct{})}
	c.from.Store(1 << 62)
	dids, err := someDIDs(truth)
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range s.mix {
		class := &s.mix[i]
		for range class.n {
			k := &skimmer{class: class, source: byte(2 + len(c.clients)/perSource)}
			k.drawDIDs(rng, dids)
			c.clients = append(c.clients, k)
		}
	}
	c.looping.Go(c.loop)
	if err := c.connect(ctx, addr); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *subscriberSet) connect(ctx context.Context, addr string) error {
	const atOnce = 16
	tcp, err := net.ResolveTCPAddr("tcp4", addr)
	if err != nil {
		return err
	}
	to := syscall.SockaddrInet4{Port: tcp.Port, Addr: [4]byte(tcp.IP.To4())}
	next := make(chan *skimmer)
	errs := make(chan error, atOnce)
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for k := range next {
				if err := k.connect(to, addr, k.query()); err != nil {
					errs <- fmt.Errorf("subscriber of %s: %w", k.class.name, err)
					return
				}
				c.do(func() { c.watch(k) })
			}
		})
	}
	for _, k := range c.clients {
		select {
		case next <- k:
			continue
		case err = <-errs:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		break
	}
	close(next)
	wg.Wait()
	select {
	case e := <-errs:
		err = errors.Join(err, e)
	default:
	}
	return err
}

// drawDIDs picks the DIDs that the client asks for: those of the stream, and if they are too few
// strangers.
func (k *skimmer) drawDIDs(rng *rand.Rand, known []string) {
	if k.class.dids == 0 {
		return
	}
	k.dids = make(map[string]struct{}, k.class.dids)
	for range k.class.dids / 2 {
		k.dids[known[rng.IntN(len(known))]] = struct{}{}
	}
	for n := uint64(0); len(k.dids) < k.class.dids; n++ {
		k.dids[string(appendDID(nil, 1<<40+rng.Uint64N(1<<30)))] = struct{}{}
	}
}

func (k *skimmer) query() string {
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
	f, err := os.Open(truth)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	seen := map[string]struct{}{}
	var all []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var l struct{ Event struct{ DID string } }
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			break // the last line is being written
		}
		if _, ok := seen[l.Event.DID]; !ok {
			seen[l.Event.DID] = struct{}{}
			all = append(all, l.Event.DID)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("the relay has sent nothing yet")
	}
	return all, nil
}

// do runs f on the loop's goroutine and waits for it.
func (c *subscriberSet) do(f func()) {
	done := make(chan struct{})
	select {
	case c.requests <- func() { defer close(done); f() }:
		<-done
	case <-c.stop:
	}
}

func (c *subscriberSet) watch(k *skimmer) {
	if k.class.pace == never {
		return
	}
	e := syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(k.fd)}
	if err := syscall.EpollCtl(c.epoll, syscall.EPOLL_CTL_ADD, k.fd, &e); err != nil {
		k.ended = err
	}
}

// loop reads for everybody.
func (c *subscriberSet) loop() {
	byFD := map[int32]*skimmer{}
	buf := make([]byte, 256<<10)
	small := make([]byte, 500) // about one event
	ready := make([]syscall.EpollEvent, 4096)
	for {
		select {
		case <-c.stop:
			return
		case f := <-c.requests:
			f()
			continue
		default:
		}
		n, err := syscall.EpollWait(c.epoll, ready, 10)
		if err != nil && err != syscall.EINTR {
			return
		}
		for _, e := range ready[:max(n, 0)] {
			k := byFD[e.Fd]
			if k == nil || k.fd != int(e.Fd) {
				for _, k := range c.clients {
					byFD[int32(k.fd)] = k
				}
				k = byFD[e.Fd]
			}
			if k.class.pace == tenASecond {
				if time.Now().After(k.due) {
					k.read(small)
					k.due = time.Now().Add(100 * time.Millisecond)
				}
			} else {
				for k.read(buf) {
				}
			}
			if k.ended != nil {
				c.forget(k)
			}
		}
		time.Sleep(loopPause)
	}
}

func (c *subscriberSet) forget(k *skimmer) {
	_ = syscall.EpollCtl(c.epoll, syscall.EPOLL_CTL_DEL, k.fd, nil)
}

func (c *subscriberSet) measureFrom() { c.mark(0, &c.from) }
func (c *subscriberSet) measureTo()   { c.mark(1, &c.to) }

func (c *subscriberSet) mark(i int, at *atomic.Int64) {
	c.do(func() {
		at.Store(time.Now().UnixMicro())
		c.marks[i] = make(map[*skimmer]tally, len(c.clients))
		for _, k := range c.clients {
			c.marks[i][k] = tally{k.events, k.bytes, int64(len(k.notes))}
		}
	})
}

// drop closes the connections of those who read at one of the paces.
func (c *subscriberSet) drop(paces ...pace) {
	c.do(func() {
		for _, k := range c.clients {
			for _, p := range paces {
				if k.class.pace == p {
					c.forget(k)
					_ = syscall.Shutdown(k.fd, syscall.SHUT_RDWR)
				}
			}
		}
	})
}

// close ends all connections.
func (c *subscriberSet) close() {
	close(c.stop)
	c.looping.Wait()
	for _, k := range c.clients {
		if k.fd > 0 {
			_ = syscall.Close(k.fd)
		}
	}
	_ = syscall.Close(c.epoll)
}

// drain waits until everybody has all that is for it in the log, or nothing came for some seconds.
func (c *subscriberSet) drain(ctx context.Context, log *heldLog) {
	const patience = 5 * time.Second
	last, since := int64(-1), time.Now()
	for time.Since(since) < patience {
		var missing, sum int64
		c.do(func() {
			for _, k := range c.clients {
				if k.class.inTruth {
					missing += max(0, log.count(k)-k.events)
					sum += k.events
				}
			}
		})
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

// judge compares what a class got with what the log holds for it, and takes the lags.
func (c *subscriberSet) judge(class class, log *heldLog) classResult {
	r := classResult{class: class}
	lags := lagHistogram{}
	from, to := c.from.Load(), c.to.Load()
	c.do(func() {
		for _, k := range c.clients {
			if k.class.name != class.name {
				continue
			}
			r.events += c.marks[1][k].events - c.marks[0][k].events
			r.bytes += c.marks[1][k].bytes - c.marks[0][k].bytes
			r.reads += c.marks[1][k].reads - c.marks[0][k].reads
			if !class.inTruth {
				continue
			}
			part := log.part(k)
			if k.events != int64(len(part.stamps)) || k.hash.Sum64() != part.hash {
				r.wrong++
				r.example = fmt.Sprintf("%d events of %d, ended: %v", k.events, len(part.stamps), k.ended)
				continue
			}
			for _, n := range k.notes {
				for i := n.first; i < n.first+int64(n.n); i++ {
					if at := part.stamps[i]; at >= from && at < to {
						lags[n.at-at]++
					}
				}
			}
		}
	})
	r.p50, r.p99, r.most = lags.percentiles()
	return r
}

// heldLog is what the server holds, as it sends it, once it was found to be the truth.
type heldLog struct {
	events []heldEvent
	parts  map[string]*heldPart // by query, of classes without lists of DIDs
}

type heldEvent struct {
	timeUS            int64
	did, collection   string // "" for other kinds than commit
	plain, compressed []byte // frames
}

// heldPart is what one query gets of it.
type heldPart struct {
	stamps []int64
	hash   uint64
}

// passes is the filter of the classes, said once more.
func (e *heldEvent) passes(k *skimmer) bool {
	if strings.Contains(k.class.query, "wantedKinds=commit") && e.collection == "" {
		return false
	}
	if _, rest, ok := strings.Cut(k.class.query, "wantedCollections="); ok {
		if want, _, _ := strings.Cut(rest, "&"); e.collection != "" && e.collection != want {
			return false
		}
	}
	if k.dids == nil {
		return true
	}
	_, ok := k.dids[e.did]
	return ok
}

func (l *heldLog) part(k *skimmer) *heldPart {
	if p := l.parts[k.class.query]; p != nil && k.dids == nil {
		return p
	}
	p := &heldPart{}
	hash := xxhash.New()
	for i := range l.events {
		e := &l.events[i]
		if !e.passes(k) {
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
	if k.dids == nil {
		l.parts[k.class.query] = p
	} else {
		l.parts[fmt.Sprintf("%p", k)] = p
	}
	return p
}

func (l *heldLog) count(k *skimmer) int64 {
	if p := l.parts[fmt.Sprintf("%p", k)]; p != nil {
		return int64(len(p.stamps))
	}
	return int64(len(l.part(k).stamps))
}
