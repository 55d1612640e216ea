package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	bareWriteBytes = 64 << 10
	bareBytes      = 4 << 30
)

// measureBare returns how many bytes a second go through a loopback socket.
func measureBare(ctx context.Context) (rate float64, err error) {
	frame := append([]byte{0x82, 126, 0xff, 0xfc}, make([]byte, bareWriteBytes-4)...)
	got, err := bareSocket(ctx, frame, bareBytes)
	if err != nil {
		return 0, fmt.Errorf("bare socket: %w", err)
	}
	return float64(got.bytes) / got.took.Seconds(), nil
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
