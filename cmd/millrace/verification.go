package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"path/filepath"

	"millrace/cmd/millrace/ingest"
	"millrace/replay"
	"millrace/replay/chain"
	"millrace/translate/verify/identity"
)

// verification is what --verify and the flags beside it say.
type verification struct {
	verify       choice
	sample       int
	plc          string
	plcExport    string
	allowPrivate bool
}

// verifies says whether commits are verified.
func (v *verification) verifies() bool { return v.verify.value == "flag" || v.verify.value == "drop" }

func (v *verification) register(fs *flag.FlagSet) {
	v.verify = choice{"off", []string{"off", "flag", "drop"}}
	fs.Var(&v.verify, "verify", "verify commits and syncs: flag (say on the extended wire which failed, and why), drop\n(leave them out) or off")
	fs.IntVar(&v.sample, "verify-sample", 1, "verify one account in so many (`number`)")
	fs.StringVar(&v.plc, "plc", "https://plc.directory", "`URL` of the PLC directory, which has the keys of did:plc accounts")
	fs.StringVar(&v.plcExport, "plc-export", "", "`file` of an export of the PLC directory (NDJSON, also gzip or zstd), instead of --plc")
	fs.BoolVar(&v.allowPrivate, "did-web-private", false, "did:web names may lead to addresses that are not public")
}

// validate returns an error for values that cannot be used.
func (v *verification) validate(given map[string]bool) error {
	if v.sample < 1 {
		return fmt.Errorf("--verify-sample %d is below 1", v.sample)
	}
	if u, err := url.Parse(v.plc); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("--plc: it must be an http or https URL without a query, such as https://plc.directory")
	}
	if v.plcExport != "" && given["plc"] {
		return errors.New("--plc and --plc-export are both given: keys come from one of them")
	}
	return nil
}

// chainsDir is where the states of accounts are.
func (c *config) chainsDir() string { return filepath.Join(c.dataDir, "chains") }

// identitiesDir is where the keys of accounts are.
func (c *config) identitiesDir() string { return filepath.Join(c.dataDir, "identities") }

// verifier is what verifies commits.
type verifier struct {
	keys   *identity.Directory
	chains *chain.Store
}

func (d *daemon) chainConfig(shares memoryShares) chain.Config {
	return chain.Config{
		Dir:         d.cfg.chainsDir(),
		FS:          d.cfg.hooks.fs,
		Sample:      uint64(d.cfg.verification.sample),
		PebbleBytes: shares.chains,
		OpenFiles:   d.files.storeFiles,
		Logger:      d.logger.With("part", "chains"),
	}
}

func (d *daemon) identityConfig(shares memoryShares) identity.Config {
	v := &d.cfg.verification
	c := identity.Config{
		Dir:          d.cfg.identitiesDir(),
		FS:           d.cfg.hooks.fs,
		PLC:          v.plc,
		AllowPrivate: v.allowPrivate,
		Bytes:        shares.keys,
		Now:          d.cfg.hooks.now,
		Logger:       d.logger.With("part", "identity"),
		Registerer:   d.registry,
	}
	if v.plcExport != "" {
		c.PLC, c.Export = "", v.plcExport
	}
	return c
}

// openVerifier opens what --verify needs. With off that is nothing.
func (d *daemon) openVerifier(shares memoryShares) (err error) {
	if !d.cfg.verification.verifies() {
		return nil
	}
	d.verifier = &verifier{}
	if d.verifier.chains, err = chain.Open(d.chainConfig(shares)); err != nil {
		return adviseDataDir(err, d.cfg.dataDir)
	}
	d.verifier.keys, err = identity.Open(d.identityConfig(shares))
	return adviseDataDir(err, d.cfg.dataDir)
}

// checkExport returns an error if the file that --verify needs cannot be opened.
func (v *verification) checkExport() error {
	if !v.verifies() {
		return nil
	}
	return advise(identity.CheckExport(v.plcExport), "Give --plc-export a file that a PLC directory's /export has made, or leave it out.")
}

// begin brings the states of accounts to the log's position.
func (v *verifier) begin(at replay.Progress) error {
	if v == nil {
		return nil
	}
	return v.chains.Begin(chain.Position{Epoch: at.Epoch, Seq: at.Seq})
}

// ingestConfig is of a pipeline that verifies.
func (v *verifier) ingestConfig(cfg *verification) *ingest.Verification {
	if v == nil {
		return nil
	}
	return &ingest.Verification{Keys: v.keys, Chains: v.chains, Sample: uint64(cfg.sample), Drop: cfg.verify.value == "drop"}
}

// run waits until ctx is done, or a store has failed; then it returns why, and the process should
// stop.
func (v *verifier) run(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-v.chains.Failed():
		return v.chains.Err()
	case <-v.keys.Failed():
		return v.keys.Err()
	}
}

func (v *verifier) close() (err error) {
	if v == nil {
		return nil
	}
	if v.keys != nil {
		err = v.keys.Close()
	}
	if v.chains != nil {
		err = errors.Join(err, v.chains.Close())
	}
	return err
}
