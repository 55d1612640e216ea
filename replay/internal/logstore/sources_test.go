package logstore

import (
	"fmt"
	"strings"
	"testing"

	"millrace/replay/internal/format"
)

// TestSourceLimits: what would be too much is refused; numbers that were given stay.
func TestSourceLimits(t *testing.T) {
	table := NewSources()
	refused := func(what string, source []byte) {
		t.Helper()
		if n, ok := table.Number(source, false); ok {
			t.Errorf("%s has number %d", what, n)
		}
	}
	refused("no source", nil)
	refused("a long source", make([]byte, MaxSourceBytes+1))
	for i := range format.MaxSources {
		if n, ok := table.Number(fmt.Appendf(nil, "a.b.c:%d", i), false); !ok || int(n) != i+1 {
			t.Fatalf("source %d has number %d, %t", i, n, ok)
		}
	}
	refused("one source too many", []byte("a.b.c:x"))
	if n, ok := table.Number([]byte("a.b.c:17"), false); !ok || n != 18 {
		t.Errorf("one that was there has number %d, %t", n, ok)
	}

	table = NewSources()
	long := strings.Repeat("x", MaxSourceBytes-8)
	for i := range maxSourcesBytes / MaxSourceBytes {
		if _, ok := table.Number(fmt.Appendf(nil, "%08d%s", i, long), false); !ok {
			t.Fatalf("long source %d has no number", i)
		}
	}
	refused("a source beyond all bytes", []byte(long))
}
