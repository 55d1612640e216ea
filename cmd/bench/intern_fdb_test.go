//go:build fdb

package main

import (
	"bytes"
	"context"
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
		if strings.Count(out.String(), "| "+s.name+" ") != 1 {
			t.Errorf("no row of %q in\n%s", s.name, &out)
		}
	}
	out.Reset()
	err = run(t.Context(), []string{"intern", "-only", "instances", "-fdb-cluster-file", cluster, "-instances", "1,2", "-run", "1s"}, &out)
	if text := out.String(); err != nil || !strings.Contains(text, "| 2 ") || !strings.Contains(text, "| yes, ") || strings.Contains(text, "NO") {
		t.Errorf("%v\n%s", err, text)
	}
}
