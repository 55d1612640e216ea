package ingest

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/bluesky-social/indigo/atproto/atcrypto"

	"millrace/replay/chain"
	"millrace/translate"
	"millrace/translate/verify"
	"millrace/translate/verify/identity"
)

// Verification is how #commit and #sync frames are verified (docs/verification.md).
type Verification struct {
	Keys   Keys
	Chains Chains
	Sample uint64 // one account in so many
	Drop   bool   // leave out the events of frames that fail, but for want of a key
}

// Keys gives the signing keys of accounts, which it knows by chain.Account.Number.
// *identity.Directory implements it. Safe for concurrent use; nothing waits but Flush, which one
// goroutine calls.
type Keys interface {
	Key(account uint64, did string) (atcrypto.PublicKey, identity.State)
	Refresh(account uint64, did string) (pending bool)
	Changed(account uint64, did string)
	Flush() error // makes the drops of Changed durable
}

// Chains keeps the states of accounts. *chain.Store implements it. One goroutine calls Get and Set,
// in the relay's order, another Commit.
type Chains interface {
	Get(account chain.Account) (verify.State, error)
	Set(c chain.Change)
	Commit(at chain.Position, changes []chain.Change) error
}

// check is what was found in one frame.
type check struct {
	account  chain.Account
	verdict  verify.Verdict
	from, to int // its events in the batch
}

// checker verifies frames. One goroutine uses it.
type checker struct {
	cfg    *Verification
	now    func() time.Time
	v      verify.Verifier
	logger *slog.Logger
}

// check appends what is found in a frame whose events are those of b from one on. Of what is no
// #commit or #sync, or not of the sample, there is nothing. A frame on which the verifier panics is
// an invalid one, as no frame may stop the stream.
func (c *checker) check(dst []check, frame []byte, seq int64, b *translate.Batch, from int) (checks []check) {
	defer func() {
		if reason := recover(); reason != nil {
			c.v, checks = verify.Verifier{}, dst
			c.logger.Error("verifying a frame panicked; please report it", "seq", seq, "panic", fmt.Sprint(reason))
			if from < len(b.Events) {
				checks = append(dst, check{chain.AccountOf(b.DID(from)), verify.Verdict{Reason: verify.InvalidFrame}, from, len(b.Events)})
			}
		}
	}()
	did := c.v.Open(frame)
	if did == nil && from == len(b.Events) {
		return dst
	}
	if did == nil {
		did = b.DID(from)
	}
	found := check{account: chain.AccountOf(did), from: from, to: len(b.Events)}
	number := found.account.Number()
	if number%c.cfg.Sample != 0 {
		return dst
	}
	if from < len(b.Events) {
		switch b.Events[from].Kind {
		case translate.KindIdentity:
			c.cfg.Keys.Changed(number, string(did))
			return dst
		case translate.KindAccount:
			return dst
		}
	}
	found.verdict = c.verify(frame, string(did), number)
	return append(dst, found)
}

// verify verifies the frame that was opened.
func (c *checker) verify(frame []byte, did string, account uint64) verify.Verdict {
	key, state := c.cfg.Keys.Key(account, did)
	verdict := c.v.Check(key, c.now())
	switch {
	case verdict.Reason == verify.NoKey && state == identity.Absent:
		verdict.Reason = verify.BadSignature
	case verdict.Reason == verify.BadSignature && (c.cfg.Keys.Refresh(account, did) || state == identity.Stale):
		c.v.Open(frame)
		verdict = c.v.Check(nil, c.now()) // the key is as good as not known
	}
	return verdict
}

// follow compares the frames of j with what came before them, in the relay's order. It marks the
// events of those that fail, or removes them.
func (p *Pipeline) follow(j *job) error {
	v, failed := p.cfg.Verify, false
	for i := range j.checks {
		c := &j.checks[i]
		last, err := v.Chains.Get(c.account)
		if err != nil {
			return err
		}
		reason, next := c.verdict.Follow(last)
		if next != last {
			change := chain.Change{Account: c.account, Before: last, After: next}
			v.Chains.Set(change)
			j.chains = append(j.chains, change)
		}
		p.metrics.verified[reason].Inc()
		for e := range j.batch.Events[c.from:c.to] {
			j.batch.Events[c.from+e].Unverified = uint8(reason)
		}
		failed = failed || reason != verify.Valid
	}
	if failed && v.Drop {
		before := len(j.batch.Events)
		j.batch.Remove(func(e *translate.Event) bool {
			return e.Unverified != uint8(verify.Valid) && e.Unverified != uint8(verify.NoKey)
		})
		p.leftOut.Add(int64(before - len(j.batch.Events)))
	}
	j.checks = j.checks[:0]
	return nil
}

// LeftOut returns how many events were left out as their frames failed. Safe for concurrent use.
func (p *Pipeline) LeftOut() int64 { return p.leftOut.Load() }

// maxHeldChains bounds the changes of chains that wait for a block with events.
const maxHeldChains = 1 << 14

// heldChains are the changes of chains of frames that are not in the log. It belongs to the commit
// stage. A nil one holds nothing.
type heldChains struct {
	cfg     *Verification
	changes []chain.Change // in the relay's order
	ready   int            // how many of them are of blocks that are about to be appended
	at      chain.Position // of the last of these blocks
	newest  chain.Position // of the newest job
}

// add takes over the changes of a job.
func (h *heldChains) add(j *job) {
	if h != nil {
		h.changes = append(h.changes, j.chains...)
		h.newest = chain.Position{Epoch: j.epoch, Seq: j.frames[j.to-1].seq}
	}
}

// cover notes that the block of the newest job is about to be appended.
func (h *heldChains) cover() {
	if h != nil {
		h.at, h.ready = h.newest, len(h.changes)
	}
}

// full says whether no more changes should wait.
func (h *heldChains) full() bool { return h != nil && len(h.changes) > maxHeldChains }

// commit makes durable what belongs to the blocks that are about to be appended: the changes of
// chains, and the drop of each key whose account has an #identity event in them.
func (h *heldChains) commit() error {
	if h == nil {
		return nil
	}
	if err := h.cfg.Keys.Flush(); err != nil {
		return fmt.Errorf("flush the keys of accounts: %w", err)
	}
	if err := h.cfg.Chains.Commit(h.at, h.changes[:h.ready]); err != nil {
		return err
	}
	h.changes = append(h.changes[:0], h.changes[h.ready:]...)
	h.ready = 0
	return nil
}
