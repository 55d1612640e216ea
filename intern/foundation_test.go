//go:build fdb

package intern

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"millrace/intern/kv/fdbkv"
	"millrace/intern/kv/fdbkv/fdbtest"
)

// Environment of the processes that TestFoundationBijection kills.
const (
	envChildCluster = "MILLRACE_TEST_CHILD_CLUSTER"
	envChildDir     = "MILLRACE_TEST_CHILD_DIRECTORY"
	envChildSeed    = "MILLRACE_TEST_CHILD_SEED"
)

// TestFoundationBijection has several processes intern overlapping strings through one real server
// and kills them, with kill -9, again and again. Every UID that one of them printed is there
// afterwards, and the whole store is a bijection.
func TestFoundationBijection(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	cluster := fdbtest.Cluster(t)
	path := fdbtest.Directory(t, cluster)
	const processes, lives = 3, 4
	var mu sync.Mutex
	want := make(map[string]uint64)
	told := 0
	var wg sync.WaitGroup
	for n := range processes {
		rng := rand.New(rand.NewPCG(seed, uint64(n)))
		wg.Go(func() {
			for life := range lives {
				last := life == lives-1
				lines := runChild(t, cluster, path, rng.Uint64(), time.Duration(1000+rng.IntN(1500))*time.Millisecond, last)
				mu.Lock()
				told += len(lines)
				mu.Unlock()
				for _, line := range lines {
					s, uid, ok := strings.Cut(line, " ")
					u, err := strconv.ParseUint(uid, 10, 64)
					if !ok || err != nil {
						t.Errorf("a process printed %q", line)
						return
					}
					record(t, &mu, want, []string{s}, []uint64{u})
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d UIDs told, %d strings", told, len(want))
	if len(want) < 500 {
		t.Errorf("only %d strings", len(want))
	}
	checkStore(t, fdbtest.Open(t, cluster, path), want)
}

// runChild runs one process and returns the lines it printed whole. Unless it is the last it is
// killed after a while.
func runChild(t *testing.T, cluster string, path []string, seed uint64, life time.Duration, last bool) (lines []string) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestFoundationChild$", "-test.v")
	cmd.Env = append(os.Environ(), envChildCluster+"="+cluster, envChildDir+"="+strings.Join(path, "/"), envChildSeed+"="+fmt.Sprint(seed))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
		return nil
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return nil
	}
	if !last {
		defer time.AfterFunc(life, func() { _ = cmd.Process.Kill() }).Stop()
	}
	s := bufio.NewReader(out)
	for {
		line, err := s.ReadString('\n')
		if err != nil {
			break // what is left was not printed whole
		}
		if rest, ok := strings.CutPrefix(line, "UID "); ok {
			lines = append(lines, strings.TrimSuffix(rest, "\n"))
		}
	}
	if err := cmd.Wait(); last && err != nil {
		t.Errorf("a process that nobody killed: %v", err)
	}
	return lines
}

// TestFoundationChild is one of the processes.
func TestFoundationChild(t *testing.T) {
	cluster := os.Getenv(envChildCluster)
	if cluster == "" {
		t.Skip("only TestFoundationBijection runs this")
	}
	store, err := fdbkv.Open(ctx, fdbkv.Config{ClusterFile: cluster, Directory: strings.Split(os.Getenv(envChildDir), "/")})
	if err != nil {
		t.Fatal(err)
	}
	seed, err := strconv.ParseUint(os.Getenv(envChildSeed), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	in := openOn(t, store, Config{Workers: 8, hooks: testHooks{batchStrings: 64}, CacheBytes: 64 << 10})
	var wg sync.WaitGroup
	var mu sync.Mutex
	for caller := range 8 {
		rng := rand.New(rand.NewPCG(uint64(caller), 1)) // the same in every process
		if caller%2 == 0 {
			rng = rand.New(rand.NewPCG(seed, uint64(caller)))
		}
		wg.Go(func() {
			for range 60 {
				strings := randomStrings(rng, 1+rng.IntN(40))
				uids := make([]uint64, len(strings))
				if err := resolveStrings(ctx, in, strings, uids); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for i, s := range strings {
					fmt.Printf("UID %s %d\n", s, uids[i])
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// TestFoundationOneStream has two and four Interners read one stream through a real server: the
// same UIDs, and hardly a transaction is repeated.
func TestFoundationOneStream(t *testing.T) {
	cluster := fdbtest.Cluster(t)
	for _, instances := range []int{2, 4} {
		t.Run(fmt.Sprint(instances), func(t *testing.T) {
			path := fdbtest.Directory(t, cluster)
			var all []*Interner
			for range instances {
				all = append(all, openOn(t, fdbtest.Open(t, cluster, path), Config{}))
			}
			for _, in := range all {
				awaitPeers(t, in, instances-1)
			}
			// numbers the collections
			_ = resolveStrings(ctx, all[0], streamBatch(0, 40), make([]uint64, 40))
			var mu sync.Mutex
			want := make(map[string]uint64)
			var wg sync.WaitGroup
			for _, in := range all {
				wg.Go(func() {
					if err := followStream(in, 300, 200, 4, func(_ int, strings []string, uids []uint64) { record(t, &mu, want, strings, uids) }); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			var committed, repeated, over float64
			for _, in := range all {
				committed, repeated = committed+testutil.ToFloat64(in.metrics.committed), repeated+retriesOf(in)
				over += testutil.ToFloat64(in.metrics.share.TakenOver)
			}
			t.Logf("%d strings, %v transactions, %v repeated, %v taken over", len(want), committed, repeated, over)
			if repeated > 0.05*(committed+repeated) {
				t.Errorf("%v of %v transactions were repeated", repeated, committed+repeated)
			}
			for _, in := range all {
				_ = in.Close()
			}
			checkStore(t, fdbtest.Open(t, cluster, path), want)
		})
	}
}

// TestFoundationLargeBatches interns strings so long and so many at once that they take several
// transactions.
func TestFoundationLargeBatches(t *testing.T) {
	cluster := fdbtest.Cluster(t)
	store := fdbtest.Open(t, cluster, fdbtest.Directory(t, cluster))
	in := openOn(t, store, Config{hooks: testHooks{batchStrings: 4096}, Workers: 2})
	var strings []string
	for i := range 4000 {
		strings = append(strings, fmt.Sprintf("at://did:web:%d.example.com/a.b.c/%0480d", i%100, i))
	}
	want, mu := make(map[string]uint64), sync.Mutex{}
	record(t, &mu, want, strings, resolve(t, in, strings...))
	_ = in.Close()
	checkStore(t, store, want)
}
