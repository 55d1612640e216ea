package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/google/go-cmp/cmp"

	"millrace/consume/relaysim"
	"millrace/translate"
	"millrace/translate/verify"
	"millrace/translate/verify/identity"
)

// verifiedWorld is a relay whose accounts are in a directory.
type verifiedWorld struct {
	t     *testing.T
	relay *testRelay
	plc   *relaysim.PLC
	url   string // of the directory
	dir   string
	later atomic.Int64 // how far the clock is ahead
}

func newVerifiedWorld(t *testing.T) *verifiedWorld {
	w := &verifiedWorld{t: t, relay: newTestRelay(t), plc: new(relaysim.PLC), dir: t.TempDir()}
	server := httptest.NewServer(w.plc)
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

// start starts a daemon. With forget it has no log, and all else that is not of the directory is
// gone.
func (w *verifiedWorld) start(forget bool, flags ...string) *testDaemon {
	w.t.Helper()
	w.relay.left(w.t)
	if forget {
		for _, store := range []string{"log", "intern", "chains"} {
			if err := os.RemoveAll(filepath.Join(w.dir, store)); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	now := func() time.Time { return time.Now().Add(time.Duration(w.later.Load())) }
	return startDaemonOn(w.t, testHooks{now: now}, w.relay.url, w.dir, append([]string{"--plc", w.url}, flags...)...)
}

// accountNumber is what the pipeline knows an account by.
func accountNumber(did string) uint64 {
	sum := sha256.Sum256([]byte(did))
	return binary.BigEndian.Uint64(sum[:])
}

// awaitKeys waits until a server knows the keys of accounts as the directory has them now.
func awaitKeys(t *testing.T, d *testDaemon, keyOf map[string]string) {
	t.Helper()
	for did, other := range keyOf {
		want, err := relaysim.PublicKey(other)
		if err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the key of "+did, func() bool {
			key, state := d.verifier.keys.Key(accountNumber(did), did)
			return state == identity.Current && key.Equal(want)
		})
	}
}

// servedEvent is an event on the extended wire.
type servedEvent struct {
	DID        string
	Kind       string
	Unverified string
	Cursor     string
	Commit     struct{ Rev string }
}

func parseServed(t *testing.T, lines []string) (events []servedEvent) {
	t.Helper()
	for _, line := range lines {
		if !isEvent([]byte(line)) {
			continue
		}
		var e servedEvent
		fromJSON(t, line, &e)
		events = append(events, e)
	}
	return events
}

// expected returns the reason of each event of frames, as kind, DID and reason, and how many frames
// failed for each. The accounts have their keys.
func expected(t *testing.T, frames [][]byte) (events []string, frameReasons map[verify.Reason]int) {
	t.Helper()
	translator, err := translate.New(translate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var v verify.Verifier
	states, frameReasons := make(map[string]verify.State), make(map[verify.Reason]int)
	for _, frame := range frames {
		reason := ""
		if did := string(v.Open(frame)); did != "" {
			key, err := relaysim.PublicKey(did)
			if err != nil {
				t.Fatal(err)
			}
			verdict := v.Check(key, time.Now())
			var r verify.Reason
			r, states[did] = verdict.Follow(states[did])
			if frameReasons[r]++; r != verify.Valid {
				reason = r.String()
			}
		}
		var b translate.Batch
		translator.AppendFrame(&b, frame)
		for i, e := range b.Events {
			events = append(events, fmt.Sprint(e.Kind, " ", string(b.DID(i)), " ", reason))
		}
	}
	return events, frameReasons
}

// TestVerification: each kind of faulty commit has its reason on the extended wire, live, replayed
// and after a restart, and in the metrics. With drop its events are not served, and counted.
func TestVerification(t *testing.T) {
	w := newVerifiedWorld(t)
	sim, err := relaysim.New(relaysim.Config{Seed: 7, Generate: 300, Accounts: 30, Signed: true, FaultyEvery: 4})
	if err != nil {
		t.Fatal(err)
	}
	translator, err := translate.New(translate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var frames [][]byte
	var last int64
	keys := make(map[string]string)
	for i, m := range sim.Take(700) {
		var b translate.Batch
		if translator.AppendFrame(&b, m.Payload); len(b.Events) > 0 && b.Events[0].Kind == translate.KindIdentity {
			continue // after which the key is not known for a moment
		}
		frames, last = append(frames, m.Payload), int64(1+i)
		var v verify.Verifier
		if did := string(v.Open(m.Payload)); did != "" {
			keys[did] = did
		}
	}
	delete(keys, "did:plc:xxxxxxxxxxxxxxxxxxxxxxxx") // of the fault other-did
	send := func(d *testDaemon) {
		t.Helper()
		for _, frame := range frames {
			w.relay.send <- frame
		}
		waitFor(t, "all frames", func() bool { return d.log.Progress().Seq == last })
	}
	d := w.start(false, "--verify=flag")
	send(d)
	awaitKeys(t, d, keys)
	d.mustStop(t)

	want, reasons := expected(t, frames)
	for _, fault := range relaysim.CommitFaults() {
		found := false
		for r := range reasons {
			found = found || r.String() == fault.Reason
		}
		if !found {
			t.Errorf("no frame is %s for the fault %s", fault.Reason, fault.Name)
		}
	}
	const query = "cursor=0&extended=true&wantedKinds=commit,identity,account,sync"
	got := func(d *testDaemon, n int) (events []string) {
		t.Helper()
		for _, e := range parseServed(t, subscribe(t, d.addr, query).lines(t, n+1)) { // and "live"
			events = append(events, fmt.Sprint(e.Kind, " ", e.DID, " ", e.Unverified))
		}
		return events
	}
	d = w.start(true, "--verify=flag")
	send(d)
	if diff := cmp.Diff(want, got(d, len(want))); diff != "" {
		t.Errorf("flagged: -want +got\n%.3000s", diff)
	}
	for reason, n := range reasons {
		if c := d.counter(t, "millrace_verify_frames_total", reason.String()); c != float64(n) {
			t.Errorf("%v frames are counted as %s, want %d", c, reason, n)
		}
	}
	d.mustStop(t)
	d = w.start(false, "--verify=off")
	if diff := cmp.Diff(want, got(d, len(want))); diff != "" {
		t.Errorf("replayed without verification: -want +got\n%.3000s", diff)
	}
	d.mustStop(t)

	d = w.start(true, "--verify=drop", "--references=on")
	send(d)
	served := slices.DeleteFunc(slices.Clone(want), func(e string) bool { return e[len(e)-1] != ' ' })
	if diff := cmp.Diff(served, got(d, len(served))); diff != "" {
		t.Errorf("dropped: -want +got\n%.3000s", diff)
	}
	if n := d.counter(t, "millrace_verify_left_out_events_total"); n != float64(len(want)-len(served)) || int64(n) != d.pipeline.LeftOut() {
		t.Errorf("%v events are counted as left out, want %d", n, len(want)-len(served))
	}
}

// TestKeyRotation: a signature with a key that the server does not know yet is not called bad. It
// is, once the key is of the past. So it is for a rotation with an #identity event, and for one
// without.
func TestKeyRotation(t *testing.T) {
	w := newVerifiedWorld(t)
	sim, err := relaysim.New(relaysim.Config{Seed: 9, Generate: 300, Accounts: 4, Signed: true})
	if err != nil {
		t.Fatal(err)
	}
	// Eight commits of an account, with a frame of another between two of them.
	type commit struct {
		seq   int
		frame []byte
	}
	byAccount := make(map[string][]commit)
	var commits [][]byte
	did := ""
	for i, m := range sim.Take(300) {
		var v verify.Verifier
		account := string(v.Open(m.Payload))
		if key, err := relaysim.PublicKey(account); account == "" || err != nil || v.Check(key, time.Now()).Reason != verify.Valid {
			byAccount[account] = nil
			continue
		}
		of := append(byAccount[account], commit{i, m.Payload})
		if byAccount[account] = of; len(of) >= 8 && of[len(of)-3].seq > of[len(of)-4].seq+1 {
			did = account
			for _, c := range of[len(of)-8:] {
				commits = append(commits, c.frame)
			}
			break
		}
	}
	if did == "" {
		t.Fatal("no account has such commits")
	}
	// asOther is a commit that the key of another account has signed.
	asOther := func(frame []byte) []byte {
		t.Helper()
		forged, ok := relaysim.InjectFault("foreign-key", frame, time.Now())
		if !ok {
			t.Fatal("no commit")
		}
		return forged
	}
	d := w.start(false, "--verify=flag")
	s := subscribe(t, d.addr, "extended=true&cursor=0")
	translator, err := translate.New(translate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var seq int64
	send := func(frame []byte, reasons ...string) {
		t.Helper()
		var b translate.Batch
		translator.AppendFrame(&b, frame)
		if seq = b.Events[0].Seq; seq <= d.log.Progress().Seq {
			t.Fatalf("frame %d comes late", seq)
		}
		w.relay.send <- frame
		for n := len(b.Events); n > 0; {
			for _, e := range parseServed(t, s.lines(t, 1)) {
				if n--; !slices.Contains(reasons, e.Unverified) {
					t.Errorf("frame %d: %q, want one of %q", seq, e.Unverified, reasons)
				}
			}
		}
	}
	// A key is fetched again after five minutes at the earliest.
	rotate := func(to string) {
		w.later.Add(int64(6 * time.Minute))
		w.plc.SetKeyOf(did, to)
	}
	other := did + "x"
	send(commits[0], "no_key")
	awaitKeys(t, d, map[string]string{did: did})
	send(commits[1], "")
	rotate(other)
	send(asOther(commits[2]), "no_key")
	awaitKeys(t, d, map[string]string{did: other})
	send(asOther(commits[3]), "")
	send(commits[4], "bad_signature")
	rotate(did)
	changed := &comatproto.SyncSubscribeRepos_Identity{Did: did, Seq: seq + 1, Time: "2026-11-20T00:00:00Z"}
	send(frameOf(t, seq+1, "#identity", changed).Data, "")
	awaitKeys(t, d, map[string]string{did: did})
	send(commits[5], "broken_chain") // as commits[4] was not taken for its own
	send(commits[6], "")
	send(asOther(commits[7]), "bad_signature")
}

// TestDirectoryFails: whatever a directory does, frames become durable meanwhile, and none is taken
// for verified.
func TestDirectoryFails(t *testing.T) {
	sim, err := relaysim.New(relaysim.Config{Seed: 7, Generate: 200, Accounts: 100, Signed: true})
	if err != nil {
		t.Fatal(err)
	}
	messages := sim.Take(200)
	for _, fault := range relaysim.PLCFaults() {
		t.Run(fault, func(t *testing.T) {
			w := newVerifiedWorld(t)
			if err := w.plc.SetFault(fault); err != nil {
				t.Fatal(err)
			}
			d := w.start(false, "--verify=flag")
			for _, m := range messages {
				w.relay.send <- m.Payload
			}
			waitFor(t, "all frames", func() bool { return d.log.Progress().Seq == int64(len(messages)) })
			if n := d.counter(t, "millrace_verify_frames_total", verify.Valid.String()); n > 0 && fault != "slow" {
				t.Errorf("%v frames are verified", n)
			}
			if n := d.counter(t, "millrace_verify_frames_total"); n < 100 {
				t.Errorf("%v frames are counted", n)
			}
			if err := d.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}
