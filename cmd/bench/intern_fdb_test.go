//go:build fdb

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/intern/kv/fdbkv/fdbtest"
)

// TestFoundationBench runs the table of schemes and the instances, small, on a real server.
func TestFoundationBench(t *testing.T) {
	cluster := fdbtest.Cluster(t)
	var out bytes.Buffer
	err := run(context.Background(), []string{"intern", "-only", "schemes", "-store", "fdb", "-fdb-cluster-file", cluster, "-workers", "4", "-time", "300ms"}, &out)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range schemes() {
		if strings.Count(out.String(), "| "+s.name+" | 4 |") != 1 {
			t.Errorf("no row of %q in\n%s", s.name, &out)
		}
	}
	bin := filepath.Join(t.TempDir(), "bench") // instances are processes of the command itself
	if text, err := exec.Command("go", "build", "-tags", "fdb", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	cmd := exec.Command(bin, "intern", "-only", "instances", "-fdb-cluster-file", cluster, "-instances", "1,2", "-run", "1s")
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil || !strings.Contains(string(text), "| 2 | ") || !strings.Contains(string(text), "| yes, ") || strings.Contains(string(text), "NO") {
		t.Errorf("%v\n%s", err, text)
	}
}
