package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/events"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"millrace/consume"
	"millrace/consume/relaysim"
	"millrace/consume/relaysim/testwait"
	"millrace/dict"
	"millrace/replay"
	"millrace/replay/chain"
	"millrace/translate"
	"millrace/translate/verify"
	"millrace/translate/verify/identity"
)

// simKeys has the keys of relaysim's accounts, but for one account in five.
type simKeys struct{ t testing.TB }

func (k simKeys) Key(account uint64, did string) (atcrypto.PublicKey, identity.State) {
	if account%5 == 0 {
		return nil, identity.Unknown
	}
	key, err := relaysim.PublicKey(did)
	if err != nil {
		k.t.Error(err)
	}
	return key, identity.Current
}

func (simKeys) Refresh(uint64, string) bool { return false }
func (simKeys) Changed(uint64, string)      {}
func (simKeys) Flush() error                { return nil }

// signedFrames are frames of a world with faulty commits among them.
func signedFrames(t testing.TB, n int) (frames []consume.Frame) {
	t.Helper()
	r, err := relaysim.New(relaysim.Config{Seed: 4, Generate: 300, Accounts: 40, Signed: true, FaultyEvery: 5})
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range r.Take(n) {
		frames = append(frames, consume.Frame{Epoch: 1, Seq: int64(1 + i), Data: m.Payload})
	}
	return frames
}

// verifiedEvent is what the log must have of an event.
type verifiedEvent struct {
	Seq    int64
	Op     uint32
	Reason verify.Reason
}

// verifiedEvents verifies and translates one frame after the other.
func verifiedEvents(t testing.TB, frames []consume.Frame, drop bool) (events []verifiedEvent, reasons map[verify.Reason]int) {
	t.Helper()
	translator, err := translate.New(translate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var v verify.Verifier
	states, reasons := make(map[string]verify.State), make(map[verify.Reason]int)
	for _, f := range frames {
		reason := verify.Valid
		if did := string(v.Open(f.Data)); did != "" {
			key, _ := simKeys{t}.Key(chain.AccountOf([]byte(did)).Number(), did)
			verdict := v.Check(key, time.Now())
			reason, states[did] = verdict.Follow(states[did])
			reasons[reason]++
		}
		if drop && reason != verify.Valid && reason != verify.NoKey {
			continue
		}
		var b translate.Batch
		translator.AppendFrame(&b, f.Data)
		for _, e := range b.Events {
			events = append(events, verifiedEvent{f.Seq, e.Op, reason})
		}
	}
	return events, reasons
}

// failingChains fails when it is asked to, before it commits or after.
type failingChains struct {
	*chain.Store
	fail func() error
}

func (s failingChains) Commit(at chain.Position, changes []chain.Change) error {
	if err := s.fail(); err != nil {
		return err
	}
	return errors.Join(s.Store.Commit(at, changes), s.fail())
}

// TestVerificationModel takes signed frames through the pipeline, faulty ones among them. Power
// losses come before a Commit of chains, after it, and before the Append that follows.
// Each event in the log has the reason that its frame has if all are verified one after the other.
func TestVerificationModel(t *testing.T) {
	frames := signedFrames(t, 900)
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprintf("drop %t", drop), func(t *testing.T) {
			want, reasons := verifiedEvents(t, frames, drop)
			for _, r := range []verify.Reason{verify.Valid, verify.NoKey, verify.BadSignature, verify.BrokenChain, verify.RevOld, verify.MissingBlock} {
				if reasons[r] == 0 {
					t.Errorf("no frame is %s: %v", r, reasons)
				}
			}
			if diff := cmp.Diff(want, verifyWithCrashes(t, frames, drop)); diff != "" {
				t.Errorf("-want +got\n%.4000s", diff)
			}
		})
	}
}

