package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"millrace/replay"
	"millrace/replay/graph/feed"
	"millrace/replay/references"
)

// referencesDir is where the reference store is.
func (c *config) referencesDir() string { return filepath.Join(c.dataDir, "refs") }

// referencesOn says whether the server notes what records point at.
func (c *config) referencesOn() bool { return c.references.value == "on" }

// validateReferences says what --references=on does not go with.
func (c *config) validateReferences() error {
	switch {
	case !c.referencesOn() && c.links:
		return errors.New("--links needs --references=on")
	case !c.referencesOn():
		return nil
	case c.intern.value == "off":
		return errors.New("--references=on needs UIDs: leave --intern=off out")
	case c.internScope.value == "dids":
		return errors.New("--references=on needs UIDs of records: leave --intern-scope=dids out")
	case c.retention == 0:
		return errors.New("--references=on needs events in the log: --retention must be above 0")
	}
	return nil
}

// referencesBasis is what the rows of the reference store depend on, beside the log.
func (c *config) referencesBasis(storeID string, skipped uint64) string {
	return basisOfUIDs(storeID, skipped) + basisCollections + c.collectionSet()
}

// collectionSet is --collections, however it is written.
func (c *config) collectionSet() string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(c.collections))), ",")
}

// basisCollections begins the collections in a basis.
const basisCollections = "; collections "

// basisOfUIDs is how a basis begins.
func basisOfUIDs(storeID string, skipped uint64) string {
	return fmt.Sprintf("UID store %s, %d skipped", storeID, skipped)
}

// openReferences opens the reference store.
func (d *daemon) openReferences(shares memoryShares) (err error) {
	if !d.cfg.referencesOn() {
		return nil
	}
	d.refs, err = references.Open(references.Config{
		Dir:          d.cfg.referencesDir(),
		FS:           d.storeFS(d.cfg.referencesDir()),
		PrefixBits:   d.uids.interner.PrefixBits(),
		PebbleBytes:  shares.references,
		OverlayBytes: shares.overlay / 2,
		AccountBytes: shares.overlay / 2,
		OpenFiles:    d.files.storeFiles,
		Logger:       d.logger.With("part", "references"),
		Registerer:   d.registry,
	})
	return adviseDataDir(err, d.cfg.dataDir)
}

// beginReferences rolls the reference store forward to the end of the log. The rows of one that was
// restored from a backup stay, though UIDs were skipped since; backup is nil if none was.
func (d *daemon) beginReferences(ctx context.Context, backup *backupManifest) error {
	if d.refs == nil {
		return nil
	}
	logger := d.logger.With("part", "references")
	if err := d.refs.SetLinks(d.cfg.links); err != nil {
		return adviseDataDir(err, d.cfg.dataDir)
	}
	skipped, err := d.uids.interner.Skipped(ctx)
	if err != nil {
		return err
	}
	basis := d.cfg.referencesBasis(d.uids.storeID(), skipped)
	if g := d.refs.Generation(); backup != nil && g.Number > 0 && d.cfg.isRestored(g.Basis, backup, skipped) {
		if err := d.refs.Rebase(basis); err != nil {
			return err
		}
	}
	from, _ := d.log.References()
	if why := d.whyNewGeneration(basis, from); why != "" {
		logger.Info("the reference store begins anew: records from before this seq are unknown until they are imported", "why", why, "epoch", from.Epoch, "seq", from.Seq)
		// A store that replaces one that was moved away has its generation's number again.
		if err := feed.Forget(d.cfg.graphFile()); err != nil {
			return err
		}
		if err := d.refs.Begin(basis, from); err != nil {
			return err
		}
	}
	if err := d.followLog(ctx); err != nil {
		return err
	}
	g := d.refs.Generation()
	logger.Info("references are on", "generation", g.Number, "since_epoch", g.From.Epoch, "since_seq", g.From.Seq)
	return nil
}

// isRestored says whether a basis is that of the table in a backup, or what a start that failed
// since then made of it: each skips UIDs.
func (c *config) isRestored(basis string, backup *backupManifest, skipped uint64) bool {
	var store string
	var then uint64
	_, err := fmt.Sscanf(basis, "UID store %s %d skipped", &store, &then)
	return err == nil && backup.Skipped <= then && then <= skipped && basis == c.referencesBasis(backup.UIDStore, then)
}

// whyNewGeneration says why the reference store cannot go on from where it is; "": it can. from is
// the frame after which the log has what it needs.
func (d *daemon) whyNewGeneration(basis string, from replay.EpochEnd) string {
	at, end := d.refs.Position(), d.log.Progress()
	switch g := d.refs.Generation(); {
	case g.Number == 0:
		return "there was none"
	case g.Basis != basis:
		return whyNewBasis(g.Basis, basis)
	case at.Before(from):
		return "references were off, or the log was trimmed past it"
	case (references.Position{Epoch: end.Epoch, Seq: end.Seq}).Before(at):
		return "the log is older than it"
	}
	return ""
}

// whyNewBasis says what differs between two bases.
func whyNewBasis(was, is string) string {
	wasUIDs, _, _ := strings.Cut(was, basisCollections)
	isUIDs, _, _ := strings.Cut(is, basisCollections)
	wasStore, _, _ := strings.Cut(wasUIDs, ",")
	switch {
	case wasUIDs == isUIDs:
		return "--collections changed"
	case strings.HasPrefix(isUIDs, wasStore+","):
		return "UIDs were skipped"
	}
	return "the UID store is another one"
}

// followLog rolls the reference store forward, and logs how far it is now and then.
func (d *daemon) followLog(ctx context.Context) error {
	var at references.Position
	say := everySoOften(func() {
		end := d.log.Progress()
		d.logger.Info("the reference store reads the events of the log that it lacks; the relay is read after that",
			"epoch", at.Epoch, "seq", at.Seq, "end_epoch", end.Epoch, "end_seq", end.Seq)
	})
	return d.refs.Follow(ctx, d.log, func(p references.Position) { at = p; say() })
}

// holdLog is the last frame that the log may trim.
func (d *daemon) holdLog() replay.EpochEnd {
	if d.refs == nil {
		return replay.EpochEnd{} // the reference store is not open yet
	}
	at, _ := d.refs.Flush() // a failure of the store ends the server
	// After the flush: a backup that begins after this has at least what was flushed.
	if copied := d.copied.Load(); copied != nil && copied.Before(at) {
		at = *copied
	}
	return at
}
