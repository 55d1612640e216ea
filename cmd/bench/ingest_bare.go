package main

import (
	"context"
	"errors"
	"fmt"
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
	bareBytes      = 4 << 30
	bareSyncs      = 500
)

// measureBare measures the bare resources. It writes its file to dir.
func measureBare(ctx context.Context, dir string) (b bareResources, err error) {
	frame := append([]byte{0x82, 126, 0xff, 0xfc}, make([]byte, bareWriteBytes-4)...)
	got, err := bareSocket(ctx, frame, bareBytes)
	if err != nil {
		return b, fmt.Errorf("bare socket: %w", err)
	}
	b.socket = float64(got.bytes) / got.took.Seconds()
	if b.sync, err = syncTime(dir, bareSyncs); err != nil {
		return b, fmt.Errorf("bare sync: %w", err)
	}
	return b, nil
}

// bareSocket sends that many bytes of a subscription's own frames through a loopback connection, 64
// KiB a write. The same client reads both, so that they differ in the server alone.
func bareSocket(ctx context.Context, frames []byte, size int64) (streamed, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return streamed{}, err
	}
	defer ln.Close()
	var sender errgroup.Group
	sender.Go(func() error {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		defer conn.Close()
		for left, at := size, 0; left > 0 && err == nil; {
			n := int(min(bareWriteBytes, left, int64(len(frames)-at)))
			_, err = conn.Write(frames[at : at+n])
			left -= int64(n)
			at = (at + n) % len(frames)
		}
		return err
	})
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return streamed{}, err
	}
	c := &client{conn: conn, stop: context.AfterFunc(ctx, func() { conn.Close() }), buf: make([]byte, clientBuffer)}
	begun := time.Now()
	for err == nil {
		_, _, err = c.more() // until the end of the file
	}
	c.close()
	got := streamed{c.events, c.bytes, time.Since(begun)}
	return got, errors.Join(sender.Wait(), context.Cause(ctx))
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
