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

// openFoundation opens the UID store in FoundationDB, and waits for as long as the cluster does not
// answer.
func openFoundation(ctx context.Context, clusterFile string, logger *slog.Logger) (closableStore, error) {
	store, err := fdbkv.Open(ctx, fdbkv.Config{ClusterFile: clusterFile, Logger: logger})
	switch {
	case errors.Is(err, fdbkv.ErrClusterFile):
		return nil, advise(err, "Name the cluster's file with --fdb-cluster-file. millrace's user must be able to read it.")
	case err != nil:
		return nil, err
	}
	return store, nil
}