// verifyWithCrashes returns what the log gets.
func verifyWithCrashes(t *testing.T, frames []consume.Frame, drop bool) (got []verifiedEvent) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dicts, err := dict.NewRegistry(dict.BuiltIn())
	if err != nil {
		t.Fatal(err)
	}
	defer dicts.Close()
	fs := vfs.NewCrashableMem()
	for life := 0; ; life++ {
		log, err := replay.Open(replay.Config{Dir: "log", FS: fs, Relay: "relay.example.com", Retention: time.Hour, Dictionaries: dicts})
		if err != nil {
			t.Fatal(err)
		}
		at := log.Progress()
		store, err := chain.Open(chain.Config{Dir: "chains", FS: fs, Sample: 1})
		if err == nil {
			err = store.Begin(chain.Position{Epoch: at.Epoch, Seq: at.Seq})
		}
		if err != nil {
			t.Fatal(err)
		}
		left := rng.IntN(12)
		fail := func() error { // called by the commit stage only
			if left--; left < 0 && life < 12 {
				return errCut
			}
			return nil
		}
		l := &notedLog[verifiedEvent]{Log: log, fail: fail, note: func(in replay.Input) (events []verifiedEvent, _ error) {
			for _, e := range in.Batch.Events {
				events = append(events, verifiedEvent{e.Seq, e.Op, verify.Reason(e.Unverified)})
			}
			return events, nil
		}}
		cfg := Config{Log: l, InFlightBytes: 8 << 20, hooks: testHooks{blockBytes: 1 << uint(8+rng.IntN(9))},
			Verify: &Verification{Keys: simKeys{t}, Chains: failingChains{store, fail}, Sample: 1, Drop: drop}}
		err = runPipelineWith(t, cfg, func(ctx context.Context, p *Pipeline) error {
			for _, f := range frames {
				if f.Seq <= at.Seq {
					continue
				}
				if err := p.Handle(ctx, f); err != nil {
					return nil // Run says why
				}
			}
			return nil
		})
		got = append(got, l.got...)
		next := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(3) * 50, RNG: rand.New(rand.NewPCG(seed, uint64(life)))})
		_ = log.Close()
		_ = store.Close()
		if err == nil {
			return got
		}
		if !errors.Is(err, errCut) && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		fs = next
	}
}

// committedChains notes what is committed.
type committedChains struct {
	Chains
	at      chain.Position
	changes int
}

func (c *committedChains) Commit(at chain.Position, changes []chain.Change) error {
	c.at, c.changes = at, c.changes+len(changes)
	return nil
}

// TestHeldChains: the changes of a frame are committed with the block that the log gets of it, or
// of a later one, and not before. They do not wait for ever.
func TestHeldChains(t *testing.T) {
	log, chains := &fakeLog{}, &committedChains{}
	p := newPipeline(t, Config{Log: log, InFlightBytes: 8 << 20})
	c := &committer{p: p, chains: &heldChains{cfg: &Verification{Keys: simKeys{t}, Chains: chains}}}
	seq := int64(0)
	// flush takes jobs, with an event (e) or without (-), and changes each.
	flush := func(jobs string, changes int, all bool, want int64) {
		t.Helper()
		for _, kind := range jobs {
			seq++
			b, err := log.Seal(replay.Input{Epoch: 1, FirstSeq: seq, LastSeq: seq, Batch: &translate.Batch{}})
			if err != nil {
				t.Fatal(err)
			}
			j := newJob()
			j.epoch, j.frames, j.to, j.chains = 1, []frameRef{{seq, 0}}, 1, make([]chain.Change, changes)
			if j.blocks, j.done = []*replay.Block{b}, make(chan struct{}); kind == 'e' {
				j.batch.Events = make([]translate.Event, 1)
			}
			c.jobs = append(c.jobs, j)
		}
		if err := c.flush(all); err != nil {
			t.Fatal(err)
		}
		if chains.at.Seq != want || int64(chains.changes) != want {
			t.Fatalf("%q: %d changes are committed, up to %v; want %d", jobs, chains.changes, chains.at, want)
		}
		if blocks := log.blocks(); len(blocks) > 0 && blocks[len(blocks)-1].last != want {
			t.Fatalf("%q: the log is at %d, want %d", jobs, blocks[len(blocks)-1].last, want)
		}
	}
	flush("-", 1, false, 0)
	flush("e", 1, false, 2)
	flush("e-", 1, false, 3)
	flush("--", 1, false, 3)
	flush("-", 1, true, 7)
	flush("-e-", 1, false, 9)
	flush("", 1, true, 10)
	chains.changes -= maxHeldChains // a job with many
	flush("-", maxHeldChains+1, false, 11)
}

