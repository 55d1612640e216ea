//go:build fdb

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"millrace/intern/kv"
	"millrace/intern/kv/fdbkv"
)

// foundationDirectory makes a new directory of the cluster, which remove deletes with all that is
// in it.
func foundationDirectory(ctx context.Context, f *internFlags) (store kv.Store, remove func(), err error) {
	if f.clusterFile == "" {
		return nil, nil, errors.New("name the cluster with -fdb-cluster-file")
	}
	path := []string{"millrace-bench", fmt.Sprintf("%d-%d", os.Getpid(), time.Now().UnixNano())}
	if store, err = fdbkv.Open(ctx, fdbkv.Config{ClusterFile: f.clusterFile, Directory: path}); err != nil {
		return nil, nil, err
	}
	return store, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := fdbkv.Remove(ctx, f.clusterFile, path); err != nil {
			fmt.Fprintf(os.Stderr, "remove %v: %v\n", path, err)
		}
	}, nil
}
