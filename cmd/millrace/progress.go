package main

import (
	"fmt"
	"io"
	"time"
)

// progressEvery is how often a long job on a store says how far it is.
const progressEvery = 2 * time.Second

// everySoOften calls print at most every progressEvery.
func everySoOften(print func()) func() {
	last := time.Now()
	return func() {
		if time.Since(last) >= progressEvery {
			last = time.Now()
			print()
		}
	}
}

// sayCount prints how many things are done at most every progressEvery.
func sayCount(w io.Writer, things string) func(done uint64) {
	var count uint64
	say := everySoOften(func() { fmt.Fprintf(w, "%d %s\n", count, things) })
	return func(done uint64) { count = done; say() }
}
