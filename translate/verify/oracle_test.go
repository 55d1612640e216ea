package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	comatproto "github.com/bluesky-social/indigo/api/atproto"
	"github.com/bluesky-social/indigo/atproto/atcrypto"
	"github.com/bluesky-social/indigo/atproto/repo"
	"github.com/bluesky-social/indigo/atproto/repo/mst"
	"github.com/ipld/go-car"

	"millrace/consume/relaysim"
	"millrace/translate"
)

func TestMain(m *testing.M) {
	// indigo's verification logs each commit that it looks at.
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	os.Exit(m.Run())
}

// testNow is a little after all that the tests' worlds do.
func testNow() time.Time { return time.Date(2026, 1, 1, 0, 10, 0, 0, time.UTC) }

// splitFrame returns the kind of a message and its body.
func splitFrame(message []byte) (kind translate.FrameKind, body []byte) {
	kind, _, ok := translate.ReadHeader(message)
	for n := 1; ok && n < len(message); n++ {
		d := translate.NewDecoder(message[:n])
		if d.Skip(); d.OK() {
			return kind, message[n:]
		}
	}
	return translate.FrameGarbage, nil
}

// decode reads a #commit with indigo, or returns nil for another frame.
func decode(tb testing.TB, message []byte) *comatproto.SyncSubscribeRepos_Commit {
	tb.Helper()
	kind, body := splitFrame(message)
	if kind != translate.FrameCommit {
		return nil
	}
	var c comatproto.SyncSubscribeRepos_Commit
	if err := c.UnmarshalCBOR(bytes.NewReader(body)); err != nil {
		tb.Fatal(err)
	}
	return &c
}

// errUndecoded is for frames and CARs that indigo does not decode, often for fields and blocks that
// nothing reads here.
var errUndecoded = errors.New("decode frame")

// readCAR reads all blocks, as indigo does.
func readCAR(b []byte) error {
	r, err := car.NewCarReader(bytes.NewReader(b))
	for err == nil {
		_, err = r.Next()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return errors.Join(errUndecoded, err)
}

// indigoCheck is what indigo says of a frame; no key: without the signature.
func indigoCheck(message []byte, key atcrypto.PublicKey) (err error) {
	defer func() {
		if p := recover(); p != nil { // indigo does not check prefix lengths in nodes
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	kind, body := splitFrame(message)
	var blocks []byte
	switch kind {
	case translate.FrameCommit:
		var c comatproto.SyncSubscribeRepos_Commit
		if err := c.UnmarshalCBOR(bytes.NewReader(body)); err != nil {
			return errors.Join(errUndecoded, err)
		}
		if err := readCAR(c.Blocks); err != nil {
			return err
		}
		if _, err := repo.VerifyCommitMessage(context.Background(), &c); err != nil {
			return err
		}
		blocks = c.Blocks
	case translate.FrameSync:
		var s comatproto.SyncSubscribeRepos_Sync
		if err := s.UnmarshalCBOR(bytes.NewReader(body)); err != nil {
			return errors.Join(errUndecoded, err)
		}
		blocks = s.Blocks
	default:
		return errors.New("neither #commit nor #sync")
	}
	commit, _, err := repo.LoadCommitFromCAR(context.Background(), bytes.NewReader(blocks))
	if err != nil || key == nil {
		return err
	}
	return commit.VerifySignature(key)
}

// check verifies a frame, without what came before it.
func check(message []byte, key atcrypto.PublicKey, now time.Time) Verdict {
	var v Verifier
	v.Open(message)
	return v.Check(key, now)
}

// used has verified other frames before.
var used Verifier

// compare holds the verdict on a frame against indigo's, but for the differences, and against that
// of a Verifier that has verified other frames.
func compare(tb testing.TB, message []byte, key atcrypto.PublicKey, now time.Time) Verdict {
	tb.Helper()
	var v Verifier
	v.Open(message)
	verdict := v.Check(key, now)
	used.Open(message)
	if again := used.Check(key, now); again.Reason != verdict.Reason {
		tb.Errorf("%v, after other frames %v", verdict.Reason, again.Reason)
	}
	ours := verdict.Reason == Valid || verdict.Reason == NoKey
	err := indigoCheck(message, key)
	if ours != (err == nil) && !differs(&v, verdict.Reason, err) {
		tb.Errorf("%v, indigo: %v", verdict.Reason, err)
	}
	return verdict
}

// differs reports whether the difference between a reason and indigo's verdict is one of those that
// difference_test.go lists.
func differs(v *Verifier, reason Reason, err error) bool {
	if err == nil {
		switch reason {
		case InvalidFrame, InvalidOp, InvalidCAR, InvalidCommit, InvalidTree, NoPrevData, RevInFuture:
			return true
		}
		return false
	}
	text := err.Error()
	return errors.Is(err, errUndecoded) || errors.Is(err, mst.ErrPartialTree) || strings.Contains(text, "partial MST") ||
		strings.Contains(text, "match prevData") && !v.keepsKey()
}

// keepsKey reports whether a key of the tree is no op's.
func (v *Verifier) keepsKey() bool {
	for _, it := range v.tree.items {
		if it.isSubtree() || slices.ContainsFunc(v.tree.before, func(b item) bool { return bytes.Equal(b.key, it.key) }) {
			return true
		}
	}
	return false
}

// publicKey returns the key of an account of the simulated relay.
func publicKey(tb testing.TB, did string) atcrypto.PublicKey {
	tb.Helper()
	key, err := relaysim.PublicKey(did)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// stream returns messages of a simulated relay.
func stream(tb testing.TB, cfg relaysim.Config, n int) []relaysim.Message {
	tb.Helper()
	cfg.Clock = "virtual"
	relay, err := relaysim.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return relay.Take(n)
}

// syncOf returns the CAR and the account of a #sync, or nothing of another frame.
func syncOf(tb testing.TB, message []byte) (blocks []byte, did string) {
	tb.Helper()
	kind, body := splitFrame(message)
	if kind != translate.FrameSync {
		return nil, ""
	}
	var s comatproto.SyncSubscribeRepos_Sync
	if err := s.UnmarshalCBOR(bytes.NewReader(body)); err != nil {
		tb.Fatal(err)
	}
	return s.Blocks, s.Did
}
