//go:build fdb

package main

import (
	"context"
	"errors"
	"log/slog"

	"millrace/intern/kv/fdbkv"
)

// hasFoundation reports whether --intern=fdb works.
const hasFoundation = true

// openFoundation opens the UID store in FoundationDB, which must exist unless create, and waits for
// as long as the cluster does not answer.
func openFoundation(ctx context.Context, clusterFile string, create bool, logger *slog.Logger) (closableStore, error) {
	store, err := fdbkv.Open(ctx, fdbkv.Config{ClusterFile: clusterFile, Existing: !create, Logger: logger})
	switch {
	case errors.Is(err, fdbkv.ErrClusterFile):
		return nil, advise(err, "Name the cluster's file with --fdb-cluster-file. millrace's user must be able to read it.")
	case errors.Is(err, fdbkv.ErrNoDirectory):
		return nil, advise(errors.New("there is no UID store in this FoundationDB"), "Name the cluster's file that the servers have with --fdb-cluster-file.")
	case err != nil:
		return nil, err
	}
	return store, nil
}
