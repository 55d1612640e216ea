package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestSnowflake has the clock stand still, go back and jump: UIDs stay unique and ascend.
func TestSnowflake(t *testing.T) {
	milli := int64(1_783_000_000_000)
	s := snowflake{now: func() time.Time { return time.UnixMilli(milli) }, shard: 5}
	var last uint64
	for i := range 30_000 {
		switch {
		case i == 12_000:
			milli -= 60_000
		case i == 20_000:
			milli += 120_000
		case i%7000 == 0:
			milli++
		}
		uid := s.next()
		if uid <= last || uid>>12&1023 != 5 {
			t.Fatalf("UID %d: %x after %x", i, uid, last)
		}
		last = uid
	}
}

// TestTraffic checks that what is made is new and valid.
func TestTraffic(t *testing.T) {
	source, seen := newTraffic(), make(map[string]bool)
	b := newBatch(100)
	for range 50 {
		source.next(b)
		for i := range b.reqs {
			s := string(uri(&b.reqs[i]))
			if seen[s] || len(b.reqs[i].DID) != 32 || len(b.reqs[i].RecordKey) != 13 {
				t.Fatalf("%q is not new or not as expected", s)
			}
			seen[s] = true
		}
	}
}

// TestIntern runs every part of the command, small.
func TestIntern(t *testing.T) {
	var out bytes.Buffer
	args := []string{"intern", "-dir", t.TempDir(), "-workers", "2", "-time", "250ms",
		"-uris", "2000,4000"}
	if err := run(context.Background(), args, &out); err != nil {
		t.Fatal(err)
	}
	for _, s := range schemes() {
		if n := len(regexp.MustCompile(`\| `+regexp.QuoteMeta(s.name)+` +\| 2 +\| [1-9]`).FindAllString(out.String(), -1)); n != 2 && s.store == "" {
			t.Errorf("%d rows of %q", n, s.name)
		}
	}
	for _, want := range []string{"| 2000 ", "| 4000 "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no row %q in\n%s", want, out.String())
		}
	}
}

// TestInstances: Interners that share a store give the same UIDs.
func TestInstances(t *testing.T) {
	var out bytes.Buffer
	args := []string{"intern", "-only", "instances", "-store", "sim", "-instances", "1,2", "-run", "1s", "-block", "64"}
	if err := run(t.Context(), args, &out); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^\| 2 .*\| yes, [1-9]`).MatchString(out.String()) {
		t.Errorf("no UIDs in common:\n%s", &out)
	}
	all := []instance{{}, {}}
	for i := range all {
		all[i].sums.Store(0, uint64(7))
		all[i].sums.Store(1, uint64(i))
	}
	if got := sameUIDs(all); got != "NO, batch 1 differs" {
		t.Errorf("of UIDs that differ: %s", got)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"nope"}, {"intern", "-only", "nope"}, {"intern", "-workers", "0"}, {"intern", "extra"}} {
		if err := run(context.Background(), args, io.Discard); err == nil || errors.Is(err, flag.ErrHelp) {
			t.Errorf("%v: %v", args, err)
		}
	}
	if err := run(context.Background(), nil, io.Discard); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("no arguments: %v", err)
	}
}
