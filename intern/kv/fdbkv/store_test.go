//go:build fdb

package fdbkv_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/intern/kv"
	"millrace/intern/kv/fdbkv"
	"millrace/intern/kv/fdbkv/fdbtest"
	"millrace/intern/kv/kvtest"
)

// TestStore runs what every store must pass, on a real server.
func TestStore(t *testing.T) {
	cluster := fdbtest.Cluster(t)
	kvtest.Run(t, func(t *testing.T) kv.Store {
		return fdbtest.Open(t, cluster, fdbtest.Directory(t, cluster))
	})
}

// TestDirectories has two directories on one cluster not see each other, and one opened twice be
// the same.
func TestDirectories(t *testing.T) {
	cluster, ctx := fdbtest.Cluster(t), context.Background()
	path := fdbtest.Directory(t, cluster)
	one, again, other := fdbtest.Open(t, cluster, path), fdbtest.Open(t, cluster, path), fdbtest.Open(t, cluster, fdbtest.Directory(t, cluster))
	if err := kv.Run(ctx, one, func(txn kv.Txn) error { txn.Set([]byte("k"), []byte("v")); return nil }); err != nil {
		t.Fatal(err)
	}
	for s, want := range map[*fdbkv.Store]string{again: "v", other: ""} {
		err := kv.Run(ctx, s, func(txn kv.Txn) error {
			value := make([][]byte, 1)
			if err := txn.Get(ctx, [][]byte{[]byte("k")}, value); err != nil {
				return err
			}
			if string(value[0]) != want {
				return fmt.Errorf("%q, want %q", value[0], want)
			}
			keys := 0
			err := txn.Scan(ctx, kv.Range{Begin: []byte{0}, End: []byte{0xff}}, func(kv.Pair) (bool, error) { keys++; return true, nil })
			if err == nil && keys != len(want) {
				err = fmt.Errorf("%d keys", keys)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// TestExisting has Open make nothing in a cluster where the directory must exist.
func TestExisting(t *testing.T) {
	cluster, ctx := fdbtest.Cluster(t), context.Background()
	cfg := fdbkv.Config{ClusterFile: cluster, Directory: fdbtest.Directory(t, cluster), Existing: true}
	for range 2 {
		if _, err := fdbkv.Open(ctx, cfg); !errors.Is(err, fdbkv.ErrNoDirectory) {
			t.Errorf("%v", err)
		}
	}
	fdbtest.Open(t, cluster, cfg.Directory)
	s, err := fdbkv.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}

// lines is a log that tests read.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), s)
}

// TestUnreachable opens a store on a cluster that is not there: it says so once, keeps trying, and
// opens when the server comes.
func TestUnreachable(t *testing.T) {
	server := fdbtest.Start(t)
	server.Kill()
	var log lines
	cfg := fdbkv.Config{ClusterFile: server.ClusterFile, Directory: []string{"late"}, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	short, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if _, err := fdbkv.Open(short, cfg); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, kv.ErrUnavailable) {
		t.Errorf("no server: %v", err)
	}
	if n := log.count("does not answer; still trying"); n != 1 {
		t.Errorf("said %d times that the cluster does not answer", n)
	}
	time.AfterFunc(time.Second, server.Run)
	long, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := fdbkv.Open(long, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if log.count("waited_seconds") > 1 {
		t.Error("said more than once that the cluster answers")
	}
	if _, err := fdbkv.Open(long, fdbkv.Config{ClusterFile: filepath.Join(t.TempDir(), "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no cluster file: %v", err)
	}
}

// TestClusterFile has Open refuse a cluster file that it cannot use at once, and not wait for a
// cluster: the client library reads it once only.
func TestClusterFile(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none")
	t.Setenv("FDB_CLUSTER_FILE", none)
	empty, wrong := filepath.Join(t.TempDir(), "empty"), filepath.Join(t.TempDir(), "wrong")
	for file, text := range map[string]string{empty: "", wrong: "hello\n"} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, file := range []string{"", none, empty, wrong} {
		_, err := fdbkv.Open(ctx, fdbkv.Config{ClusterFile: file})
		if !errors.Is(err, fdbkv.ErrClusterFile) || !strings.Contains(err.Error(), cmp.Or(file, none)) {
			t.Errorf("%q: %v", file, err)
		}
	}
}

// TestServerKilled has transactions raise one counter while the server is killed and stopped: every
// outcome is what package kv says. A commit that was reported is there, one that was refused is
// not.
func TestServerKilled(t *testing.T) {
	server := fdbtest.Start(t)
	store := fdbtest.Open(t, server.ClusterFile, []string{"counter"})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	stop := make(chan struct{})
	var sure, unknown uint64
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			attempt, end := context.WithTimeout(ctx, time.Second)
			err := kv.Once(attempt, store, func(txn kv.Txn) error {
				n, err := get(attempt, txn)
				txn.Set([]byte("n"), binary.BigEndian.AppendUint64(nil, n+1))
				return err
			})
			end()
			switch {
			case err == nil:
				sure++
			case errors.Is(err, kv.ErrUnknownOutcome):
				unknown++
			case !kv.Retryable(err):
				t.Errorf("final error: %v", err)
				return
			}
		}
	})
	for range 3 {
		time.Sleep(500 * time.Millisecond)
		server.Kill()
		time.Sleep(300 * time.Millisecond)
		server.Run()
		time.Sleep(2 * time.Second)
		server.Pause()
		time.Sleep(1500 * time.Millisecond)
		server.Resume()
	}
	time.Sleep(2 * time.Second)
	close(stop)
	wg.Wait()
	var n uint64
	if err := kv.Run(ctx, store, func(txn kv.Txn) (err error) { n, err = get(ctx, txn); return err }); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d committed, %d unknown, counter %d", sure, unknown, n)
	if n < sure || n > sure+unknown || sure < 10 {
		t.Errorf("%d committed, %d unknown, but the counter is %d", sure, unknown, n)
	}
}

func get(ctx context.Context, txn kv.Txn) (uint64, error) {
	value := make([][]byte, 1)
	if err := txn.Get(ctx, [][]byte{[]byte("n")}, value); err != nil || value[0] == nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(value[0]), nil
}