// TestDroppedKeyStaysDropped: when the log has an #identity event, no crash brings back the key
// that it made go.
func TestDroppedKeyStaysDropped(t *testing.T) {
	dicts, err := dict.NewRegistry(dict.BuiltIn())
	if err != nil {
		t.Fatal(err)
	}
	defer dicts.Close()
	plc := &relaysim.PLC{}
	server := httptest.NewServer(plc)
	defer server.Close()
	const did = "did:plc:ewvi7nxzyoun6zhxrhs64oiz" // of identityFrame
	account := chain.AccountOf([]byte(did)).Number()
	openKeys := func(fs vfs.FS) *identity.Directory {
		t.Helper()
		keys, err := identity.Open(identity.Config{Dir: "keys", FS: fs, PLC: server.URL})
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	openLog := func(fs vfs.FS) *replay.Log {
		t.Helper()
		log, err := replay.Open(replay.Config{Dir: "log", FS: fs, Relay: "relay.example.com", Retention: time.Hour, Dictionaries: dicts})
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	fs := vfs.NewCrashableMem()
	keys := openKeys(fs)
	testwait.Eventually(t, time.Minute, "the key is known", func() bool {
		_, state := keys.Key(account, did)
		return state == identity.Current
	})
	if err := keys.Close(); err != nil { // which makes it durable
		t.Fatal(err)
	}
	keys, log := openKeys(fs), openLog(fs)
	store, err := chain.Open(chain.Config{Dir: "chains", FS: fs, Sample: 1})
	if err == nil {
		err = store.Begin(chain.Position{})
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = plc.SetFault("error")
	cfg := Config{Log: log, InFlightBytes: 8 << 20, Verify: &Verification{Keys: keys, Chains: store, Sample: 1}}
	if err := runPipelineWith(t, cfg, send(identityFrame(t, 1))); err != nil {
		t.Fatal(err)
	}
	crashed := fs.CrashClone(vfs.CrashCloneCfg{})
	if err := errors.Join(keys.Close(), store.Close(), log.Close()); err != nil {
		t.Fatal(err)
	}
	keys, log = openKeys(crashed), openLog(crashed)
	if at := log.Progress(); at.Seq != 1 {
		t.Errorf("the log is at %+v", at)
	}
	if _, state := keys.Key(account, did); state != identity.Unknown {
		t.Errorf("the key is %v", state)
	}
	if err := errors.Join(keys.Close(), log.Close()); err != nil {
		t.Fatal(err)
	}
}

// changingKeys is a directory whose answers a test sets.
type changingKeys struct {
	key      atcrypto.PublicKey
	state    identity.State
	pending  bool
	calls    string
	accounts map[uint64]string
}

func (k *changingKeys) note(call string, account uint64, did string) {
	k.calls += call
	k.accounts[account] = did
}

func (k *changingKeys) Key(account uint64, did string) (atcrypto.PublicKey, identity.State) {
	k.note("k", account, did)
	return k.key, k.state
}

func (k *changingKeys) Refresh(account uint64, did string) bool {
	k.note("r", account, did)
	return k.pending
}

func (k *changingKeys) Changed(account uint64, did string) { k.note("c", account, did) }
func (k *changingKeys) Flush() error                       { return nil }

func newTestChecker(keys Keys, sample uint64) *checker {
	return &checker{cfg: &Verification{Keys: keys, Sample: sample}, now: time.Now, logger: slog.New(slog.DiscardHandler)}
}

// TestKeys: the state of a key decides whether a signature is bad, and which calls the directory
// gets. A signature that may be of a newer key is not bad.
func TestKeys(t *testing.T) {
	translator, err := translate.New(translate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var commit []byte
	var did string
	for _, f := range signedFrames(t, 300) {
		var v verify.Verifier
		if _, ok := relaysim.InjectFault("foreign-key", f.Data, time.Now()); ok {
			if did = string(v.Open(f.Data)); did != "" {
				key, _ := relaysim.PublicKey(did)
				if verdict := v.Check(key, time.Now()); verdict.Reason == verify.Valid {
					commit = f.Data
					break
				}
			}
		}
	}
	forged, ok := relaysim.InjectFault("foreign-key", commit, time.Now())
	if !ok {
		t.Fatal("no commit")
	}
	key, err := relaysim.PublicKey(did)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		frame []byte
		keys  changingKeys
		want  verify.Reason
		calls string
	}{
		"good":                      {commit, changingKeys{key: key, state: identity.Current}, verify.Valid, "k"},
		"good, of an expired key":   {commit, changingKeys{key: key, state: identity.Stale}, verify.Valid, "k"},
		"good, of an unknown key":   {commit, changingKeys{}, verify.NoKey, "k"},
		"forged, of an unknown key": {forged, changingKeys{}, verify.NoKey, "k"},
		"forged":                    {forged, changingKeys{key: key, state: identity.Current}, verify.BadSignature, "kr"},
		"of a newer key, maybe":     {forged, changingKeys{key: key, state: identity.Current, pending: true}, verify.NoKey, "kr"},
		"expired, and not of it":    {forged, changingKeys{key: key, state: identity.Stale}, verify.NoKey, "kr"},
		"no key":                    {commit, changingKeys{state: identity.Absent}, verify.BadSignature, "k"},
		"of an identity":            {identityFrame(t, 1).Data, changingKeys{}, verify.Valid, "c"},
		"of an account":             {accountFrame(t, 1, did, "deleted", time.Now()).Data, changingKeys{}, verify.Valid, ""},
	} {
		tc.keys.accounts = make(map[uint64]string)
		c := newTestChecker(&tc.keys, 1)
		var b translate.Batch
		translator.AppendFrame(&b, tc.frame)
		got := verify.Valid
		for _, found := range c.check(nil, tc.frame, 1, &b, 0) {
			got = found.verdict.Reason
			if found.account != chain.AccountOf([]byte(did)) || found.to != len(b.Events) {
				t.Errorf("%s: %+v", name, found)
			}
		}
		if got != tc.want || tc.keys.calls != tc.calls {
			t.Errorf("%s: %s, calls %q; want %s, %q", name, got, tc.keys.calls, tc.want, tc.calls)
		}
		for account, did := range tc.keys.accounts {
			if account != chain.AccountOf([]byte(did)).Number() {
				t.Errorf("%s: %s is account %d", name, did, account)
			}
		}
	}
}

// TestSample: of one account in so many all frames are verified, of the others none. Their changes
// of identity are none of ours.
func TestSample(t *testing.T) {
	keys := &changingKeys{accounts: make(map[uint64]string)}
	c := newTestChecker(keys, 3)
	translator, err := translate.New(translate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	checked, left := 0, 0
	for _, f := range append(signedFrames(t, 300), identityFrame(t, 301)) {
		var b translate.Batch
		translator.AppendFrame(&b, f.Data)
		var v verify.Verifier
		did := v.Open(f.Data)
		want := 0
		if did != nil && chain.AccountOf(did).Number()%3 == 0 {
			want = 1
		}
		if n := len(c.check(nil, f.Data, f.Seq, &b, 0)); n != want {
			t.Fatalf("%q: %d checks, want %d", did, n, want)
		}
		checked, left = checked+want, left+1-want
	}
	if checked == 0 || left == 0 {
		t.Errorf("%d checked, %d not", checked, left)
	}
	for account := range keys.accounts {
		if account%3 != 0 {
			t.Errorf("the directory is asked for account %d", account)
		}
	}
}

// TestUnreadableCommit: a commit that translation serves and the verifier cannot read fails.
func TestUnreadableCommit(t *testing.T) {
	var head bytes.Buffer
	if err := (&events.EventHeader{Op: events.EvtKindMessage, MsgType: "#commit"}).MarshalCBOR(&head); err != nil {
		t.Fatal(err)
	}
	bad := append(bytes.Clone(deletesFrame(t, 1, 2).Data), "hprevData\x01"...)
	bad[head.Len()]++ // one member more
	translator, err := translate.New(translate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var b translate.Batch
	translator.AppendFrame(&b, bad)
	c := newTestChecker(&changingKeys{accounts: make(map[uint64]string)}, 1)
	found := c.check(nil, bad, 1, &b, 0)
	if len(b.Events) != 2 || len(found) != 1 || found[0].verdict.Reason != verify.InvalidFrame || found[0].to != 2 {
		t.Errorf("%d events, found %+v", len(b.Events), found)
	}
}

// TestVerifierPanics: a frame on which the verifier panics fails, and the next is verified.
func TestVerifierPanics(t *testing.T) {
	translator, err := translate.New(translate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	frame := signedFrames(t, 1)[0].Data
	var b translate.Batch
	translator.AppendFrame(&b, frame)
	c := newTestChecker(nil, 1) // no directory: it panics
	found := c.check(nil, frame, 1, &b, 0)
	if len(b.Events) == 0 || len(found) != 1 || found[0].verdict.Reason != verify.InvalidFrame || found[0].to != len(b.Events) {
		t.Errorf("%d events, found %+v", len(b.Events), found)
	}
	c.cfg.Keys = simKeys{t}
	if found = c.check(nil, frame, 1, &b, 0); len(found) != 1 || found[0].verdict.Reason == verify.InvalidFrame {
		t.Errorf("found %+v", found)
	}
}
