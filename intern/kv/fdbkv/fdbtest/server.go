//go:build fdb

package fdbtest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/intern/kv/fdbkv"
)

// EnvCluster names a cluster file to test on. Tests that stop the server do not use it.
const EnvCluster = "MILLRACE_TEST_FDB_CLUSTER_FILE"

// startTimeout is how long a new server may take to answer on a busy machine.
const startTimeout = 60 * time.Second

// Server is a private server. Its methods are for one goroutine.
type Server struct {
	ClusterFile string
	t           testing.TB
	dir         string
	address     string
	cmd         *exec.Cmd
}

// Cluster returns a cluster file: the one in MILLRACE_TEST_FDB_CLUSTER_FILE, or that of a new
// private server.
func Cluster(t testing.TB) string {
	if file := os.Getenv(EnvCluster); file != "" {
		return file
	}
	return Start(t).ClusterFile
}

// Start starts a private server with an empty database. It skips the test, loudly, if there is no
// fdbserver or fdbcli on PATH.
func Start(t testing.TB) *Server {
	t.Helper()
	for _, name := range []string{"fdbserver", "fdbcli"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("SKIPPED: no %s on PATH: install FoundationDB's server package (docs/foundationdb.md)", name)
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{t: t, dir: t.TempDir(), address: l.Addr().String()}
	l.Close()
	s.ClusterFile = filepath.Join(s.dir, "fdb.cluster")
	if err := os.WriteFile(s.ClusterFile, []byte("millrace:test@"+s.address+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	s.Run()
	s.cli("configure new single ssd")
	return s
}

// Run starts the process, the first time or after Kill.
func (s *Server) Run() {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, "output"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command("fdbserver", "--public-address", s.address, "--listen-address", "public", "--cluster-file", s.ClusterFile,
		"--datadir", filepath.Join(s.dir, "data"), "--logdir", filepath.Join(s.dir, "log"),
		"--knob_disable_posix_kernel_aio=1") // not every temporary directory has it
	if err := os.MkdirAll(filepath.Join(s.dir, "log"), 0o755); err != nil {
		s.t.Fatal(err)
	}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	// a killed test leaves none behind
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatalf("start fdbserver: %v", err)
	}
}

// cli has fdbcli do something, until it succeeds.
func (s *Server) cli(command string) {
	s.t.Helper()
	var said []byte
	for end := time.Now().Add(startTimeout); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		var err error
		said, err = exec.CommandContext(ctx, "fdbcli", "-C", s.ClusterFile, "--timeout", "10", "--exec", command).CombinedOutput()
		cancel()
		if err == nil && !strings.Contains(string(said), "ERROR") || strings.Contains(string(said), "already exists") {
			return
		}
	}
	output, _ := os.ReadFile(filepath.Join(s.dir, "output"))
	s.t.Fatalf("fdbcli %q: %s\nserver: %s", command, said, output)
}

// Kill ends the process with SIGKILL. Safe twice.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // killed
	s.cmd = nil
}

// Pause stops the process with SIGSTOP: connections stay open, and nothing is answered.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume ends Pause.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("signal fdbserver: %v", err)
	}
}

// Directory returns the path of a new directory that is removed after the test.
func Directory(t testing.TB, clusterFile string) []string {
	path := []string{"millrace-test", fmt.Sprintf("%d-%d-%s", os.Getpid(), time.Now().UnixNano(), strings.ReplaceAll(t.Name(), "/", "_"))}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := fdbkv.Remove(ctx, clusterFile, path); err != nil {
			t.Logf("remove %v: %v", path, err)
		}
	})
	return path
}

// Open opens a store in a directory.
func Open(t testing.TB, clusterFile string, path []string) *fdbkv.Store {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	s, err := fdbkv.Open(ctx, fdbkv.Config{ClusterFile: clusterFile, Directory: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
