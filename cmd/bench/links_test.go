package main

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"millrace/replay/references"
)

// TestLinksCommand runs every part of the command, small.
func TestLinksCommand(t *testing.T) {
	var out bytes.Buffer
	lag := os.Getenv("MILLRACE_TEST_LONG") != "" // it builds two programs
	if err := run(t.Context(), []string{"links", "-dir", t.TempDir(), "-edges", "3000", "-requests", "50", "-lag=" + strconv.FormatBool(lag)}, &out); err != nil {
		t.Fatal(err)
	}
	if has := strings.Contains(out.String(), "at 2,000 frames/s"); has != lag {
		t.Errorf("the lag is measured: %t", has)
	}
	for _, row := range []string{"links/s made, .*", "getBacklinksCount, .*", "first page of getBacklinks, .*", "bytes a link of the whole .*",
		"s to build links from 2,[0-9]{3} rows, .*"} {
		if !regexp.MustCompile(`(?m)^\| ` + row + ` +\| [1-9.0,]*[1-9][0-9.,]* +\|$`).Match(out.Bytes()) {
			t.Errorf("no row of %s", row)
		}
	}
	if t.Failed() {
		t.Log(out.String())
	}
	for _, args := range [][]string{{"-edges", "10"}, {"-requests", "0"}, {"extra"}} {
		if err := runLinks(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

// TestLinkStream compares what the stream says of itself with its changes. A delete is of a record
// that is alive, and the counts of subjects are those of references.
func TestLinkStream(t *testing.T) {
	l := newLinkStream(100)
	alive, made := map[uint64]int{}, map[uint64]uint32{}
	deletes, last := 0, int64(0)
	for _, c := range l.batch(20_000).Changes {
		if c.Seq <= last {
			t.Fatalf("seq %d after %d", c.Seq, last)
		}
		last = c.Seq
		if _, known := alive[c.Record]; known != (c.Operation == references.Delete) {
			t.Fatalf("%v of record %x, which is alive: %t", c.Operation, c.Record, known)
		}
		if c.Operation == references.Delete {
			deletes++
			delete(alive, c.Record)
			continue
		}
		alive[c.Record] = len(c.References)
		for _, r := range c.References {
			made[r.Subject]++
		}
	}
	edges := 0
	for _, n := range alive {
		edges += n
	}
	if int64(len(alive)) != l.live || int64(edges) != l.alive || deletes < 600 || deletes > 1000 {
		t.Errorf("%d records with %d links are alive; the stream has %d with %d; %d deletes", len(alive), edges, l.live, l.alive, deletes)
	}
	for i, s := range l.subjects {
		if made[s.uid] != s.links {
			t.Errorf("subject %d has %d links, and %d by its count", i, made[s.uid], s.links)
		}
	}
}
