//go:build !linux

package main

import (
	"context"
	"errors"
	"io"
)

// runSubscribers needs /proc and epoll.
func runSubscribers(context.Context, []string, io.Writer) error {
	return errSubscribersLinux
}

func measureSubscribers(context.Context, string, io.Writer) ([]reachRow, error) {
	return nil, errSubscribersLinux
}

var errSubscribersLinux = errors.New("subscribers are measured on Linux only")
