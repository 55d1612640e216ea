package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// A viewer has leastFollows to mostFollows follows: about a thousand.
const leastFollows, mostFollows = 900, 1100

var errNoViewer = errors.New("no account has about a thousand follows: more accounts are needed")

// viewers calls do as each does, and returns the viewers and the number of follows.
func (f follows) viewers(do func(actor uint64, subjects []uint64) error) (viewers []uint64, edges int, err error) {
	err = f.each(func(actor uint64, subjects []uint64) error {
		if edges += len(subjects); len(subjects) >= leastFollows && len(subjects) <= mostFollows {
			viewers = append(viewers, actor)
		}
		return do(actor, subjects)
	})
	if err == nil && len(viewers) == 0 {
		err = errNoViewer
	}
	return viewers, edges, err
}

// graphMaps measures Go maps of UIDs.
func graphMaps(f follows, d time.Duration, out io.Writer) error {
	follow, followers := map[uint64]map[uint64]struct{}{}, map[uint64]map[uint64]struct{}{}
	put := func(m map[uint64]map[uint64]struct{}, of, member uint64) {
		if m[of] == nil {
			m[of] = map[uint64]struct{}{}
		}
		m[of][member] = struct{}{}
	}
	viewers, edges, err := f.viewers(func(actor uint64, subjects []uint64) error {
		for _, subject := range subjects {
			put(follow, actor, subject)
			put(followers, subject, actor)
		}
		return nil
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  Go maps: %s accounts, %s follows\n", grouped(f.accounts), grouped(edges))
	if err := printResident(out, "of Go maps"); err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(3, 4))
	n, members, began := 0, 0, time.Now()
	for ; time.Since(began) < d; n++ {
		of := followers[graphUID(uint64(r.IntN(500)))]
		for uid := range follow[viewers[r.IntN(len(viewers))]] {
			if _, found := of[uid]; found {
				members++
			}
		}
	}
	fmt.Fprintf(out, "  %s social proofs a second, %d members each\n", grouped(float64(n)/time.Since(began).Seconds()), members/n)
	return nil
}

// graphRedis measures Redis sets and SINTERCARD over one connection, eight requests at a time.
func graphRedis(ctx context.Context, f follows, d time.Duration, out io.Writer) error {
	program, err := exec.LookPath("redis-server")
	if err != nil {
		fmt.Fprintln(out, "  SKIPPED: there is no redis-server (Debian: apt-get install redis-server)")
		return nil
	}
	dir, err := os.MkdirTemp("", "bench-redis")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "socket")
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p, err := startProcess(ctx, program, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	if err != nil {
		return err
	}
	defer func() { stop(); <-p.done }()
	c, err := dialRedis(ctx, socket)
	if err != nil {
		return err
	}
	defer c.conn.Close()
	viewers, edges, err := f.viewers(func(actor uint64, subjects []uint64) error {
		for _, subject := range subjects {
			c.send("SADD", "o"+strconv.FormatUint(actor, 10), strconv.FormatUint(subject, 10))
			c.send("SADD", "i"+strconv.FormatUint(subject, 10), strconv.FormatUint(actor, 10))
		}
		if c.pending > 2000 {
			return c.receive()
		}
		return nil
	})
	if err = errors.Join(err, c.receive()); err != nil {
		return err
	}
	before, err := p.usage()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  Redis: %s accounts, %s follows, resident %s bytes\n", grouped(f.accounts), grouped(edges), grouped(before.rss))
	r := rand.New(rand.NewPCG(3, 4))
	n := 0
	for began := time.Now(); time.Since(began) < d; n += 8 {
		for range 8 {
			viewer, subject := viewers[r.IntN(len(viewers))], graphUID(uint64(r.IntN(500)))
			c.send("SINTERCARD", "2", "o"+strconv.FormatUint(viewer, 10), "i"+strconv.FormatUint(subject, 10))
		}
		if err := c.receive(); err != nil {
			return err
		}
	}
	after, err := p.usage()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  %s SINTERCARD a second of its CPU\n", grouped(float64(n)/(after.cpu-before.cpu).Seconds()))
	return nil
}

// redisConn sends commands and counts the answers to come.
type redisConn struct {
	conn    net.Conn
	w       *bufio.Writer
	r       *bufio.Reader
	pending int
}

func dialRedis(ctx context.Context, socket string) (*redisConn, error) {
	for range 100 {
		if conn, err := net.Dial("unix", socket); err == nil {
			return &redisConn{conn: conn, w: bufio.NewWriterSize(conn, 1<<20), r: bufio.NewReader(conn)}, nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("redis-server did not listen within 10 s")
}

func (c *redisConn) send(words ...string) {
	fmt.Fprintf(c.w, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(c.w, "$%d\r\n%s\r\n", len(word), word)
	}
	c.pending++
}

// receive flushes, and reads all answers; they must be numbers.
func (c *redisConn) receive() error {
	if err := c.conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if err := c.w.Flush(); err != nil {
		return err
	}
	for ; c.pending > 0; c.pending-- {
		line, err := c.r.ReadString('\n')
		if err != nil {
			return fmt.Errorf("read from Redis: %w", err)
		}
		if line[0] != ':' {
			return fmt.Errorf("redis answered %q", line)
		}
	}
	return nil
}
