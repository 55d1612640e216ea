package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"

	"millrace/intern/kv/pebblekv"
)

// storeFlags say where the stores of a server that does not run are.
type storeFlags struct {
	dataDir string
	intern  choice
	cluster string

	command string // that has the flags: intern export
}

// storeTwins are the server's variables that say so.
func storeTwins() []string { return []string{"data-dir", "intern", "fdb-cluster-file"} }

func (p *storeFlags) register(fs *flag.FlagSet) {
	p.command, p.intern = fs.Name(), choice{"pebble", []string{"pebble", "fdb"}}
	fs.StringVar(&p.dataDir, "data-dir", "./data", "the server's data directory (`DIR`)")
	fs.Var(&p.intern, "intern", "where UIDs come from: pebble (embedded) or fdb (FoundationDB)")
	fs.StringVar(&p.cluster, "fdb-cluster-file", "", "cluster `file` of FoundationDB, with --intern=fdb")
}

func (p *storeFlags) check([]string) error {
	if p.intern.value == "fdb" && !hasFoundation {
		return errNoFoundation
	}
	return nil
}

func (p *storeFlags) config() *config { return &config{dataDir: p.dataDir} }

// openUIDs opens the UID store, an embedded one with these options. It must exist, unless create.
func (p *storeFlags) openUIDs(ctx context.Context, options pebblekv.Config, create bool, stderr io.Writer) (closableStore, error) {
	if p.intern.value == "fdb" {
		return openFoundation(ctx, p.cluster, create, slog.New(slog.NewTextHandler(stderr, nil)))
	}
	options.Dir, options.CacheBytes, options.MemTableBytes = p.config().internDir(), 128<<20, 64<<20
	options.MaxOpenFiles = commandFiles()
	if _, err := os.Stat(options.Dir); !create && errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no UID store in %s: name the server's --data-dir, or --intern=fdb", options.Dir)
	}
	store, err := pebblekv.Open(options)
	if err != nil {
		return nil, adviseStores(err) // a nil *Store is no nil closableStore
	}
	return store, nil
}
