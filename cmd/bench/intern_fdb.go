//go:build fdb

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"millrace/intern/kv"
	"millrace/intern/kv/fdbkv"
)

// openFoundation opens a directory of the cluster.
func openFoundation(ctx context.Context, f *internFlags, path []string) (kv.Store, error) {
	if f.clusterFile == "" {
		return nil, fmt.Errorf("name the cluster with -fdb-cluster-file")
	}
	return fdbkv.Open(ctx, fdbkv.Config{ClusterFile: f.clusterFile, Directory: path})
}

// foundationDirectory makes a new directory, which remove deletes with all that is in it.
func foundationDirectory(ctx context.Context, f *internFlags, name string) (store kv.Store, remove func(), err error) {
	path := []string{"millrace-bench", fmt.Sprintf("%s-%d-%d", name, os.Getpid(), time.Now().UnixNano())}
	if store, err = openFoundation(ctx, f, path); err != nil {
		return nil, nil, err
	}
	return store, func() { removeFoundation(f, path) }, nil
}

func removeFoundation(f *internFlags, path []string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := fdbkv.Remove(ctx, f.clusterFile, path); err != nil {
		fmt.Fprintf(os.Stderr, "remove %v: %v\n", path, err)
	}
}
