package main

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"millrace/replay"
)

// newDaemonError builds a daemon that is expected not to start, and returns why.
func newDaemonError(t *testing.T, flags ...string) error {
	t.Helper()
	cfg := serveConfig(t, append([]string{"--listen", "127.0.0.1:0", "--metrics-listen", "", "--min-free-disk", "0"}, flags...))
	d, err := newDaemon(t.Context(), cfg, newLogger(cfg, testWriter{t}))
	if err == nil {
		d.close()
	}
	return err
}

// A log goes on with its own relay only, unless the operator begins a new epoch. Then positions of
// both relays stay valid, and the seam is a gap that readers are informed of.
func TestAnotherRelay(t *testing.T) {
	t.Parallel()
	const frames = 300
	first := startRelaysim(t, "--frames", strconv.Itoa(frames), "--wait-for-consumer", "--first-seq", "5000")
	second := startRelaysim(t, "--frames", strconv.Itoa(frames), "--wait-for-consumer", "--seed", "2")
	dir := t.TempDir()
	d := startDaemon(t, first.url, dir)
	waitFor(t, "the first relay's frames", func() bool { return d.log.Progress().Seq == 5000+frames-1 })
	d.mustStop(t)

	err := newDaemonError(t, "--relay", second.url, "--data-dir", dir)
	if !errors.Is(err, replay.ErrRelayMismatch) || !strings.Contains(err.Error(), "--new-epoch") {
		t.Fatalf("another relay: %v, want it refused with a word about --new-epoch", err)
	}
	err = newDaemonError(t, "--relay", first.url, "--data-dir", dir, "--relay-cursor", "5001")
	var usage usageError
	if !errors.As(err, &usage) || !strings.Contains(err.Error(), "--new-epoch") {
		t.Fatalf("--relay-cursor below the position: %v, want it refused with a word about --new-epoch", err)
	}

	d = startDaemon(t, second.url, dir, "--new-epoch", "--relay-cursor", "0")
	waitFor(t, "the second relay's frames", func() bool { return d.log.Progress().Epoch == 2 && d.log.Progress().Seq == frames })
	d.mustStop(t)
	// The log is the second relay's now, and goes on.
	d = startDaemon(t, second.url, dir, "--relay-cursor", "0")
	want := readTruth(t, first.truth)
	for _, e := range readTruth(t, second.truth) {
		e.Epoch = 1
		want = append(want, e)
	}
	got := readAll(t, d.addr, "cursor=0", len(want))
	checkExact(t, "the log of two relays", got, want)
	if gaps := d.log.Range().Gaps; len(gaps) != 1 || gaps[0].From.Stream != replay.StreamOf(hostOf(t, first.url), 1) ||
		gaps[0].To.Stream != replay.StreamOf(hostOf(t, second.url), 2) {
		t.Errorf("gaps %v, want one between the relays", gaps)
	}
	// A position of the first relay still names its place.
	at := replay.StreamOf(hostOf(t, first.url), 1).String() + "-" + strconv.FormatInt(want[10].Seq, 10) + "-" + strconv.Itoa(int(want[10].Op))
	if after := readAll(t, d.addr, "cursor="+at, len(want)-11); after[0].Seq != want[11].Seq {
		t.Errorf("after %s comes seq %d, want %d", at, after[0].Seq, want[11].Seq)
	}
}

func hostOf(t *testing.T, url string) string {
	t.Helper()
	return strings.TrimPrefix(url, "ws://")
}
