package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// bareResources is what the machine gives without us.
type bareResources struct {
	socket float64       // bytes a second through a loopback socket in writes of 64 KiB
	sync   time.Duration // median of an fdatasync after a write of 64 KiB
}

const (
	bareWriteBytes = 64 << 10
	bareTime       = 2 * time.Second
	bareSyncs      = 500
)

// measureBare measures them; the file is made in dir.
func measureBare(ctx context.Context, dir string) (b bareResources, err error) {
	if b.socket, err = carried(ctx, bareTime); err != nil {
		return b, fmt.Errorf("bare socket: %w", err)
	}
	if b.sync, err = syncTime(dir, bareSyncs); err != nil {
		return b, fmt.Errorf("bare sync: %w", err)
	}
	return b, nil
}

// carried is how many bytes a second pass from a writer on one end of a loopback connection and
// reads on the other.
func carried(ctx context.Context, d time.Duration) (float64, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	var read int64
	g, ctx := errgroup.WithContext(ctx)
	begun := time.Now()
	g.Go(func() error {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", listener.Addr().String())
		if err != nil {
			return err
		}
		defer conn.Close()
		for buf := make([]byte, bareWriteBytes); time.Since(begun) < d; {
			if _, err := conn.Write(buf); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() error {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		defer conn.Close()
		for buf := make([]byte, clientBuffer); ; {
			n, err := conn.Read(buf)
			read += int64(n)
			if err == io.EOF { //nolint:errorlint // sockets do not wrap it
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
	err = g.Wait()
	return float64(read) / time.Since(begun).Seconds(), err
}

// syncTime is the median of n syncs.
func syncTime(dir string, n int) (time.Duration, error) {
	f, err := os.Create(filepath.Join(dir, "sync"))
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	buf := make([]byte, bareWriteBytes)
	var took []time.Duration
	for range n {
		if _, err := f.Write(buf); err != nil {
			return 0, err
		}
		begun := time.Now()
		if err := syncData(f); err != nil {
			return 0, err
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	return took[n/2], nil
}
