package main

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"

	"millrace/consume/relaysim/pipenet"
)

// TestLimitListener: so many connections are accepted at once, and another one when one is closed,
// however often. A listener that is closed accepts none.
func TestLimitListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := pipenet.Listen()
		ln := limitListener(inner, 2)
		var accepted []net.Conn
		var ended error
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					ended = err
					return
				}
				accepted = append(accepted, c)
			}
		}()
		for range 5 {
			go func() { _, _ = inner.Dial(t.Context(), "", "") }()
		}
		want := func(n int) {
			t.Helper()
			if synctest.Wait(); len(accepted) != n {
				t.Fatalf("%d connections are accepted, want %d", len(accepted), n)
			}
		}
		want(2)
		second := accepted[1] // read before Close: the next connection is appended right after it
		for range 2 {
			second.Close() // safe twice
		}
		want(3)
		accepted[0].Close()
		want(4)
		if err := errors.Join(ln.Close(), ln.Close()); err != nil {
			t.Error(err)
		}
		accepted[2].Close()
		if want(4); !errors.Is(ended, net.ErrClosed) {
			t.Errorf("after Close: %v", ended)
		}
		// An Accept that fails takes no slot.
		broken := limitListener(inner, 1)
		for range 2 {
			if c, err := broken.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%v, %v", c, err)
			}
		}
	})
}
