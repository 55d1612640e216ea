//go:build fdb

package fdbkv

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/apple/foundationdb/bindings/go/src/fdb"
	"github.com/apple/foundationdb/bindings/go/src/fdb/directory"

	"millrace/intern/kv"
)

// apiVersion is FoundationDB's API as this package knows it.
const apiVersion = 730

// The limits. FoundationDB's own are 10 MB, 10,000 and 100,000 bytes and 5 s; a key's directory
// prefix comes on top.
const (
	maxBytes    = 4_000_000
	maxKey      = 9_000
	maxValue    = 100_000
	maxDuration = 5 * time.Second
)

// openTimeout is the time of one attempt to open the directory.
const openTimeout = 2 * time.Second

// sayEvery is how often Open says that the cluster still does not answer.
const sayEvery = 30 * time.Second

// ErrNoDirectory: there is no such directory in the cluster.
var ErrNoDirectory = directory.ErrDirNotExists

// ErrClusterFile: the cluster file is missing, may not be read, or is none.
var ErrClusterFile = errors.New("cluster file cannot be used")

// Config says which cluster and where in it.
type Config struct {
	// empty: FoundationDB's default: FDB_CLUSTER_FILE, fdb.cluster in the working directory, or
	// /etc/foundationdb/fdb.cluster
	ClusterFile string
	Directory   []string // path in the directory layer; nil: "millrace"
	Existing    bool     // the directory must be there: nothing is written
	Logger      *slog.Logger
}

// withDefaults returns c with its zeros filled. A ClusterFile that stays empty is one of the client
// library's defaults.
func (c Config) withDefaults() Config {
	c.ClusterFile = cmp.Or(c.ClusterFile, os.Getenv("FDB_CLUSTER_FILE"))
	if c.Directory == nil {
		c.Directory = []string{"millrace"}
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

// validate names the first field that cannot be used.
func (c Config) validate() error {
	if c.ClusterFile == "" {
		return nil
	}
	f, err := os.Open(c.ClusterFile)
	if err != nil {
		return fmt.Errorf("fdbkv: field ClusterFile: %w: %w", ErrClusterFile, err)
	}
	return f.Close()
}

// Store is a directory of a cluster. Safe for concurrent use.
type Store struct {
	db     fdb.Database
	prefix []byte // of all keys
	closed atomic.Bool
}

var _ kv.Store = (*Store)(nil)

// Open opens the directory, creating it if there is none, unless it must exist. While the cluster
// does not answer it says so in the log and keeps trying, until ctx ends. A cluster file that
// cannot be read is an error at once.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := fdb.APIVersion(apiVersion); err != nil {
		return nil, fmt.Errorf("select FoundationDB's API version %d: %w", apiVersion, err)
	}
	db, err := fdb.OpenDatabase(cfg.ClusterFile)
	if err != nil {
		return nil, fmt.Errorf("open FoundationDB with cluster file %q: %w", cfg.ClusterFile, err)
	}
	s := &Store{db: db}
	begun, said := time.Now(), time.Time{}
	err = kv.Retry(ctx, func() error {
		err := attempt(ctx, db, func(tr fdb.Transaction) error {
			dir, err := directory.Open(tr, cfg.Directory, nil)
			if errors.Is(err, ErrNoDirectory) && !cfg.Existing {
				dir, err = directory.Create(tr, cfg.Directory, nil)
			}
			if err == nil {
				s.prefix = dir.Bytes()
			}
			return err
		})
		unanswered := kv.Retryable(err) && !errors.Is(err, kv.ErrConflict) && ctx.Err() == nil
		if now := time.Now(); unanswered && now.Sub(said) >= sayEvery {
			cfg.Logger.Warn("FoundationDB does not answer; still trying", "cluster_file", cfg.ClusterFile, "err", err)
			said = now
		}
		return err
	})
	if code, _ := codeOf(err); code == codeNoClusterFile || code == codeBadClusterFile {
		return nil, fmt.Errorf("%w: %q: %w", ErrClusterFile, cfg.ClusterFile, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open directory %s: %w", strings.Join(cfg.Directory, "/"), err)
	}
	if !said.IsZero() {
		cfg.Logger.Info("FoundationDB answers", "waited_seconds", time.Since(begun).Seconds())
	}
	return s, nil
}

// attempt runs f in a transaction of at most openTimeout, once. The directory layer would retry by
// itself for ever and in silence if it were given the database instead.
func attempt(ctx context.Context, db fdb.Database, f func(fdb.Transaction) error) error {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	tr, err := db.CreateTransaction()
	if err != nil {
		return translate(ctx, err, false)
	}
	defer context.AfterFunc(ctx, tr.Cancel)()
	if err := f(tr); err != nil {
		return translate(ctx, err, false)
	}
	if err := tr.Commit().Get(); err != nil {
		return translate(ctx, err, true)
	}
	return nil
}

// Limits implements kv.Store.
func (s *Store) Limits() kv.Limits {
	return kv.Limits{Bytes: maxBytes, Key: maxKey, Value: maxValue, Duration: maxDuration, Spread: true, Shared: true}
}

// Begin implements kv.Store. Nothing is sent yet: the first read fetches the version that all reads
// are of.
func (s *Store) Begin(ctx context.Context) (kv.Txn, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if s.closed.Load() {
		return nil, kv.ErrClosed
	}
	tr, err := s.db.CreateTransaction()
	if err != nil {
		return nil, translate(ctx, err, false)
	}
	options := tr.Options()
	err = errors.Join(options.SetTimeout(maxDuration.Milliseconds()), options.SetReadYourWritesDisable())
	if err != nil {
		return nil, fmt.Errorf("set transaction options: %w", err)
	}
	return &txn{store: s, tr: tr}, nil
}

// Close lets none begin. Safe twice. The client's connections stay until the process ends.
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}

// Remove deletes a directory and all that is in it. For tests and for giving space back.
func Remove(ctx context.Context, clusterFile string, path []string) error {
	if err := fdb.APIVersion(apiVersion); err != nil {
		return err
	}
	db, err := fdb.OpenDatabase(clusterFile)
	if err != nil {
		return err
	}
	return kv.Retry(ctx, func() error {
		return attempt(ctx, db, func(tr fdb.Transaction) error {
			_, err := directory.Root().Remove(tr, path)
			return err
		})
	})
}
